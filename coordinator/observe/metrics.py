"""Prometheus metrics.

Counters follow events. Gauges are read when Prometheus asks, from plain numbers that
the shards keep anyway, so that the heartbeat path pays nothing. No member is ever a label, and
no group but those on a list: their number has no bound.
"""

from __future__ import annotations

import fnmatch
import re
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

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
from coordinator.core.records import RebalanceRecord

WAITS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
APPENDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
OUTCOMES = ("completed", "interrupted", "failed")
STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")


class Stats(Protocol):
    """The numbers of one shard."""

    @property
    def groups(self) -> Mapping[str, int]: ...
    @property
    def members(self) -> int: ...
    @property
    def parked_joins(self) -> int: ...
    @property
    def parked_syncs(self) -> int: ...
    @property
    def timers_pending(self) -> int: ...
    @property
    def watched(self) -> Mapping[str, int]: ...
    @property
    def delayed(self) -> Mapping[str, int]: ...
    @property
    def purged(self) -> Mapping[str, int]: ...
    @property
    def pending_appends(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def end_offset(self) -> int: ...


class Cluster(Protocol):
    """This node among others. `shards` by state: leading, loading, following."""

    @property
    def shards(self) -> Mapping[str, int]: ...
    @property
    def configured_shards(self) -> int: ...
    @property
    def controller_epoch(self) -> int: ...
    @property
    def is_controller(self) -> bool: ...


class OneGroup(Protocol):
    """The numbers of one group; offsets by (topic, partition)."""

    @property
    def group_id(self) -> str: ...
    @property
    def members(self) -> int: ...
    @property
    def offsets(self) -> Mapping[tuple[str, int], int]: ...
    @property
    def log_ends(self) -> Mapping[tuple[str, int], int]: ...


GroupStats = Callable[[Callable[[str], bool]], Iterable[OneGroup]]


class Metrics:
    """All metrics of a node.

    Args:
        stats: the numbers of each shard, asked for at each scrape.
        loop_lag_s: how late the event loop was when last measured, in seconds.
        calls: answered calls by (request, gRPC status).
        cluster: this node's place; None: it is not told.
        groups: patterns of the groups with series of their own. group_stats: their numbers.
    """

    def __init__(
        self,
        *,
        stats: Callable[[], Iterable[Stats]],
        loop_lag_s: Callable[[], float],
        calls: Callable[[], Mapping[tuple[str, str], int]],
        cluster: Callable[[], Cluster] | None = None,
        groups: Sequence[str] = (),
        group_stats: GroupStats = lambda _: (),
    ) -> None:
        self.registry = CollectorRegistry()
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
        self._phases = Histogram(
            "coordinator_rebalance_phase_seconds",
            "Length of the phases of completed rebalances.",
            ["phase"],
            buckets=WAITS_S,
            registry=self.registry,
        )
        self._durations = Histogram(
            "coordinator_rebalance_seconds",
            "Length of rebalances, by how they ended.",
            ["outcome"],
            buckets=WAITS_S,
            registry=self.registry,
        )
        self._blocked = Histogram(
            "coordinator_member_blocked_seconds",
            "How long members of completed rebalances waited for others, by what for.",
            ["phase"],
            buckets=WAITS_S,
            registry=self.registry,
        )
        self._moved = Counter(
            "coordinator_partitions_moved",
            "Partitions that changed owners, where assignments can be read.",
            registry=self.registry,
        )
        self._unowned = Counter(
            "coordinator_partitions_unowned_seconds",
            "For how long partitions had no owner during rebalances, summed over partitions.",
            registry=self.registry,
        )
        self._appends = Histogram(
            "coordinator_append_seconds",
            "From handing an entry to the log until it is durable.",
            buckets=APPENDS_S,
            registry=self.registry,
        )
        self._append_records = Histogram(
            "coordinator_append_records",
            "Records of an entry: what was written while the one before was under way.",
            buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000),
            registry=self.registry,
        )
        # A series that appears with its first event hides that event from rate().
        for cause in RebalanceCause:
            self._rebalances.labels(cause.value)
        for eviction in EvictionCause:
            self._evictions.labels(eviction.value)
        for outcome in ("completed", "failed"):
            self._completed.labels(outcome)
        for outcome in OUTCOMES:
            self._durations.labels(outcome)
        for phase in ("join", "sync", "durable"):
            self._phases.labels(phase)
        for phase in ("join", "sync"):
            self._blocked.labels(phase)
        Info("coordinator_build", "The running version.", registry=self.registry).info(
            {"version": __version__}
        )
        self.registry.register(_Gauges(stats, loop_lag_s, calls))
        if cluster is not None:
            self.registry.register(_ClusterGauges(cluster))
        self._listed = Listed(groups)
        if groups:
            self.registry.register(_ListedGroups(self._listed, group_stats))
            # Only of groups on the list: their number has a bound.
            self._group_rebalances = Counter(
                "coordinator_group_rebalances",
                "Rebalances of a group that have ended, by cause.",
                ["group", "cause"],
                registry=self.registry,
            )
            self._group_seconds = Counter(
                "coordinator_group_rebalance_seconds",
                "Time that a group has spent in rebalances.",
                ["group"],
                registry=self.registry,
            )

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
                    self._observe(event.record)
                case OffsetsCommittedEvent():
                    self._commits.inc(event.partitions)
                case OffsetsExpired():
                    self._expirations.inc(event.partitions)
                case _:
                    pass

    def appended(self, seconds: float, records: int) -> None:
        """An entry is in the log."""
        self._appends.observe(seconds)
        self._append_records.observe(records)

    def _observe(self, record: RebalanceRecord) -> None:
        outcome = record.outcome.split(":")[0]  # What it failed of has no bound.
        lasted_s = _seconds(record.started_at_ms, record.ended_at_ms)
        self._durations.labels(outcome).observe(lasted_s)
        if self._listed(record.group_id):
            self._group_rebalances.labels(record.group_id, record.cause).inc()
            self._group_seconds.labels(record.group_id).inc(lasted_s)
        if outcome != OUTCOMES[0]:
            return
        times = (
            ("join", record.started_at_ms, record.joined_at_ms),
            ("sync", record.joined_at_ms, record.synced_at_ms),
            ("durable", record.synced_at_ms, record.ended_at_ms),
        )
        for phase, begin_ms, end_ms in times:
            if begin_ms >= 0 and end_ms >= 0:
                self._phases.labels(phase).observe(_seconds(begin_ms, end_ms))
        for member in record.members:
            blocked = self._blocked
            blocked.labels("join").observe(_seconds(member.joined_at_ms, record.joined_at_ms))
            if member.synced_at_ms >= 0:
                blocked.labels("sync").observe(_seconds(member.synced_at_ms, record.ended_at_ms))
        self._moved.inc(max(0, record.partitions_moved))
        self._unowned.inc(record.unowned_ms_total / 1_000)

    def serve(self, host: str, port: int) -> tuple[int, Callable[[], None]]:
        """Serve /metrics from a thread; the port that was bound, and how to stop.

        Raises:
            OSError: the address cannot be bound.
        """
        server, thread = start_http_server(port, host, registry=self.registry)

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return int(server.server_port), stop


