"""Dashboard of all nodes: groups and members, rebalances, nodes."""

from __future__ import annotations

from model import JOB, ON, Dashboard, Panel, Row, quantile, rate, total
from shared import CPU, DROPPED, LATENCY, MEMORY, REFUSED

TO_GROUP = (
    "Show this group",
    "/d/coordinator-group?var-group=${__field.labels.group}&${__url_time_range}&${job:queryparam}",
)

NOW = Row(
    "Now",
    (
        Panel(
            "Nodes up",
            "Nodes that Prometheus can scrape.",
            {"": total("up")},
            kind="stat",
            width=4,
        ),
        Panel(
            "Nodes down",
            "Nodes that Prometheus cannot scrape; others take their shards over if they share a "
            "store. Alert: CoordinatorDown.",
            {"": f"sum(1 - up{{{ON}}})"},
            kind="stat",
            width=4,
            thresholds=(None, 1),
        ),
        Panel(
            "Shards without a leader",
            "Groups of these shards are not served. Of all nodes of the chosen jobs; each cluster "
            "is to be a job of its own. Alert: CoordinatorShardsWithoutLeader.",
            {
                "": f"sum(max by (job) (coordinator_shards_configured{{{JOB}}}) - "
                f'sum by (job) (coordinator_shards{{{JOB},state="leading"}}))'
            },
            kind="stat",
            width=4,
            thresholds=(None, 1),
        ),
        Panel(
            "Groups",
            "Groups of the chosen nodes, with and without members.",
            {"": total("coordinator_groups", 'state!="dead"')},
            kind="stat",
            width=4,
        ),
        Panel(
            "Members",
            "Members of all groups of the chosen nodes.",
            {"": total("coordinator_members")},
            kind="stat",
            width=4,
        ),
        Panel(
            "Groups in a rebalance",
            "Their members wait for each other, or for the assignment. "
            "`coordinator who-blocks GROUP` names those that are waited for.",
            {"": total("coordinator_groups", 'state=~".*_rebalance"')},
            kind="stat",
            width=4,
            thresholds=(10, 100),
        ),
    ),
)

REBALANCES = Row(
    "Rebalances",
    (
        Panel(
            "Rebalances by cause",
            "Rebalances that begin in a minute. `coordinator explain GROUP` tells each in "
            "sentences. Alert: CoordinatorRebalancesOften.",
            {"{{cause}}": f"60 * {rate('coordinator_rebalances_total', by='cause')}"},
            unit="opm",
            width=12,
            legend="right",
        ),
        Panel(
            "Members removed, by cause",
            "Members that were removed in a minute without having asked to leave. Alert: "
            "CoordinatorMembersLost.",
            {"{{cause}}": f"60 * {rate('coordinator_member_evictions_total', by='cause')}"},
            unit="opm",
            width=12,
            legend="right",
        ),
        Panel(
            "Rebalances by outcome",
            "Rebalances that end in a minute. Interrupted: the next one began before the "
            "assignment was durable. Failed: it could not be stored, alert CoordinatorCannotWrite.",
            {"{{outcome}}": f"60 * {rate('coordinator_rebalance_seconds_count', by='outcome')}"},
            unit="opm",
        ),
        Panel(
            "Duration of rebalances",
            "From the cause until the assignment is durable, or the next rebalance begins. Red: "
            "alert CoordinatorRebalancesSlow.",
            {
                "median": quantile(0.5, "coordinator_rebalance_seconds"),
                "90 %": quantile(0.9, "coordinator_rebalance_seconds"),
                "99 %": quantile(0.99, "coordinator_rebalance_seconds"),
            },
            unit="s",
            thresholds=(10, 30),
        ),
        Panel(
            "Duration by phase, 90 %",
            "A long join phase: a member comes late. A long sync phase: the leader computes for "
            "long. A long durable phase: the log is slow.",
            {"{{phase}}": quantile(0.9, "coordinator_rebalance_phase_seconds", by="phase")},
            unit="s",
        ),
        Panel(
            "Time that members wait for others, 90 %",
            "How long members of a rebalance are parked, by phase; with an eager assignor they do "
            "no work meanwhile.",
            {"{{phase}}": quantile(0.9, "coordinator_member_blocked_seconds", by="phase")},
            unit="s",
        ),
        Panel(
            "Partitions that change owners",
            "Partitions that move in a minute, of groups whose assignments can be decoded.",
            {"moved": f"60 * {rate('coordinator_partitions_moved_total')}"},
            unit="opm",
        ),
        Panel(
            "Partitions that nobody works on, average",
            "Number of partitions that stand idle at any time because of rebalances.",
            {"partitions": rate("coordinator_partitions_unowned_seconds_total")},
        ),
        Panel(
            "Lag of groups, top 10",
            "Log end offset minus committed offset, of groups that `--metrics-groups` lists and "
            "whose members report the ends of their logs. A click on a series leads to its group.",
            {"{{group}}": f"topk(10, {total('coordinator_group_lag', by='group')})"},
            none="no listed group reports the ends of its logs",
            link=TO_GROUP,
            width=24,
        ),
    ),
)

