"""Prometheus metrics.

Counters follow events. Gauges are read when Prometheus asks, from plain numbers that
the shards keep anyway, so that the heartbeat path pays nothing. No member is ever a label, and
no group but those on a list: their number has no bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, Info

from coordinator import __version__
from coordinator.core.events import (
    Event,
    EvictionCause,
    MemberEvicted,
    OffsetsCommittedEvent,
    OffsetsExpired,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceFailed,
    RebalanceJournaled,
    RebalanceStarted,
)
from coordinator.observe.gauges import (
    CallCounters,
    Cluster,
    ClusterGauges,
    MemoryGauges,
    PauseHistogram,
    Pauses,
    ShardGauges,
    Stats,
)
from coordinator.observe.listed_groups import GroupStats, Listed, ListedGroups
from coordinator.observe.log_metrics import LogMetrics
from coordinator.observe.overload_gauges import OverloadGauges, OverloadStats
from coordinator.observe.rebalance_metrics import RebalanceMetrics
from coordinator.observe.security_gauges import Secured, SecurityGauges

HEARTBEATS_S = (0.000005, 0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.01, 0.1)


class Metrics:
    """All metrics of a node.

    Args:
        stats: the numbers of each shard, asked for at each scrape.
        loop_lag_s: how late the event loop was when last measured, in seconds.
        calls: answered calls by (request, gRPC status).
        heartbeats: how many have been answered, alone or in batches.
        cluster, pauses: this node's place, and the garbage collector's; None: it is not told.
        overload: how well the node keeps up; None: it is not told.
        security: certificate, refusals, reloads; None: they are not told.
        groups: patterns of the groups with series of their own. group_stats: their numbers.
    """

    def __init__(
        self,
        *,
        stats: Callable[[], Iterable[Stats]],
        loop_lag_s: Callable[[], float],
        calls: Callable[[], Mapping[tuple[str, str], int]],
        heartbeats: Callable[[], int] = lambda: 0,
        cluster: Callable[[], Cluster] | None = None,
        pauses: Pauses | None = None,
        overload: Callable[[], OverloadStats] | None = None,
        security: Secured | None = None,
        groups: Sequence[str] = (),
        group_stats: GroupStats = lambda _: (),
    ) -> None:
        self.registry = CollectorRegistry()
        self._listed_groups = ListedGroups(Listed(groups), group_stats) if groups else None
        self._rebalances = Counter(
            "coordinator_rebalances",
            "Rebalances that were started, by cause.",
            ["cause"],
            registry=self.registry,
        )
        self._completed = Counter(
            "coordinator_rebalances_completed",
            "Rebalances that ended, by outcome.",
            ["outcome"],
            registry=self.registry,
        )
        self._evictions = Counter(
            "coordinator_member_evictions",
            "Members removed that did not ask for it, by cause.",
            ["cause"],
            registry=self.registry,
        )
        self._commits = Counter(
            "coordinator_offset_commits",
            "Partitions whose offset was committed.",
            registry=self.registry,
        )
        self._expirations = Counter(
            "coordinator_offset_expirations",
            "Partitions whose offset has expired.",
            registry=self.registry,
        )
        self._rebalance_metrics = RebalanceMetrics(self.registry)
        self.log = LogMetrics(self.registry)
        """Told how the log is doing."""
        self._heartbeats = Histogram(
            "coordinator_heartbeat_seconds",
            "A heartbeat from its parsed request to its response; one of 64 is measured.",
            buckets=HEARTBEATS_S,
            registry=self.registry,
        )
        # A series that appears with its first event hides that event from rate().
        for cause in RebalanceCause:
            self._rebalances.labels(cause.value)
        for eviction in EvictionCause:
            self._evictions.labels(eviction.value)
        for outcome in ("completed", "failed"):
            self._completed.labels(outcome)
        Info("coordinator_build", "The running version.", registry=self.registry).info(
            {"version": __version__}
        )
        self.registry.register(ShardGauges(stats, loop_lag_s))
        self.registry.register(MemoryGauges())
        self.registry.register(CallCounters(calls, heartbeats))
        if cluster is not None:
            self.registry.register(ClusterGauges(cluster))
        if pauses is not None:
            self.registry.register(PauseHistogram(pauses))
        if overload is not None:
            self.registry.register(OverloadGauges(overload))
        if security is not None:
            self.registry.register(SecurityGauges(security))
        if self._listed_groups is not None:
            self.registry.register(self._listed_groups)

    def __call__(self, events: Sequence[Event], now_ms: int) -> None:
        for event in events:
            match event:
                case RebalanceStarted():
                    self._rebalances.labels(event.cause.value).inc()
                case RebalanceCompleted():
                    self._completed.labels("completed").inc()
                case RebalanceFailed():
                    self._completed.labels("failed").inc()
                case MemberEvicted():
                    self._evictions.labels(event.cause.value).inc()
                case RebalanceJournaled():
                    self._rebalance_metrics.observe(event.record)
                    if self._listed_groups is not None:
                        self._listed_groups.observe(event.record)
                case OffsetsCommittedEvent():
                    self._commits.inc(event.partitions)
                case OffsetsExpired():
                    self._expirations.inc(event.partitions)
                case _:
                    pass

    def heartbeat(self, seconds: float) -> None:
        """A heartbeat that was timed has been answered."""
        self._heartbeats.observe(seconds)
