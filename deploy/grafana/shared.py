"""Panels that both the dashboard of all nodes and that of their inside show."""

from __future__ import annotations

from model import Panel, quantile, rate, total

PARKED = '"JoinGroup|SyncGroup|Fetch"'
"""RPCs that wait for other members or nodes by design."""

CPU = Panel(
    "CPU by node",
    "Share of one core. A node's event loop is one thread: near 100 % calls wait, and more nodes "
    "(`--nodes N`) help.",
    {"{{instance}}": rate("process_cpu_seconds_total", by="instance")},
    unit="percentunit",
    thresholds=(0.7, 0.9),
)
MEMORY = Panel(
    "Memory by node",
    "Resident memory of the process. Beyond `max_memory_mib` the node takes no new members.",
    {"{{instance}}": total("process_resident_memory_bytes", by="instance")},
    unit="bytes",
)
LATENCY = Panel(
    "Latency of calls that are answered at once, 99 %",
    "By method, from taking up a call until its answer; of heartbeats one in 64 is measured. "
    "JoinGroup, SyncGroup and Fetch are not here: they wait for others by design.",
    {
        "{{method}}": quantile(
            0.99, "coordinator_grpc_call_seconds", f"method!~{PARKED}", by="method"
        )
    },
    unit="s",
    thresholds=(0.25, 1),
)
REFUSED = Panel(
    "Calls refused a second",
    "Calls whose gRPC status is not OK, by method and status.",
    {"{{method}} {{code}}": rate("coordinator_grpc_calls_total", 'code!="OK"', by="method, code")},
    unit="reqps",
    none="no refused calls",
)
DROPPED = Panel(
    "Calls that were not served",
    "Dropped from a queue a second, by reason; not_taken_up are those that gRPC dropped. The alert "
    "CoordinatorQueueOld comes before.",
    {"{{reason}}": rate("coordinator_dropped_calls_total", by="reason")},
    unit="reqps",
    thresholds=(0.1, 10),
)