NODES = Row(
    "Nodes",
    (
        CPU,
        MEMORY,
        LATENCY,
        Panel(
            "Groups by state",
            "Stable groups work; an empty one has offsets and no members.",
            {"{{state}}": total("coordinator_groups", by="state")},
            stacked=True,
        ),
        Panel(
            "Shards led by node",
            "Together all shards that are configured.",
            {"{{instance}}": total("coordinator_shards", 'state="leading"', by="instance")},
            stacked=True,
        ),
        Panel(
            "Partitions committed a second",
            "Committed offsets, by node.",
            {"{{instance}}": rate("coordinator_offset_commits_total", by="instance")},
            unit="ops",
        ),
        REFUSED,
        DROPPED,
        Panel(
            "Controller epoch",
            "Each step is another node that decides who leads which shard; 0 without a shared "
            "store.",
            {"epoch": f"max(coordinator_controller_epoch{{{ON}}})"},
        ),
    ),
)

SESSIONS = Row(
    "Session groups",
    (
        Panel(
            "Members of session groups",
            "With a stream, and without: those keep what they have until their lease ends.",
            {
                "members": total("coordinator_session_members"),
                "without a stream": total("coordinator_session_suspects"),
            },
        ),
        Panel(
            "Partitions by state",
            "Those that are held are worked on; the others change hands, are reserved, or have no "
            "holder. Alert: CoordinatorSessionPartitionsFree.",
            {"{{state}}": total("coordinator_session_partitions", by="state")},
            stacked=True,
        ),
        Panel(
            "Hand-offs that ended",
            "By how they ended. `forced`: the holder did not release in time. "
            "Alert: CoordinatorSessionHandoffsForced.",
            {"{{outcome}}": rate("coordinator_session_handoffs_total", by="outcome")},
            unit="ops",
        ),
        Panel(
            "Nobody worked on a partition",
            "Of partitions that changed hands: what users of the group feel.",
            {
                "p50": quantile(0.5, "coordinator_session_partition_unowned_seconds"),
                "p99": quantile(0.99, "coordinator_session_partition_unowned_seconds"),
            },
            unit="s",
            thresholds=(10, 60),
        ),
        Panel(
            "Phases of hand-offs, p99",
            "A long drain is a member that is slow to finish; a long prepare one that warms up.",
            {"{{phase}}": quantile(0.99, "coordinator_session_handoff_phase_seconds", by="phase")},
            unit="s",
        ),
        Panel(
            "Lost members and fenced commits",
            "Leases that ran out, and partitions whose commit came from a member that does not "
            "hold them. Alert: CoordinatorSessionLeasesExpire.",
            {
                "leases": rate("coordinator_session_lease_expirations_total"),
                "fenced commits": rate("coordinator_session_fenced_commits_total"),
            },
            unit="ops",
            thresholds=(0.1, 1),
        ),
    ),
)

FLEET = Dashboard(
    "coordinator-fleet",
    "Consumer groups: all nodes",
    "Groups, members and rebalances of all nodes, and how the nodes are.",
    (NOW, REBALANCES, SESSIONS, NODES),
)
