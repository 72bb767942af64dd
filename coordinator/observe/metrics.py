"""Prometheus metrics.

Counters follow events. Gauges are read at each scrape, from plain numbers that the shards keep
anyway, so that the heartbeat path pays nothing. Member ids are never labels, and group ids only
where the user lists them (`metrics_groups`): their cardinality is unbounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from coordinator import __version__
from coordinator.core.values.events import (
    RETURNS,
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
    OnScrape,
    Pauses,
    buckets,
    cluster_metrics,
    memory_metrics,
    pause_metrics,
    shard_metrics,
)
from coordinator.observe.kafka_metrics import KafkaStats, kafka_metrics
from coordinator.observe.labels import snake_case
from coordinator.observe.listed_groups import GroupFilter, GroupStatsSource, ListedGroups
from coordinator.observe.overload_gauges import OverloadStats, overload_metrics
from coordinator.observe.rebalance_metrics import RebalanceMetrics
from coordinator.observe.security_gauges import Secured, security_metrics
from coordinator.observe.session_metrics import SessionMetrics
from coordinator.shard.stats import ClusterStats, ShardStats

HEARTBEATS_S = (0.000005, 0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.01, 0.1)


class Metrics:
    """All metrics of a node.

    Args:
        stats: numbers of each shard, called at each scrape.
        loop_lag_s: lag of the event loop when last measured, in seconds.
        loop_lag_p99_s: 99th percentile of it in the last minute.
        calls: answered calls by (request, gRPC status).
        heartbeats: number of answered heartbeats, alone or in batches.
        latencies: of calls, by request.
        cluster: this node's shards and controller epoch; None: no such series.
        pauses: pauses of the garbage collector; None: no such series.
        overload: queues and dropped calls; None: no such series.
        kafka: connections and requests of Kafka's clients; None: no such series.
        security: certificate, refusals, reloads; None: no such series.
        groups: patterns of the group ids that get series of their own.
        group_stats: numbers of the groups that a predicate selects, called at each scrape.
    """

    def __init__(
        self,
        *,
        stats: Callable[[], Iterable[ShardStats]],
        loop_lag_s: Callable[[], float],
        calls: Callable[[], Mapping[tuple[str, str], int]],
        loop_lag_p99_s: Callable[[], float] = lambda: 0.0,
        heartbeats: Callable[[], int] = lambda: 0,
        latencies: Callable[[], Mapping[str, LatencyCounts]] = dict,
        cluster: Callable[[], ClusterStats] | None = None,
        pauses: Pauses | None = None,
        overload: Callable[[], OverloadStats] | None = None,
        kafka: Callable[[], KafkaStats] | None = None,
        security: Secured | None = None,
        groups: Sequence[str] = (),
        group_stats: GroupStatsSource = lambda _: (),
    ) -> None:
        # A switch of the whole process. The series would be a fifth of the page, and say when this
        # process started, which process_start_time_seconds says.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        counter = partial(Counter, registry=self.registry)
        self._listed_groups = ListedGroups(GroupFilter(groups), group_stats) if groups else None
        self._rebalances = counter(
            "coordinator_rebalances", "Rebalances that were started, by cause.", ["cause"]
        )
        self._completed = counter(
            "coordinator_rebalances_completed", "Rebalances that ended, by outcome.", ["outcome"]
        )
        self._evictions = counter(
            "coordinator_member_evictions",
            "Members that were removed without having asked to leave, by cause.",
            ["cause"],
        )
        self._commits = counter(
            "coordinator_offset_commits", "Partitions whose offset was committed."
        )
        self._expirations = counter(
            "coordinator_offset_expirations", "Partitions whose offset has expired."
        )
        self._rebalance_metrics = RebalanceMetrics(self.registry)
        self._session_metrics = SessionMetrics(self.registry)
        self.log = LogMetrics(self.registry)
        """Histograms of the log, to which its writers report."""
        self._heartbeats = Histogram(
            "coordinator_heartbeat_seconds",
            "Time from a parsed heartbeat request to its response; one in 64 is measured.",
            buckets=HEARTBEATS_S,
            registry=self.registry,
        )
        self._begin_series()
        Info("coordinator_build", "The running version.", registry=self.registry).info(
            {"version": __version__}
        )
        on_scrape = [
            lambda: shard_metrics(list(stats()), loop_lag_s(), loop_lag_p99_s()),
            memory_metrics,
            lambda: call_metrics(calls(), heartbeats(), latencies()),
        ]
        if cluster is not None:
            on_scrape.append(lambda: cluster_metrics(cluster()))
        if pauses is not None:
            on_scrape.append(lambda: pause_metrics(pauses))
        if overload is not None:
            on_scrape.append(lambda: overload_metrics(overload()))
        if kafka is not None:
            on_scrape.append(lambda: kafka_metrics(kafka()))
        if security is not None:
            on_scrape.append(lambda: security_metrics(security))
        for metrics in on_scrape:
            self.registry.register(OnScrape(metrics))
        if self._listed_groups is not None:
            self.registry.register(self._listed_groups)

    def _begin_series(self) -> None:
        """Begin series at 0: one that appears with its first event hides that event from rate()."""
        for cause in RebalanceCause:
            if cause in RETURNS:
                continue
            self._rebalances.labels(snake_case(cause.value))
        for eviction in EvictionCause:
            self._evictions.labels(snake_case(eviction.value))
        for outcome in ("completed", "failed"):
            self._completed.labels(outcome)

    def __call__(self, events: Sequence[Event], now_ms: int) -> None:
        """Count the events of one step of a shard."""
        for event in events:
            match event:
                case RebalanceStarted():
                    self._rebalances.labels(snake_case(event.cause.value)).inc()
                case RebalanceCompleted():
                    self._completed.labels("completed").inc()
                case RebalanceFailed():
                    self._completed.labels("failed").inc()
                case MemberEvicted():
                    self._evictions.labels(snake_case(event.cause.value)).inc()
                case RebalanceJournaled():
                    self._rebalance_metrics.observe(event.record)
                    if self._listed_groups is not None:
                        self._listed_groups.observe(event.record)
                case OffsetsCommittedEvent():
                    self._commits.inc(event.partitions)
                case OffsetsExpired():
                    self._expirations.inc(event.partitions)
                case _:
                    self._session_metrics.observe(event)

    def heartbeat(self, seconds: float) -> None:
        """Count a heartbeat that was timed, in seconds."""
        self._heartbeats.observe(seconds)


APPENDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)


class LogMetrics:
    """Histograms of appends and writes; the shard runner and the SQLite writer report to them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._appends = Histogram(
            "coordinator_append_seconds",
            "Time from handing an entry to the log until it is durable.",
            buckets=APPENDS_S,
            registry=registry,
        )
        self._append_records = Histogram(
            "coordinator_append_records",
            "Records per log entry: those written while the entry before was under way.",
            buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000),
            registry=registry,
        )
        self._flushes = Histogram(
            "coordinator_flush_seconds",
            "Time of a SQLite write including the sync; it carries the appends of all shards.",
            buckets=APPENDS_S,
            registry=registry,
        )
        self._flushed_appends = Histogram(
            "coordinator_flush_appends",
            "Appends per SQLite write (group commit).",
            buckets=(1, 2, 5, 10, 20, 50, 100),
            registry=registry,
        )

    def appended(self, seconds: float, records: int) -> None:
        """Count an entry that is durable.

        Args:
            seconds: from handing it to the log.
        """
        self._appends.observe(seconds)
        self._append_records.observe(records)

    def flushed(self, seconds: float, appends: int) -> None:
        """Count a write that SQLite has synced. Called from the thread that writes."""
        self._flushes.observe(seconds)
        self._flushed_appends.observe(appends)


