"""Timeline of a rebalance: one lane per member, phases as bars; as text. `timeline_svg` draws it.

phases     ├ join 4.1 s ──────────────────────────────┤├ sync ┤├ durable
etl-1      ▓▓▓▓════════════════════════════════════════──────────
etl-2      ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓═──────────   last, by 3.9 s
orders-0…3 ·····×××××××××××××××××××××××××××××××××××××××××××××××××   etl-3 → etl-1

Partitions that nobody worked on follow the members, a lane for those with the same owners and
times. They may have stood idle since long before the rebalance began: then the axis begins earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from coordinator.observe.advice import slowest_to_join
from coordinator.observe.explain import LATE_MS
from coordinator.observe.spelling import name_of, partitions_of, spell
from coordinator.printable import printable

LATE, JOINED, ASSIGNING, SYNCED = "late", "joined", "assigning", "synced"
PERHAPS, IDLE = "perhaps idle", "idle"
MEANINGS = {
    LATE: "has not joined: the others wait",
    JOINED: "has joined and waits",
    ASSIGNING: "knows its generation, has not asked for its partitions",
    SYNCED: "has asked for its partitions and waits",
    IDLE: "partitions that nobody works on",
    PERHAPS: "partitions whose owner may have worked on",
}
SIGNS = {LATE: "▓", JOINED: "═", ASSIGNING: "░", SYNCED: "─", IDLE: "×", PERHAPS: "·"}
IDLE_LANES_MAX = 8
BEFORE_MAX_MS = 600_000
"""Longest time before the rebalance that is drawn."""
WAITED_FOR = ("join_timed_out", "sync_timed_out", "new_member_timed_out")
"""Removed members that the others waited for; those that left or were dead kept nobody waiting."""


class Participant(Protocol):
    member_id: str
    client_id: str
    joined_at_ms: int
    synced_at_ms: int


class Removed(Protocol):
    member_id: str
    client_id: str
    cause: str
    code: str


class TimelineRange(Protocol):
    first: int
    last: int


class TimelineMove(Protocol):
    topic: str
    partition_count: int
    from_member_id: str
    from_client_id: str
    to_member_id: str
    to_client_id: str
    has_moved: bool
    stopped_earliest_ms: int
    stopped_latest_ms: int
    resumed_at_ms: int
    unowned_ms_min: int
    unowned_ms_max: int

    @property
    def partitions(self) -> Sequence[TimelineRange]: ...


class Rebalance(Protocol):
    """The fields of `coordinator.v1.Rebalance` that are drawn."""

    group_id: str
    cause: str
    generation_before: int
    generation_after: int
    started_at_ms: int
    ended_at_ms: int
    join_phase_ms: int
    sync_phase_ms: int
    durable_phase_ms: int

    @property
    def participants(self) -> Sequence[Participant]: ...
    @property
    def removed(self) -> Sequence[Removed]: ...
    @property
    def moves(self) -> Sequence[TimelineMove]: ...


@dataclass(frozen=True, slots=True)
class Bar:
    """A coloured span; times in milliseconds from the start of the rebalance."""

    kind: str
    begin_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Lane:
    name: str
    bars: tuple[Bar, ...]
    note: str = ""


def phases(rebalance: Rebalance) -> tuple[Bar, ...]:
    bars, begin = [], 0
    for kind, length in (
        ("join", rebalance.join_phase_ms),
        ("sync", rebalance.sync_phase_ms),
        ("durable", rebalance.durable_phase_ms),
    ):
        if length < 0:
            break
        bars.append(Bar(kind, begin, begin + length))
        begin += length
    return tuple(bars)


def lanes(rebalance: Rebalance) -> list[Lane]:
    """Lanes of the members in the order of their joins, then of those that were removed."""
    start = rebalance.started_at_ms
    end = rebalance.ended_at_ms - start
    formed = rebalance.join_phase_ms if rebalance.join_phase_ms >= 0 else end
    lanes = []
    slowest = slowest_to_join(rebalance.participants, rebalance.removed)
    for member in rebalance.participants:
        joined = member.joined_at_ms - start
        synced = member.synced_at_ms - start if member.synced_at_ms >= 0 else end
        bars = [
            Bar(LATE, 0, joined),
            Bar(JOINED, joined, formed),
            Bar(ASSIGNING, formed, synced),
            Bar(SYNCED, synced, end),
        ]
        is_last = slowest is not None and slowest[0] is member and slowest[1] >= LATE_MS
        note = f"last, by {spell(slowest[1])}" if slowest is not None and is_last else ""
        lanes.append(Lane(_name(member), tuple(b for b in bars if b.end_ms > b.begin_ms), note))
    names = {member.member_id for member in rebalance.participants}
    for gone in rebalance.removed:
        if gone.member_id not in names:
            waited = (Bar(LATE, 0, formed),) if gone.code in WAITED_FOR else ()
            cause = printable(gone.cause)
            note = cause if cause.startswith("left") else f"removed: {cause}"
            lanes.append(Lane(_name(gone), waited, note))
    return lanes


def idle_lanes(rebalance: Rebalance) -> list[Lane]:
    """Lanes of partitions that nobody worked on, the longest first; bars may begin before 0."""
    start = rebalance.started_at_ms
    lanes = []
    idle = [move for move in rebalance.moves if move.unowned_ms_min or move.unowned_ms_max]
    for move in idle[:IDLE_LANES_MAX]:
        end = move.resumed_at_ms - start
        earliest, latest = (
            max(end - idle_ms, -BEFORE_MAX_MS) if idle_ms >= 0 else -BEFORE_MAX_MS
            for idle_ms in (move.unowned_ms_max, move.unowned_ms_min)
        )
        bars = (Bar(PERHAPS, earliest, latest), Bar(IDLE, latest, end))
        former = name_of(move.from_member_id, move.from_client_id)
        new = name_of(move.to_member_id, move.to_client_id)
        who = f"{former} → {new}" if move.has_moved else f"stayed with {new}"
        note = f"{who}, {_between(move.unowned_ms_min, move.unowned_ms_max)}"
        name = partitions_of(move.topic, move.partitions, move.partition_count)
        lanes.append(Lane(name[:24], tuple(b for b in bars if b.end_ms > b.begin_ms), note))
    left = len(idle) - IDLE_LANES_MAX
    return [*lanes, Lane("", (), f"and {left} more")] if left > 0 else lanes


def _between(shortest_ms: int, longest_ms: int) -> str:
    shortest, longest = spell(shortest_ms), spell(longest_ms)
    if longest_ms < 0:
        return f"{shortest} or more"
    return longest if shortest == longest else f"{shortest} to {longest}"


def begin_of(everyone: Sequence[Lane]) -> int:
    """Begin of the axis, in milliseconds from the start of the rebalance."""
    return min([0] + [bar.begin_ms for lane in everyone for bar in lane.bars])


def as_text(rebalance: Rebalance, width: int = 60) -> str:
    """The timeline for a terminal; bars are `width` characters, plus names and notes."""
    everyone = lanes(rebalance) + idle_lanes(rebalance)
    end, begin = max(rebalance.ended_at_ms - rebalance.started_at_ms, 1), begin_of(everyone)
    margin = max([len(lane.name) for lane in everyone] + [len("phases")]) + 2

    def column(ms: int) -> int:
        return round(width * (ms - begin) / (end - begin))

    head = "".join(_phase_text(bar, column(bar.end_ms) - column(bar.begin_ms))
                   for bar in phases(rebalance))  # fmt: skip
    lines = [title_of(rebalance), f"{'phases':{margin}}{' ' * column(0)}{head}"]
    for lane in everyone:
        drawn = "".join(
            SIGNS[bar.kind] * (column(bar.end_ms) - column(bar.begin_ms)) for bar in lane.bars
        )
        indent = " " * column(lane.bars[0].begin_ms) if lane.bars else ""
        lines.append(f"{lane.name:{margin}}{indent + drawn:{width}}  {lane.note}".rstrip())
    shown = {bar.kind for lane in everyone for bar in lane.bars}
    lines += [
        f"{'':{margin}}{SIGNS[kind]} {meaning}"
        for kind, meaning in MEANINGS.items()
        if kind in shown
    ]
    return "\n".join(lines)


def title_of(rebalance: Rebalance) -> str:
    return (
        f"{printable(rebalance.group_id)}: generation {rebalance.generation_before} to "
        f"{rebalance.generation_after}, {printable(rebalance.cause)}, "
        f"{spell(rebalance.ended_at_ms - rebalance.started_at_ms)}"
    )


def _name(member: Participant | Removed) -> str:
    """Client id and the end of the member id, since members may share a client id."""
    if not member.client_id:
        return printable(member.member_id[:20])
    return f"{printable(member.client_id[:16])} …{printable(member.member_id[-4:])}"


def _phase_text(bar: Bar, width: int) -> str:
    label = f"├ {bar.kind} {spell(bar.end_ms - bar.begin_ms)} "
    return label[:width] if len(label) >= width else label + "─" * (width - len(label))
