"""The wheels: circles of buckets, each level coarser than the one below.

A level has a tick (how much time one slot stands for), a size (how many slots)
and a current time, which is always a multiple of its tick. It can tell apart the
ticks that lie ahead of it but within one turn:

    current + tick  <=  deadline  <  current + tick * size

Anything sooner is due. Anything later belongs to the overflow wheel, whose one
tick is this wheel's whole turn. With 1 ms and 20 slots the levels span 20 ms,
400 ms, 8 s, 160 s, ..., so a handful of levels reaches any deadline, and they are
made when the first such deadline appears.

The tick under the hand is excluded at one end and the far end is excluded at the
other, so the `size - 1` ticks in between all have different slots: a slot never
holds two turns at once, and a bucket's expiration is a plain number.

Why the levels meet without a gap: a level's current time, floored to its turn,
is the next level's current time. Hence this level's far end is at or past the
start of the next level's second tick, the first one the next level accepts.

Weakness: a far deadline is looked at once per level on its way down. That is
what O(1) costs; almost every timer here is cancelled long before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from timer.bucket import Bucket

if TYPE_CHECKING:
    from timer.timer import Timer


def floor_to_tick(time_ms: int, tick_ms: int) -> int:
    """Return the start of the tick that contains `time_ms`, which may be negative."""
    return time_ms - time_ms % tick_ms


def slot_of(deadline_ms: int, tick_ms: int, size: int) -> int:
    """Return the slot, 0 to `size` - 1, of a deadline on a level that accepts it.

    Source: Varghese & Lauck 1997, scheme 4; Kafka `TimingWheel.add`.
    """
    return deadline_ms // tick_ms % size


class TimingWheel:
    """One level; `overflow` is the next coarser one, if it has been needed.

    `next_tick_ms` is the earliest deadline it accepts and `end_ms` the first one
    that is too far away; both are derived from `current_ms` and stored because
    every `Timer.add` compares with them.

    Args:
        timer: owner of the tasks in the buckets.
        level: 0 for the lowest, the only one that runs tasks.
        tick_ms: milliseconds per slot, at least 1.
        size: slots, at least 2.
        start_ms: the time now; floored to the tick.
    Source: Varghese & Lauck 1997, scheme 7; Kafka `TimingWheel`.
    """

    __slots__ = (
        "buckets",
        "current_ms",
        "end_ms",
        "interval_ms",
        "level",
        "next_tick_ms",
        "overflow",
        "size",
        "tick_ms",
        "timer",
    )

    def __init__(self, timer: Timer, level: int, tick_ms: int, size: int, start_ms: int) -> None:
        self.timer = timer
        self.level = level
        self.tick_ms = tick_ms
        self.size = size
        self.interval_ms = tick_ms * size
        self.overflow: TimingWheel | None = None
        # The rank makes a coarser bucket come first when two expire together: its
        # tasks have waited longer than those that went straight to a finer level.
        self.buckets = [Bucket(timer, -(level * size + slot)) for slot in range(size)]
        self.current_ms = floor_to_tick(start_ms, tick_ms)
        self.next_tick_ms = self.current_ms + tick_ms
        self.end_ms = self.current_ms + self.interval_ms

    def make_overflow(self) -> TimingWheel:
        """Make and return the next level, whose tick is this level's interval."""
        assert self.overflow is None
        self.overflow = TimingWheel(
            self.timer, self.level + 1, self.interval_ms, self.size, self.current_ms
        )
        return self.overflow

    def advance_clock(self, time_ms: int) -> None:
        """Move the current time of this level and every coarser one to `time_ms`.

        The caller has dealt with every bucket that expires before that.
        """
        wheel: TimingWheel | None = self
        # A level that stays within its tick has only levels above it that do too.
        while wheel is not None and time_ms >= wheel.next_tick_ms:
            wheel.current_ms = floor_to_tick(time_ms, wheel.tick_ms)
            wheel.next_tick_ms = wheel.current_ms + wheel.tick_ms
            wheel.end_ms = wheel.current_ms + wheel.interval_ms
            wheel = wheel.overflow
