"""Functions of a source that members and workers ask: where its logs begin and end, how many."""

from __future__ import annotations

from collections.abc import Callable, Collection

from coordinator.assignors import TopicPartition
from coordinator.client.log_ends import LogEnds
from coordinator.client.worker.user_functions import BeginOffsets, TopicCounts
from coordinator.sources.base import Source, partitions_of, snapshots_of


def ends_of(source: Source) -> LogEnds:
    """The `log_ends` function of a member that reads one source."""

    def log_ends(partitions: Collection[TopicPartition]) -> dict[TopicPartition, range]:
        numbers = [p.partition for p in partitions if p.topic == source.topic]
        snapshots = snapshots_of(source, numbers)
        return {
            TopicPartition(source.topic, n): range(snapshots[n].begin(), snapshots[n].end())
            for n in numbers
        }

    return log_ends


def begins_of(source: Source) -> BeginOffsets:
    """The `begin_offsets` function of a worker that reads one source."""
    return lambda keys: {key: source.begin_offset(key.partition) for key in keys}


def topics_of_source(
    source: Source, *, allow_empty: bool = False, at_least: int = 0
) -> Callable[[], TopicCounts]:
    """Function that counts a source's partitions; never fewer than before.

    One that vanishes stays with its owner, who finds that its rows are gone, instead of being
    dropped without a word.

    Args:
        allow_empty: see `partitions_of`. A source that was counted may be empty later.
        at_least: partitions that were counted before.
    """
    most = at_least

    def count() -> TopicCounts:
        nonlocal most
        most = max(most, len(partitions_of(source, allow_empty=allow_empty or most > 0)))
        return {source.topic: most}

    return count
