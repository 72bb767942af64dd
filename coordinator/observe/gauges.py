"""Gauges, read at each scrape from plain numbers that the node keeps anyway."""

from __future__ import annotations

import sys
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Protocol

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from coordinator.observe.labels import snake_case
from coordinator.shard.stats import (
    BOUNDS_MS,
    PARTITION_STATES,
    ClusterStats,
    SessionStats,
    ShardStats,
    WaitStats,
)

STATES = (
    "empty", "preparing_rebalance", "completing_rebalance", "assigning", "reconciling", "stable",
    "dead",
)  # fmt: skip


class Pauses(Protocol):
    """Histogram of garbage collections per generation: one count per bound, and one above all."""

    @property
    def bounds_s(self) -> Sequence[float]: ...
    @property
    def counts(self) -> Sequence[Sequence[int]]: ...
    @property
    def total_s(self) -> Sequence[float]: ...


class OnScrape(Collector):
    """Collects by calling a function at each scrape."""

    def __init__(self, metrics: Callable[[], Iterable[Metric]]) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Metric]:
        return []  # Registering must not collect: there are no shards yet.

    def collect(self) -> Iterable[Metric]:
        return self._metrics()


def shard_metrics(
    shards: Sequence[ShardStats], loop_lag_s: float, loop_lag_p99_s: float
) -> Iterable[Metric]:
    """Sums over all shards of the node."""
    groups: Tally[str] = Tally()
    for shard in shards:
        groups.update({snake_case(state): count for state, count in shard.groups.items()})
    yield gauge(
        "coordinator_groups",
        "Groups by state.",
        "state",
        {state: groups[state] for state in STATES},
    )
    yield GaugeMetricFamily(
        "coordinator_members", "Members of all groups.", value=sum(s.members for s in shards)
    )
    yield gauge(
        "coordinator_parked_calls",
        "Parked calls, by kind.",
        "kind",
        {
            "join": sum(s.parked_joins for s in shards),
            "sync": sum(s.parked_syncs for s in shards),
        },
    )
    yield GaugeMetricFamily(
        "coordinator_timers_pending",
        "Timers in the timing wheels.",
        value=sum(s.timers_pending for s in shards),
    )
    for name, text, tallies in (
        ("watched", "Entries in the watch lists", [s.watched for s in shards]),
        ("delayed", "Operations with a timer", [s.delayed for s in shards]),
    ):
        yield gauge(
            f"coordinator_purgatory_{name}",
            f"{text}, by purgatory.",
            "purgatory",
            _sum(tallies),
        )
    purged = CounterMetricFamily(
        "coordinator_purgatory_purged",
        "Watch-list entries dropped by purges.",
        labels=["purgatory"],
    )
    for label, value in _sum([s.purged for s in shards]).items():
        purged.add_metric([label], value)
    yield purged
    yield from _waits([s.waits for s in shards])
    yield GaugeMetricFamily(
        "coordinator_timer_lag_seconds",
        "Lateness of the timers that ran last, of the slowest shard.",
        value=max((s.timer_lag_ms for s in shards), default=0) / 1000,
    )
    yield GaugeMetricFamily(
        "coordinator_pending_appends",
        "Writes whose append has not ended.",
        value=sum(s.pending_appends for s in shards),
    )
    yield GaugeMetricFamily(
        "coordinator_high_watermark_lag_records",
        "Records that are in the log but not yet on enough in-sync replicas.",
        value=sum(s.end_offset - s.high_watermark for s in shards),
    )
    yield from session_gauges([s.sessions for s in shards], loop_lag_p99_s)
    yield GaugeMetricFamily(
        "coordinator_event_loop_lag_seconds",
        "Lag of the event loop when last measured.",
        value=loop_lag_s,
    )


