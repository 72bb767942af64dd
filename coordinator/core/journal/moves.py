"""Cost of a rebalance: partitions that changed hands, and how long nobody worked on them.

A record has room for some of it only: partitions with the same owners and times share an entry with
ranges of numbers, and of many entries the ones that moved, and of these the longest, are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from coordinator.core.classic.account import ClassicIdleSpan, IdleSpans, Trace
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.journal import last_work
from coordinator.core.journal.last_work import ResumedPartition
from coordinator.core.payloads import PayloadReader
from coordinator.core.values.ids import NO_TIME, TopicPartition
from coordinator.core.values.rebalance_journal import PartitionMove, PartitionRange, StopKnownBy

NO_COUNT = -1
"""Value of `partitions_moved` if it is unknown."""
MOVES_MAX = 32
"""Entries in a record."""
RANGES_MAX = 32
"""Ranges of partitions in an entry."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The part of a `RebalanceRecord` that is about partitions."""

    round: int = 0
    partitions_moved: int = NO_COUNT
    partitions_taken_away: int = 0
    unowned_partitions: int = 0
    unowned_ms_max: int = 0
    unowned_ms_total: int = 0
    unowned_ms_max_at_least: int = 0
    unowned_ms_total_at_least: int = 0
    moves: tuple[PartitionMove, ...] = ()
    partitions_left_out: int = 0


UNKNOWN = Cost()

_Owners = dict[TopicPartition, tuple[str, str]]


def cost_of(group: ClassicGroup, trace: Trace, now_ms: int, read: PayloadReader) -> Cost:
    """Compare the owners before a completed rebalance with those after it, and end idle spans."""
    before = last_work.owners(trace.before, read.partitions)
    after = last_work.owners(group.committed if group.members else None, read.partitions)
    if before is None or after is None:
        group.account.idle_spans = IdleSpans()
        return UNKNOWN
    names = {p: idle_span.owner for p, idle_span in group.account.idle_spans.of.items()}
    names = {p: name for p, (name, _) in before.items()} | names
    moved = sum(names[p] != name for p, (name, _) in after.items() if p in names)
    taken = last_work.taken_away(group, now_ms, before, after)
    round_ = trace.round or (1 if taken else 0)
    resumed = list(last_work.resumed(group, trace, now_ms, after))
    left = group.account.idle_spans
    left.round = round_ if left.are_being_given_back else 0
    straight = list(_without_idle_time(trace, now_ms, before, after, resumed))
    return replace(
        _sum_of(group, resumed, straight),
        round=round_,
        partitions_moved=moved,
        partitions_taken_away=taken,
    )


def cost_of_return(group: ClassicGroup, trace: Trace, now_ms: int, after: _Owners) -> Cost:
    """End the idle spans of a static member that went on without a rebalance.

    after: what it has.
    """
    resumed = list(last_work.resumed(group, trace, now_ms, after))
    return replace(_sum_of(group, resumed, []), partitions_moved=0)


def ranges_of(partitions: Iterable[int]) -> tuple[PartitionRange, ...]:
    """Sorted numbers as ranges: 0, 1, 2, 5 are 0-2 and 5-5."""
    ranges: list[PartitionRange] = []
    for number in sorted(partitions):
        if ranges and ranges[-1].last == number - 1:
            ranges[-1] = replace(ranges[-1], last=number)
        else:
            ranges.append(PartitionRange(number, number))
    return tuple(ranges)


# --- Inside ---------------------------------------------------------------------------------


def _sum_of(
    group: ClassicGroup, idle: Sequence[ResumedPartition], straight: Sequence[ResumedPartition]
) -> Cost:
    """Cost of idle partitions; the `straight` ones went on at once, and are listed too."""
    all_resumed = [*idle, *straight]
    idle_ms = [resumed.idle_ms for resumed in all_resumed]
    shortest = [at_least_ms for at_least_ms, _ in idle_ms]
    longest = [max(span_ms) for span_ms in idle_ms]
    kept, left_out = _entries(group, all_resumed)
    return Cost(
        unowned_partitions=len(idle),
        unowned_ms_max=max(longest, default=0),
        unowned_ms_total=sum(longest),
        unowned_ms_max_at_least=max(shortest, default=0),
        unowned_ms_total_at_least=sum(shortest),
        moves=kept,
        partitions_left_out=left_out,
    )


