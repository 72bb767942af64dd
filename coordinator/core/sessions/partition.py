"""The transient state of a partition, kept while something happens to it.

Durable are holders, tokens and phases (`holdings`). Here is what members have said of a partition,
what is being written about it, and for how long nobody is asked to have it. All of that is soft: a
new owner of the shard receives it again, or decides anew.

A partition has one from the first of these until the last is over: a group of 250,000 partitions
has a few such objects, and 2,000 more while a slice of a plan is written.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator.core.values.ids import NO_OFFSET, NO_TIME

BACK_OFF_MS, MAX_BACK_OFF_MS = 10_000, 600_000
REFUSALS_IN_A_ROW = 3


class RefusalBackOff(NamedTuple):
    """Back-off after a refusal; `until_ms` NO_TIME: it is over.

    Its length is remembered then, because the next one is twice as long.
    """

    until_ms: int
    length_ms: int

    @property
    def lasts(self) -> bool:
        return self.until_ms != NO_TIME


def next_back_off(last: RefusalBackOff | None, now_ms: int) -> RefusalBackOff:
    """The back-off that follows, from now."""
    length_ms = BACK_OFF_MS if last is None else min(2 * last.length_ms, MAX_BACK_OFF_MS)
    return RefusalBackOff(now_ms + length_ms, length_ms)


class Release(NamedTuple):
    """A token that its holder has given up, and where the holder stopped; NO_OFFSET: not known."""

    token: int
    position: int = NO_OFFSET


@dataclass(slots=True, eq=False)
class Refusals:
    """Refusals of members that were asked to have a partition.

    in_a_row: since somebody was ready to have it. back_off: after three in a row nobody is asked.
    by_name: the same of single members.
    """

    in_a_row: int = 0
    back_off: RefusalBackOff | None = None
    by_name: dict[str, RefusalBackOff] = field(default_factory=dict)

    def note(self, name: str, now_ms: int) -> None:
        """Note that a member refused: it is not asked again for a while, longer each time."""
        self.by_name[name] = next_back_off(self.by_name.get(name), now_ms)
        self.in_a_row += 1
        if self.in_a_row >= REFUSALS_IN_A_ROW:
            self.back_off = next_back_off(self.back_off, now_ms)
            self.in_a_row = 0

    def end_back_offs(self, now_ms: int, names: Collection[str]) -> list[int]:
        """End back-offs that are over; returns the ends of the others.

        Args:
            names: of members. That a member has refused is forgotten when it is gone.
        """
        if self.back_off is not None:
            self.back_off = _ended(self.back_off, now_ms)
        by_name = {name: _ended(back_off, now_ms) for name, back_off in self.by_name.items()}
        self.by_name = {
            name: back_off for name, back_off in by_name.items() if back_off.lasts or name in names
        }
        back_offs = [self.back_off, *self.by_name.values()]
        return [
            back_off.until_ms for back_off in back_offs if back_off is not None and back_off.lasts
        ]


@dataclass(slots=True, eq=False)
class TransientState:
    """The soft state of one partition.

    writes_pending: writes about it that have no result yet. pending_successor: member that gets it
    by them, at once or as the successor of a hand-off; empty: nobody does; None: they do not say.
    release: no commit under its token counts any more. refusals: None: there were none.
    not_before_ms: after an end without consent, nobody gets it before.
    """

    writes_pending: int = 0
    pending_successor: str | None = None
    release: Release | None = None
    refusals: Refusals | None = None
    not_before_ms: int = NO_TIME

    @property
    def is_empty(self) -> bool:
        """True if nothing is remembered."""
        is_known = self.writes_pending or self.release or self.refusals
        return not is_known and self.not_before_ms == NO_TIME

    @property
    def position(self) -> int:
        """Offset at which its holder stopped; NO_OFFSET: it has not, or did not say."""
        return NO_OFFSET if self.release is None else self.release.position

    @property
    def back_off(self) -> RefusalBackOff | None:
        """Back-off of the partition after several members refused it in a row."""
        return None if self.refusals is None else self.refusals.back_off

    @property
    def is_backed_off(self) -> bool:
        """True if nobody is asked to have it for a while."""
        return self.back_off is not None and self.back_off.lasts

    def is_backed_off_of(self, name: str) -> bool:
        """True if a member has refused it, and is not asked for a while."""
        if self.refusals is None or name not in self.refusals.by_name:
            return False
        return self.refusals.by_name[name].lasts

    def note_refused(self, name: str, now_ms: int) -> None:
        """Note that a member refused the partition."""
        self.refusals = self.refusals or Refusals()
        self.refusals.note(name, now_ms)

    def end_row_of_refusals(self) -> None:
        """A member became ready or got the partition: reset the count of refusals."""
        if self.refusals is not None:
            self.refusals.in_a_row = 0
            self._forget_no_refusals()

    def end_waits(self, now_ms: int, names: Collection[str]) -> list[int]:
        """Clear expired back-offs; return the remaining deadlines.

        Args:
            names: of members.
        """
        if self.not_before_ms <= now_ms:
            self.not_before_ms = NO_TIME
        ends = [] if self.not_before_ms == NO_TIME else [self.not_before_ms]
        if self.refusals is not None:
            ends += self.refusals.end_back_offs(now_ms, names)
            self._forget_no_refusals()
        return ends

    def _forget_no_refusals(self) -> None:
        refusals = self.refusals
        if refusals is not None and not (
            refusals.in_a_row or refusals.back_off or refusals.by_name
        ):
            self.refusals = None


def _ended(back_off: RefusalBackOff, now_ms: int) -> RefusalBackOff:
    return back_off if back_off.until_ms > now_ms else RefusalBackOff(NO_TIME, back_off.length_ms)


NO_STATE = TransientState()
"""Stands for every partition that nothing happens to. It is only read."""