def session_gauges(shards: Sequence[SessionStats], loop_lag_p99_s: float) -> Iterable[Metric]:
    """Sums over all shards of the node, and how its lag compares with their leases."""
    leases_ms = [stats.shortest_lease_ms for stats in shards if stats.shortest_lease_ms]
    yield GaugeMetricFamily(
        "coordinator_session_lag_ratio",
        "Lag of the event loop (99th percentile of the last minute), as a part of the shortest "
        "lease told to a member of a session group; 0: there is none.",
        value=1_000 * loop_lag_p99_s / min(leases_ms) if leases_ms else 0.0,
    )
    yield GaugeMetricFamily(
        "coordinator_session_members",
        "Members of session groups.",
        value=sum(stats.members for stats in shards),
    )
    yield GaugeMetricFamily(
        "coordinator_session_suspects",
        "Members of session groups without a stream.",
        value=sum(stats.suspects for stats in shards),
    )
    yield GaugeMetricFamily(
        "coordinator_session_waiting",
        "Processes that wait for the name of a member which may be alive.",
        value=sum(stats.waiting for stats in shards),
    )
    total: Tally[str] = Tally()
    for stats in shards:
        total.update(stats.partitions)
    yield gauge(
        "coordinator_session_partitions",
        "Partitions of session groups, by state.",
        "state",
        {state: total[state] for state in PARTITION_STATES},
    )


def cluster_metrics(cluster: ClusterStats) -> Iterable[Metric]:
    """Gauges of this node in its cluster."""
    yield gauge("coordinator_shards", "Shards of this node, by state.", "state", cluster.shards)
    yield GaugeMetricFamily(
        "coordinator_shards_configured",
        "Number of shards in the whole cluster.",
        value=cluster.configured_shards,
    )
    yield GaugeMetricFamily(
        "coordinator_controller_epoch",
        "The newest controller epoch that this node knows; 0 without a cluster.",
        value=cluster.controller_epoch,
    )
    yield GaugeMetricFamily(
        "coordinator_is_controller",
        "1 on the controller, if it has acted within a session.",
        value=cluster.is_controller,
    )
    yield GaugeMetricFamily(
        "coordinator_undecided_seconds",
        "Time since this node last acted as the controller or last saw a live one; "
        "0 without a cluster.",
        value=cluster.undecided_s,
    )
    yield GaugeMetricFamily(
        "coordinator_store_session_seconds",
        "Session timeout of this node as granted by the shared store; 0 without a cluster.",
        value=cluster.session_timeout_s,
    )
    yield GaugeMetricFamily(
        "coordinator_store_lineage",
        "Histories of the shared store, counted from 1: one more, and it has lost commits; "
        "0 in stores that lose none.",
        value=cluster.store_lineage,
    )


def memory_metrics() -> Iterable[Metric]:
    """Memory of Python objects."""
    yield GaugeMetricFamily(
        "coordinator_allocated_blocks",
        "Memory blocks that Python has allocated: about one per object.",
        value=sys.getallocatedblocks(),
    )


def pause_metrics(pauses: Pauses) -> Iterable[Metric]:
    """Pauses of the garbage collector."""
    family = HistogramMetricFamily(
        "coordinator_gc_pause_seconds",
        "Pauses for garbage collection, by generation.",
        labels=["generation"],
    )
    for generation, counts in enumerate(pauses.counts):
        counted = buckets(pauses.bounds_s, counts)
        family.add_metric([str(generation)], counted, pauses.total_s[generation])
    yield family


def buckets(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Buckets of a histogram family, from one count per bound and one above all."""
    return list(zip([*map(str, bounds), "+Inf"], accumulate(counts), strict=True))


def gauge(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family


def _waits(shards: Sequence[Mapping[str, WaitStats]]) -> Iterable[Metric]:
    """Histogram of waits, and counter of those that timed out, summed over shards."""
    waits = HistogramMetricFamily(
        "coordinator_purgatory_wait_seconds",
        "Wait of operations that have ended, by purgatory.",
        labels=["purgatory"],
    )
    expired = CounterMetricFamily(
        "coordinator_purgatory_expired",
        "Operations that timed out, by purgatory.",
        labels=["purgatory"],
    )
    for name in sorted({name for shard in shards for name in shard}):
        stats = [shard[name] for shard in shards if name in shard]
        counts = list(map(sum, zip(*(s.counts for s in stats), strict=True)))
        total_s = sum(s.total_ms for s in stats) / 1000
        bounds_s = [bound / 1000 for bound in BOUNDS_MS]
        waits.add_metric([name], buckets(bounds_s, counts), total_s)
        expired.add_metric([name], sum(s.expired for s in stats))
    yield from (waits, expired)


def _sum(tallies: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Tally[str] = Tally()
    for tally in tallies:
        total.update(tally)
    return dict(total)