class _Gauges(Collector):
    def __init__(
        self,
        stats: Callable[[], Iterable[Stats]],
        loop_lag_s: Callable[[], float],
        calls: Callable[[], Mapping[tuple[str, str], int]],
    ) -> None:
        self._stats = stats
        self._loop_lag_s = loop_lag_s
        self._calls = calls

    def describe(self) -> Iterable[Metric]:
        return []  # Registering must not ask shards that are not there yet.

    def collect(self) -> Iterable[Metric]:
        shards = list(self._stats())
        groups: Tally[str] = Tally()
        for shard in shards:
            groups.update(shard.groups)
        yield _gauge(
            "coordinator_groups",
            "Groups by state.",
            "state",
            {state: groups[state] for state in STATES},
        )
        yield GaugeMetricFamily(
            "coordinator_members", "Members of all groups.", value=sum(s.members for s in shards)
        )
        yield _gauge(
            "coordinator_parked_calls",
            "Calls that wait for their answer, by kind.",
            "kind",
            {
                "join": sum(s.parked_joins for s in shards),
                "sync": sum(s.parked_syncs for s in shards),
            },
        )
        yield GaugeMetricFamily(
            "coordinator_timers_pending",
            "Timers in the wheels.",
            value=sum(s.timers_pending for s in shards),
        )
        for name, text, tallies in (
            ("watched", "Entries in the watch lists", [s.watched for s in shards]),
            ("delayed", "Operations that are armed", [s.delayed for s in shards]),
        ):
            yield _gauge(
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
        yield GaugeMetricFamily(
            "coordinator_pending_appends",
            "Writes whose fate is open.",
            value=sum(s.pending_appends for s in shards),
        )
        yield GaugeMetricFamily(
            "coordinator_high_watermark_lag_records",
            "Records that the log has and that do not count as done yet, for want of replicas.",
            value=sum(s.end_offset - s.high_watermark for s in shards),
        )
        yield GaugeMetricFamily(
            "coordinator_event_loop_lag_seconds",
            "How late the event loop was when last measured.",
            value=self._loop_lag_s(),
        )
        calls = CounterMetricFamily(
            "coordinator_grpc_calls",
            "Answered calls, by method and status.",
            labels=["method", "code"],
        )
        for labels, count in dict(self._calls()).items():
            calls.add_metric(list(labels), count)
        yield calls


class _ClusterGauges(Collector):
    def __init__(self, cluster: Callable[[], Cluster]) -> None:
        self._cluster = cluster

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        cluster = self._cluster()
        yield _gauge(
            "coordinator_shards", "Shards of this node, by state.", "state", cluster.shards
        )
        yield GaugeMetricFamily(
            "coordinator_shards_configured",
            "Shards that groups are divided into, on all nodes together.",
            value=cluster.configured_shards,
        )
        yield GaugeMetricFamily(
            "coordinator_controller_epoch",
            "The newest term of a controller that this node has heard of; 0 on a node of its own.",
            value=cluster.controller_epoch,
        )
        yield GaugeMetricFamily(
            "coordinator_is_controller",
            "1 on the node that decides who leads which shard.",
            value=cluster.is_controller,
        )


class Listed:
    """Which groups have series of their own.

    Args:
        patterns: ids, in which * stands for anything; none: no group.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = [re.compile(fnmatch.translate(pattern)) for pattern in patterns]

    def __call__(self, group_id: str) -> bool:
        return any(pattern.match(group_id) for pattern in self._patterns)


class _ListedGroups(Collector):
    """The series of groups that are on the list."""

    def __init__(self, listed: Callable[[str], bool], stats: GroupStats) -> None:
        self._listed = listed
        self._stats = stats

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        groups = list(self._stats(self._listed))
        yield _gauge(
            "coordinator_group_members",
            "Members of a group.",
            "group",
            {group.group_id: group.members for group in groups},
        )
        labels = ["group", "topic", "partition"]
        offsets = GaugeMetricFamily(
            "coordinator_group_committed_offset", "Committed offset of a partition.", labels=labels
        )
        ends = GaugeMetricFamily(
            "coordinator_group_log_end_offset",
            "Offset after the last row of a partition, as its member told.",
            labels=labels,
        )
        lags = GaugeMetricFamily(
            "coordinator_group_lag",
            "Offsets of a partition that are not committed yet.",
            labels=labels,
        )
        for group in groups:
            for (topic, partition), offset in group.offsets.items():
                offsets.add_metric([group.group_id, topic, str(partition)], offset)
            for key, end in group.log_ends.items():
                values = [group.group_id, key[0], str(key[1])]
                ends.add_metric(values, end)
                lags.add_metric(values, max(0, end - group.offsets.get(key, 0)))
        yield from (offsets, ends, lags)


def _gauge(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family


def _sum(tallies: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Tally[str] = Tally()
    for tally in tallies:
        total.update(tally)
    return dict(total)


def _seconds(begin_ms: int, end_ms: int) -> float:
    return max(0, end_ms - begin_ms) / 1_000
