"""Series of single groups, of those alone that the user lists: group ids are unbounded."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from coordinator.core.values.rebalance_journal import RebalanceRecord
from coordinator.observe.gauges import gauge
from coordinator.observe.labels import snake_case
from coordinator.observe.rebalance_metrics import seconds_between
from coordinator.shard.stats import GroupStats

PRUNE_AT = 1_000
"""Number of counted groups from which on the deleted ones are searched and dropped."""

GroupStatsSource = Callable[[Callable[[str], bool]], Iterable[GroupStats]]
"""Returns the numbers of the groups that a predicate selects, by id."""


class GroupFilter:
    """Predicate: whether a group has series of its own.

    Args:
        patterns: group ids with `*` as wildcard; empty: no group.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = [re.compile(fnmatch.translate(pattern)) for pattern in patterns]

    def __call__(self, group_id: str) -> bool:
        return any(pattern.match(group_id) for pattern in self._patterns)


class ListedGroups(Collector):
    """Series of the listed groups that this node coordinates."""

    def __init__(self, listed: Callable[[str], bool], stats: GroupStatsSource) -> None:
        self._listed = listed
        self._stats = stats
        self._rebalances: dict[str, _Rebalances] = {}
        self._prune_at = PRUNE_AT

    def observe(self, record: RebalanceRecord) -> None:
        """Count a rebalance that has ended."""
        if record.is_return or not self._listed(record.group_id):
            return
        self._rebalances.setdefault(record.group_id, _Rebalances()).add(record)
        if len(self._rebalances) >= self._prune_at:
            # Scrapes prune too, but perhaps nobody scrapes.
            self._prune({group.group_id for group in self._stats(self._listed)})
            self._prune_at = max(PRUNE_AT, 2 * len(self._rebalances))

    @property
    def counted(self) -> int:
        """Number of groups whose rebalances are counted."""
        return len(self._rebalances)

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        groups = list(self._stats(self._listed))
        self._prune({group.group_id for group in groups})
        yield from self._of_rebalances()
        yield gauge(
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
            "Log end offset of a partition as reported by its member.",
            labels=labels,
        )
        lags = GaugeMetricFamily(
            "coordinator_group_lag",
            "Rows of a partition from its committed offset, or its log's begin, to the log's end.",
            labels=labels,
        )
        for group in groups:
            for (topic, partition), offset in group.offsets.items():
                offsets.add_metric([group.group_id, topic, str(partition)], offset)
            for key, end in group.log_ends.items():
                values = [group.group_id, key[0], str(key[1])]
                ends.add_metric(values, end.offset)
                lags.add_metric(values, end.lag(group.offsets.get(key)))
        yield from (offsets, ends, lags)

    def _prune(self, present: Set[str]) -> None:
        """Drop groups that were deleted, have expired, or are coordinated by another node."""
        for group_id in list(self._rebalances):
            if group_id not in present:
                self._rebalances.pop(group_id, None)

    def _of_rebalances(self) -> Iterable[Metric]:
        rebalances = CounterMetricFamily(
            "coordinator_group_rebalances",
            "Ended rebalances of a listed group, by cause.",
            labels=["group", "cause"],
        )
        seconds = CounterMetricFamily(
            "coordinator_group_rebalance_seconds",
            "Time that a listed group spent in rebalances.",
            labels=["group"],
        )
        for group_id, counted in list(self._rebalances.items()):
            for cause, count in list(counted.by_cause.items()):
                rebalances.add_metric([group_id, cause], count)
            seconds.add_metric([group_id], counted.seconds)
        yield from (rebalances, seconds)


@dataclass(slots=True)
class _Rebalances:
    """Counters of one group's rebalances."""

    by_cause: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def add(self, record: RebalanceRecord) -> None:
        self.by_cause[snake_case(record.cause)] += 1
        self.seconds += seconds_between(record.started_at_ms, record.ended_at_ms)
