"""Dashboard of the inside of nodes: process, calls, log, timers, cluster."""

from __future__ import annotations

from model import ON, Dashboard, Panel, Row, mean, quantile, rate, total
from shared import CPU, DROPPED, LATENCY, MEMORY, PARKED, REFUSED


def by_node(metric: str, *more: str) -> dict[str, str]:
    """A gauge of each node."""
    return {"{{instance}}": total(metric, *more, by="instance")}


def rate_by_node(metric: str) -> dict[str, str]:
    """A counter's rate of each node."""
    return {"{{instance}}": rate(metric, by="instance")}


def two_quantiles(metric: str) -> dict[str, str]:
    """Median and 99 % of a histogram."""
    return {"median": quantile(0.5, metric), "99 %": quantile(0.99, metric)}


PROCESS = Row(
    "Process",
    (
        CPU,
        MEMORY,
        Panel(
            "Open files and sockets",
            "Share of the limit of the process (`ulimit -n`): each connection takes one.",
            {
                "{{instance}}": f"{total('process_open_fds', by='instance')} / "
                f"{total('process_max_fds', by='instance')}"
            },
            unit="percentunit",
            thresholds=(0.7, 0.9),
        ),
        Panel(
            "Delay of the event loop",
            "How late the loop was, measured four times a second: everything is late by as much, "
            "heartbeats too. Red: alert CoordinatorLoopBlocked.",
            {
                **two_quantiles("coordinator_event_loop_delay_seconds"),
                "last, {{instance}}": total("coordinator_event_loop_lag_seconds", by="instance"),
            },
            unit="s",
            thresholds=(0.05, 0.1),
        ),
        Panel(
            "Pauses for garbage collection, 99 %",
            "By generation; nothing else happens meanwhile.",
            {
                "generation {{generation}}": quantile(
                    0.99, "coordinator_gc_pause_seconds", by="generation"
                )
            },
            unit="s",
            thresholds=(0.05, 0.1),
        ),
        Panel(
            "Garbage collections a second",
            "By generation, of Python.",
            {"generation {{generation}}": rate("python_gc_collections_total", by="generation")},
            unit="ops",
        ),
        Panel(
            "Python objects",
            "Memory blocks that Python has allocated, about one per object. If it grows and the "
            "number of members does not, that is a leak.",
            by_node("coordinator_allocated_blocks"),
        ),
        Panel(
            "Uptime",
            "Time since the process started; a fall to zero is a restart.",
            {"{{instance}}": f"time() - {total('process_start_time_seconds', by='instance')}"},
            unit="s",
        ),
        Panel(
            "Time without reading calls",
            "Share of the time in which the node could not read calls; sessions of members are "
            "extended by it.",
            rate_by_node("coordinator_paused_seconds_total"),
            unit="percentunit",
            thresholds=(0.01, 0.1),
        ),
    ),
)

CALLS = Row(
    "Calls",
    (
        Panel(
            "Calls a second, by method",
            "Answered and refused calls. A batch of heartbeats is one call.",
            {"{{method}}": rate("coordinator_grpc_calls_total", by="method")},
            unit="reqps",
        ),
        LATENCY,
        Panel(
            "Latency of calls that wait for others, 90 %",
            "JoinGroup and SyncGroup are parked until the group's other members have come, Fetch "
            "until the leader of a shard has a new record.",
            {
                "{{method}}": quantile(
                    0.9, "coordinator_grpc_call_seconds", f"method=~{PARKED}", by="method"
                )
            },
            unit="s",
        ),
        REFUSED,
        DROPPED,
        Panel(
            "Refusals by security, a second",
            "Calls and pages without a valid credential, or that no rule allows.",
            {"{{reason}}": rate("coordinator_security_refusals_total", by="reason")},
            unit="reqps",
            thresholds=(1, 10),
        ),
        Panel(
            "Age of the oldest queued call",
            "Above a second the node does not keep up, and counts nobody's silence. Red: alert "
            "CoordinatorQueueOld.",
            by_node("coordinator_queue_age_seconds"),
            unit="s",
            thresholds=(0.5, 1),
        ),
        Panel(
            "Queued calls, by kind",
            "Calls that wait for their caller's turn; not_taken_up are those still in gRPC's "
            "queues, an estimate.",
            {"{{kind}}": total("coordinator_queued_calls", by="kind")},
        ),
        Panel(
            "Parked calls",
            "Joins and syncs that wait for their group.",
            {"{{kind}}": total("coordinator_parked_calls", by="kind")},
        ),
        Panel(
            "Heartbeats a second",
            "Alone or in batches.",
            rate_by_node("coordinator_heartbeats_total"),
            unit="reqps",
            width=12,
        ),
        Panel(
            "Time to answer a heartbeat",
            "From a parsed request to its response, without gRPC; one in 64 is measured.",
            two_quantiles("coordinator_heartbeat_seconds"),
            unit="s",
            width=12,
            thresholds=(0.001, 0.01),
        ),
    ),
)

