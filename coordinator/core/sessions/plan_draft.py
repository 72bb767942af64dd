"""The journal's record of a plan: why it was made, what it moves, how long partitions were idle.

It is drafted while the plan is taken, slice by slice, before what it grants is written: a partition
that has a new holder is not idle any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any

from coordinator.core.sessions.holdings import IdleSpan, ranges_of, size_of
from coordinator.core.sessions.journal import Journal
from coordinator.core.values.ids import NO_TIME, TopicPartition
from coordinator.core.values.plan_journal import (
    RETURNED,
    PlannedMove,
    PlanRecord,
    Unowned,
    WorkStop,
)
from coordinator.core.values.plans import NOBODY, Move, Numbered, Range, Unplaced

FREE = "free"
"""Reason of a partition that had no holder."""
MOVES = 100
"""Moves in a record. Partitions that have source, target, reason and stop in common are one."""
RANGES = 1_000
"""Ranges of partitions in a record, over all of its moves."""

Key = tuple[str, str, str, str, WorkStop | None]
"""Topic, source, target, reason, stop."""


@dataclass(slots=True)
class Draft:
    """A record in the making."""

    _moves: list[PlannedMove] = field(default_factory=list)
    _left_out: int = 0
    _unowned: Unowned = field(default_factory=Unowned)
    _counts: Counter[str] = field(default_factory=Counter)
    _unplaced: Counter[str] = field(default_factory=Counter)
    _ranges: int = 0

    def add_grant(
        self,
        idle_spans: Mapping[int, IdleSpan],
        topic: str,
        target: str,
        ranges: tuple[Range, ...],
        now_ms: int,
    ) -> None:
        """Add partitions without a holder, idle until now. `idle_spans`: of the topic."""
        self._counts[FREE] += size_of(ranges)
        if idle_spans:
            self._add(self._idle(idle_spans, topic, target, ranges, now_ms))
        else:  # The first plan of many partitions: nobody has ever worked on them.
            self._append((topic, "", target, FREE, None), ranges)

    def add_moves(self, moves: Iterable[Move], numbered: Numbered) -> None:
        """Add partitions that leave their holders, in the order of the plan."""
        self._add(self._leaving(moves, numbered))

    def add_returns(
        self, idle_spans: Mapping[TopicPartition, IdleSpan], target: str, now_ms: int
    ) -> None:
        """Add partitions that were idle, on which a member goes on now without a plan."""
        self._add(self._returning(idle_spans, target, now_ms), now_ms)

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to record."""
        return not self._counts

    def add_unplaced(self, why: Unplaced) -> None:
        """Count a free partition that nobody can have now."""
        self._unplaced[why.value] += 1

    def record(self, journal: Journal, **more: Any) -> PlanRecord | None:
        """The record; None: the plan changes nothing.

        Args:
            more: its fields that are about the group. Any: they have several types.
        """
        if not self._counts:
            return None
        return PlanRecord(
            triggers=tuple(journal.triggers),
            trigger_count=journal.trigger_count,
            counts=tuple(sorted(self._counts.items())),
            unplaced=tuple(sorted(self._unplaced.items())),
            moves=tuple(self._moves),
            left_out=self._left_out,
            unowned=self._unowned,
            **more,
        )

    def _leaving(self, moves: Iterable[Move], numbered: Numbered) -> Iterator[tuple[Key, int]]:
        ids = numbered.member_ids
        for move in moves:
            reason = move.reason.value
            self._counts[reason] += 1
            target = "" if move.target == NOBODY else ids[move.target]
            topic = numbered.topics[move.topic]
            yield (topic, ids[move.source], target, reason, None), move.partition

    def _returning(
        self, idle_spans: Mapping[TopicPartition, IdleSpan], target: str, now_ms: int
    ) -> Iterator[tuple[Key, int]]:
        for (topic, partition), idle_span in sorted(idle_spans.items(), key=itemgetter(0)):
            self._counts[RETURNED] += 1
            self._count(idle_span.stop.idle_ms(now_ms))
            yield (topic, idle_span.holder, target, RETURNED, idle_span.stop), partition

    def _idle(
        self,
        idle_spans: Mapping[int, IdleSpan],
        topic: str,
        target: str,
        ranges: Iterable[Range],
        now_ms: int,
    ) -> Iterator[tuple[Key, int]]:
        for first, last in ranges:
            for partition in range(first, last + 1):
                idle_span = idle_spans.get(partition)
                if idle_span is None:
                    yield (topic, "", target, FREE, None), partition
                else:
                    self._count(idle_span.stop.idle_ms(now_ms))
                    yield (topic, idle_span.holder, target, FREE, idle_span.stop), partition

    def _count(self, idle_ms: tuple[int, int]) -> None:
        least_ms, most_ms = idle_ms
        most_ms = least_ms if most_ms == NO_TIME else most_ms
        so_far = self._unowned
        self._unowned = Unowned(
            so_far.partitions + 1,
            max(so_far.ms_max, most_ms),
            so_far.ms_total + most_ms,
            max(so_far.ms_max_at_least, least_ms),
            so_far.ms_total_at_least + least_ms,
        )

    def _add(self, moves: Iterable[tuple[Key, int]], resumed_at_ms: int = NO_TIME) -> None:
        """Add moves; those that follow each other and have all in common become one."""
        for key, moves_of_key in groupby(moves, key=lambda pair: pair[0]):
            ranges = ranges_of(sorted(partition for _, partition in moves_of_key))
            self._append(key, ranges, resumed_at_ms)

    def _append(self, key: Key, ranges: tuple[Range, ...], resumed_at_ms: int = NO_TIME) -> None:
        self._ranges += len(ranges)
        if len(self._moves) >= MOVES or self._ranges > RANGES:
            self._left_out += size_of(ranges)
            return
        topic, source, target, reason, stop = key
        self._moves.append(PlannedMove(topic, ranges, source, target, reason, stop, resumed_at_ms))
