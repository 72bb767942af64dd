"""Series of single groups: only of those on a list, for the number of groups has no bound."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from coordinator.observe.gauges import gauge


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