LOG = Row(
    "Log",
    (
        Panel(
            "Time until an entry is durable",
            "From handing it to the log. Red: alert CoordinatorLogSlow.",
            two_quantiles("coordinator_append_seconds"),
            unit="s",
            thresholds=(0.1, 0.25),
        ),
        Panel(
            "Records per entry, mean",
            "The busier, the larger: records gather while the entry before is under way.",
            {"{{instance}}": mean("coordinator_append_records")},
        ),
        Panel(
            "Entries under way",
            "Writes whose append has not ended. Above zero for a minute: alert "
            "CoordinatorWritesHang.",
            by_node("coordinator_pending_appends"),
        ),
        Panel(
            "Time of a write of SQLite",
            "Until the disk has it; one write carries the entries of all shards that were waiting.",
            two_quantiles("coordinator_flush_seconds"),
            unit="s",
            thresholds=(0.1, 0.25),
            none="this node writes to a shared store",
            width=12,
        ),
        Panel(
            "Entries per write of SQLite, mean",
            "Group commit: above 1, several shards share a write.",
            {"{{instance}}": mean("coordinator_flush_appends")},
            none="this node writes to a shared store",
            width=12,
        ),
        Panel(
            "Records that wait for replicas",
            "Records that are in the log, and not yet at enough in-sync replicas.",
            by_node("coordinator_high_watermark_lag_records"),
            width=12,
        ),
        Panel(
            "Partitions whose offsets expire, a second",
            "Offsets of groups that were empty for longer than their retention.",
            rate_by_node("coordinator_offset_expirations_total"),
            unit="ops",
            width=12,
        ),
    ),
)

TIMERS = Row(
    "Timers and purgatories",
    (
        Panel(
            "Pending timers",
            "Timers in the timing wheels: about one per member, and one per parked operation.",
            by_node("coordinator_timers_pending"),
        ),
        Panel(
            "Lateness of timers",
            "How late the timers that ran last were, of the slowest shard.",
            by_node("coordinator_timer_lag_seconds"),
            unit="s",
            thresholds=(0.1, 1),
        ),
        Panel(
            "Time in a purgatory, 90 %",
            "Wait of operations that have ended. Sessions are not counted: theirs end with the "
            "session.",
            {"{{purgatory}}": quantile(0.9, "coordinator_purgatory_wait_seconds", by="purgatory")},
            unit="s",
        ),
        Panel(
            "Watched operations",
            "Entries in the watch lists, by purgatory.",
            {"{{purgatory}}": total("coordinator_purgatory_watched", by="purgatory")},
            width=12,
        ),
        Panel(
            "Operations with a timer",
            "By purgatory.",
            {"{{purgatory}}": total("coordinator_purgatory_delayed", by="purgatory")},
            width=12,
        ),
        Panel(
            "Operations that timed out, a second",
            "By purgatory: joins whose members did not all come, syncs without an assignment. "
            "Fetches of standbys time out whenever there is nothing new.",
            {"{{purgatory}}": rate("coordinator_purgatory_expired_total", by="purgatory")},
            unit="ops",
            width=12,
        ),
        Panel(
            "Entries purged a second",
            "Watch-list entries of operations that had ended, by purgatory.",
            {"{{purgatory}}": rate("coordinator_purgatory_purged_total", by="purgatory")},
            unit="ops",
            width=12,
        ),
    ),
)

CLUSTER = Row(
    "Cluster and security",
    (
        Panel(
            "Shards by state",
            "Leading, loading and following shards of the chosen nodes.",
            {"{{state}}": total("coordinator_shards", by="state")},
            stacked=True,
        ),
        Panel(
            "Controllers",
            "1 on the node that decides who leads which shard. Sum 0 with a shared store: alert "
            "CoordinatorNoController.",
            by_node("coordinator_is_controller"),
            max=1,
        ),
        Panel(
            "Time without a controller",
            "Since the node last acted as the controller or saw a live one; 0 without a shared "
            "store. Above the session timeout on all nodes: alert CoordinatorUndecided.",
            {
                **by_node("coordinator_undecided_seconds"),
                "session timeout": f"max(coordinator_store_session_seconds{{{ON}}})",
            },
            unit="s",
        ),
        Panel(
            "Days until the certificate expires",
            "Of the certificate in use. Below 14 days: alert CoordinatorCertificateExpires.",
            {
                "{{instance}}": "(min by (instance) "
                f"(coordinator_certificate_expiry_timestamp_seconds{{{ON}}} < +Inf) - time()) "
                "/ 86400"
            },
            none="no TLS",
            width=12,
        ),
        Panel(
            "Failed reloads of certificates, tokens and rules",
            "In an hour; the old files stay in force. Alert: CoordinatorSecurityNotReloaded.",
            {
                "{{instance}}": "sum by (instance) "
                f"(increase(coordinator_security_reload_failures_total{{{ON}}}[1h]))"
            },
            width=12,
            thresholds=(None, 1),
        ),
    ),
)

INTERNALS = Dashboard(
    "coordinator-internals",
    "Consumer groups: inside of nodes",
    "Process, calls, log, timers and cluster of the chosen nodes.",
    (PROCESS, CALLS, LOG, TIMERS, CLUSTER),
)