class LatencyCounts(Protocol):
    """Histogram of calls: one count per bound, and one above all."""

    @property
    def bounds_s(self) -> Sequence[float]: ...
    @property
    def counts(self) -> Sequence[int]: ...
    @property
    def total_s(self) -> float: ...


def call_metrics(
    answered: Mapping[tuple[str, str], int], heartbeats: int, latencies: Mapping[str, LatencyCounts]
) -> Iterable[Metric]:
    """Metrics of calls of all transports. The event loop writes them while a scrape reads them."""
    calls = CounterMetricFamily(
        "coordinator_grpc_calls",
        "Answered calls, by method and status; those of Kafka clients too.",
        labels=["method", "code"],
    )
    for labels, count in dict(answered).items():
        calls.add_metric(list(labels), count)
    yield calls
    yield CounterMetricFamily(
        "coordinator_heartbeats",
        "Answered heartbeats, alone or in batches.",
        value=heartbeats,
    )
    seconds = HistogramMetricFamily(
        "coordinator_grpc_call_seconds",
        "Time from taking up a call until it is answered or refused, or its client gives up, by "
        "method. JoinGroup and SyncGroup wait for the other members of their group, Fetch for the "
        "next record. Of heartbeats and batches of them, one in 64 is measured, also on a stream; "
        "of other streams none.",
        labels=["method"],
    )
    for method, latency in dict(latencies).items():
        counted = buckets(latency.bounds_s, tuple(latency.counts))
        seconds.add_metric([method], counted, latency.total_s)
    yield seconds
