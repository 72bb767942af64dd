"""Gauges: read when Prometheus asks, from plain numbers that are kept anyway."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

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


class ShardGauges(Collector):
    """The numbers of all shards together."""

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


class ClusterGauges(Collector):
    """This node's place among others."""

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


class ListedGroups(Collector):
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
