"""Timeline of hand-offs of a session group, as text: one lane a partition, phases as bars.

orders-3   ▓▓▓▓▓▓▓▓▓▓═══════════                           w-a → w-b
orders-7   ══════════════════════════════××××××××××××××××  w-a → w-c
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from coordinator.observe.spelling import count_of, member_of, quoted, spell
from coordinator.printable import printable

WIDTH = 60
LANES_MAX = 200
NAME_MAX = 40
PREPARE, DRAIN, FORCED, COPY, IDLE = "▓", "═", "×", "░", "·"
MEANINGS = {
    PREPARE: "the new holder prepares, the old one works",
    DRAIN: "the old holder finishes",
    FORCED: "the old holder was told to stop, and its lease runs out",
    COPY: "the new holder prepares, nobody works",
    IDLE: "nobody works: the holder died, left, or was away",
}


@dataclass(frozen=True, slots=True)
class PartitionLane:
    """A hand-off that has ended, or an idle span. Times are epoch milliseconds; -1: no such phase.

    mode: of the hand-off; `idle`: partitions on which nobody worked until a plan or a return.
    """

    name: str
    source: str
    successor: str
    mode: str
    opened_at_ms: int
    drain_at_ms: int
    forced_at_ms: int
    released_at_ms: int
    ended_at_ms: int


def as_text(group: str, lanes: Sequence[PartitionLane]) -> str:
    """Draw hand-offs over one axis, with a legend of the signs that occur."""
    shown = lanes[:LANES_MAX]
    begin_ms = min(lane.opened_at_ms for lane in shown)
    end_ms = max(lane.ended_at_ms for lane in shown)
    at = datetime.fromtimestamp(begin_ms / 1_000, UTC)
    took = spell(max(0, end_ms - begin_ms))
    rows = [(printable(lane.name), _bars(lane, begin_ms, max(1, end_ms - begin_ms)), lane)
            for lane in shown]  # fmt: skip
    width = max(len(name) for name, _, _ in rows)
    head = f"Hand-offs of group {quoted(group)}: {count_of(len(lanes), 'lane')} in {took}"
    lines = [f"{head}, from {at:%Y-%m-%d %H:%M:%S} UTC."]
    lines += [f"{name:<{width}}  {bars:<{WIDTH}}  {_who(lane)}" for name, bars, lane in rows]
    if len(lanes) > len(shown):
        lines.append(f"and {len(lanes) - len(shown)} more")
    drawn = "".join(bars for _, bars, _ in rows)
    lines += [f"{sign} {meaning}" for sign, meaning in MEANINGS.items() if sign in drawn]
    return "\n".join(line.rstrip() for line in lines)


def _bars(lane: PartitionLane, begin_ms: int, length_ms: int) -> str:
    cells = [" "] * WIDTH
    for sign, from_ms, to_ms in _spans(lane):
        first = (from_ms - begin_ms) * WIDTH // length_ms
        last = max(first + 1, -(-(to_ms - begin_ms) * WIDTH // length_ms))
        for cell in range(min(first, WIDTH - 1), min(last, WIDTH)):
            cells[cell] = sign
    return "".join(cells)


def _spans(lane: PartitionLane) -> Iterator[tuple[str, int, int]]:
    ended_ms = lane.ended_at_ms
    if lane.mode == "idle":
        yield IDLE, lane.opened_at_ms, ended_ms
    drain_ms, forced_ms, released_ms = lane.drain_at_ms, lane.forced_at_ms, lane.released_at_ms
    if lane.mode == "warm":
        yield PREPARE, lane.opened_at_ms, drain_ms if drain_ms >= 0 else ended_ms
    if drain_ms >= 0:
        ends = [at_ms for at_ms in (forced_ms, released_ms, ended_ms) if at_ms >= 0]
        yield DRAIN, drain_ms, min(ends)
    if forced_ms >= 0:
        yield FORCED, forced_ms, released_ms if released_ms >= 0 else ended_ms
    if lane.mode == "copy" and released_ms >= 0:
        yield COPY, released_ms, ended_ms


def _short(member_id: str) -> str:
    named = member_of(member_id)
    if named == quoted(member_id) and len(member_id) <= NAME_MAX:
        return printable(member_id) or "nobody"
    return named[:NAME_MAX]


def _who(lane: PartitionLane) -> str:
    source, to = (_short(who) for who in (lane.source, lane.successor))
    return f"{source} → {to}  {spell(max(0, lane.ended_at_ms - lane.opened_at_ms))}"