def _without_idle_time(
    trace: Trace, now_ms: int, before: _Owners, after: _Owners, idle: Sequence[ResumedPartition]
) -> Iterable[ResumedPartition]:
    """Partitions that went straight from one member to another, so that nothing was idle."""
    if len(idle) == len(after):
        return
    known = {resumed.partition for resumed in idle}
    kind = StopKnownBy.TAKEN_AWAY
    for partition, (name, member_id) in after.items():
        was_name, was_id = before.get(partition, (name, ""))
        if name != was_name and partition not in known:
            idle_span = ClassicIdleSpan(was_name, was_id, "", now_ms, now_ms, kind)
            yield ResumedPartition(
                partition, idle_span, member_id, True, member_id in trace.synced, now_ms
            )


class _Key(NamedTuple):
    """Fields that the partitions of an entry share. A tuple: one is made for each partition."""

    topic: str
    from_member_id: str
    from_client_id: str
    to_member_id: str
    has_moved: bool
    is_fetched: bool
    known_by: StopKnownBy
    stopped_earliest_ms: int
    stopped_latest_ms: int
    resumed_at_ms: int


def _entries(
    group: ClassicGroup, resumed_here: Sequence[ResumedPartition]
) -> tuple[tuple[PartitionMove, ...], int]:
    """Entries of the record, and the number of partitions that are in none of them."""
    by_key: dict[_Key, list[int]] = {}
    for resumed in resumed_here:
        idle_span = resumed.idle_span
        topic, partition = resumed.partition
        key = _Key(
            topic,
            idle_span.member_id,
            idle_span.client_id,
            resumed.member_id,
            resumed.has_moved,
            resumed.is_fetched,
            idle_span.known_by,
            idle_span.earliest_ms,
            idle_span.latest_ms,
            resumed.at_ms,
        )
        by_key.setdefault(key, []).append(partition)
    if len(by_key) > MOVES_MAX:
        by_key = _merged(by_key)
    entries = sorted(
        by_key.items(),
        key=lambda pair: (pair[0].has_moved, -pair[0].stopped_earliest_ms, len(pair[1])),
        reverse=True,
    )
    kept = tuple(_move(group, key, numbers) for key, numbers in entries[:MOVES_MAX])
    return kept, sum(len(numbers) for _, numbers in entries[MOVES_MAX:])


def _move(group: ClassicGroup, key: _Key, numbers: list[int]) -> PartitionMove:
    to = group.members.get(key.to_member_id)
    return PartitionMove(
        key.topic,
        key.from_member_id,
        key.from_client_id,
        key.to_member_id,
        "" if to is None else to.client_id,
        key.has_moved,
        key.known_by.value,
        key.stopped_earliest_ms,
        key.stopped_latest_ms,
        key.resumed_at_ms,
        key.is_fetched,
        len(numbers),
        ranges_of(numbers)[:RANGES_MAX],
    )


def _merged(by_key: dict[_Key, list[int]]) -> dict[_Key, list[int]]:
    """Entries that differ in their times alone as one, with the outermost times."""
    merged: dict[_Key, tuple[list[_Key], list[int]]] = {}
    for key, numbers in by_key.items():
        of_any_time = key._replace(stopped_earliest_ms=0, stopped_latest_ms=0, resumed_at_ms=0)
        keys, all_numbers = merged.setdefault(of_any_time, ([], []))
        keys.append(key)
        all_numbers.extend(numbers)
    return {
        of_any_time._replace(
            stopped_earliest_ms=min(key.stopped_earliest_ms for key in keys),
            stopped_latest_ms=_latest(keys),
            resumed_at_ms=max(key.resumed_at_ms for key in keys),
        ): numbers
        for of_any_time, (keys, numbers) in merged.items()
    }


def _latest(keys: Sequence[_Key]) -> int:
    """Latest stop of entries, so that the shortest idle span is that of one of them."""
    if any(key.stopped_latest_ms == NO_TIME for key in keys):
        return NO_TIME
    shortest_ms = min(key.resumed_at_ms - key.stopped_latest_ms for key in keys)
    return max(key.resumed_at_ms for key in keys) - shortest_ms
