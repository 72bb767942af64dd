"""Timeline of a rebalance, as text and as SVG: one lane per member, phases as bars.

phases     ├ join 4.1 s ──────────────────────────────┤├ sync ┤├ durable
etl-1      ▓▓▓▓════════════════════════════════════════──────────
etl-2      ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓═──────────   last, by 3.9 s
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Protocol

from coordinator.observe.spelling import spell
from coordinator.printable import printable

LATE, JOINED, ASSIGNING, SYNCED = "late", "joined", "assigning", "synced"
MEANINGS = {
    LATE: "has not joined: the others wait",
    JOINED: "has joined and waits",
    ASSIGNING: "knows its generation, has not asked for its partitions",
    SYNCED: "has asked for its partitions and waits",
}
SIGNS = {LATE: "▓", JOINED: "═", ASSIGNING: "░", SYNCED: "─"}
COLOURS = {LATE: "#D55E00", JOINED: "#56B4E9", ASSIGNING: "#F0E442", SYNCED: "#009E73"}
"""The colour-blind safe palette of Okabe and Ito."""
PHASE_COLOURS = {"join": "#0072B2", "sync": "#CC79A7", "durable": "#999999"}


class Participant(Protocol):
    member_id: str
    client_id: str
    joined_at_ms: int
    synced_at_ms: int


class Removed(Protocol):
    member_id: str
    client_id: str
    cause: str


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
    """Bars of the phases that were reached."""
    found, begin = [], 0
    for kind, length in (
        ("join", rebalance.join_phase_ms),
        ("sync", rebalance.sync_phase_ms),
        ("durable", rebalance.durable_phase_ms),
    ):
        if length < 0:
            break
        found.append(Bar(kind, begin, begin + length))
        begin += length
    return tuple(found)


def lanes(rebalance: Rebalance) -> list[Lane]:
    """Lanes of the members in the order of their joins, then of those that were removed."""
    start = rebalance.started_at_ms
    end = rebalance.ended_at_ms - start
    formed = rebalance.join_phase_ms if rebalance.join_phase_ms >= 0 else end
    found = []
    previous = 0
    for number, member in enumerate(rebalance.participants, start=1):
        joined = member.joined_at_ms - start
        synced = member.synced_at_ms - start if member.synced_at_ms >= 0 else end
        bars = [
            Bar(LATE, 0, joined),
            Bar(JOINED, joined, formed),
            Bar(ASSIGNING, formed, synced),
            Bar(SYNCED, synced, end),
        ]
        is_last = number == len(rebalance.participants) > 1 and joined > previous
        note = f"last, by {spell(joined - previous)}" if is_last else ""
        found.append(Lane(_name(member), tuple(b for b in bars if b.end_ms > b.begin_ms), note))
        previous = joined
    names = {member.member_id for member in rebalance.participants}
    for gone in rebalance.removed:
        if gone.member_id not in names:
            found.append(
                Lane(_name(gone), (Bar(LATE, 0, formed),), f"removed: {printable(gone.cause)}")
            )
    return found


def as_text(rebalance: Rebalance, width: int = 60) -> str:
    """The timeline for a terminal; bars are `width` characters, plus names and notes."""
    everyone = lanes(rebalance)
    end = max(rebalance.ended_at_ms - rebalance.started_at_ms, 1)
    margin = max([len(lane.name) for lane in everyone] + [len("phases")]) + 2

    def column(ms: int) -> int:
        return round(width * ms / end)

    head = "".join(_phase_text(bar, column(bar.end_ms) - column(bar.begin_ms))
                   for bar in phases(rebalance))  # fmt: skip
    lines = [_title(rebalance), f"{'phases':{margin}}{head}"]
    for lane in everyone:
        drawn = "".join(
            SIGNS[bar.kind] * (column(bar.end_ms) - column(bar.begin_ms)) for bar in lane.bars
        )
        lines.append(f"{lane.name:{margin}}{drawn:{width}}  {lane.note}".rstrip())
    lines += [f"{'':{margin}}{SIGNS[kind]} {meaning}" for kind, meaning in MEANINGS.items()]
    return "\n".join(lines)


FONTS = "DejaVu Sans, Liberation Sans, Arial, Helvetica, sans-serif"
"""Font families, named ones first: resvg does not resolve `sans-serif` alone."""
LEFT, WIDTH, RIGHT, LANE, GAP, TOP = 170, 720, 230, 20, 6, 78


def as_svg(rebalance: Rebalance) -> str:
    """The timeline as a standalone SVG; each bar has its meaning and duration as a title."""
    everyone = lanes(rebalance)
    end = max(rebalance.ended_at_ms - rebalance.started_at_ms, 1)
    bottom = TOP + len(everyone) * (LANE + GAP)
    words = f"{_title(rebalance)}. " + " ".join(
        f"{lane.name}: {lane.note}." for lane in everyone if lane.note
    )

    def x(ms: float) -> float:
        return LEFT + WIDTH * ms / end

    def bar(each: Bar, y: int, colour: str, what: str) -> str:
        width = max(x(each.end_ms) - x(each.begin_ms), 1)
        return (
            f'<rect x="{x(each.begin_ms):.1f}" y="{y}" width="{width:.1f}" height="{LANE}" '
            f'fill="{colour}"><title>{escape(what)}, {spell(each.end_ms - each.begin_ms)}</title>'
            "</rect>"
        )

    size = f"{LEFT + WIDTH + RIGHT} {bottom + 86}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" font-family="{FONTS}"',
        f'font-size="12" role="img" aria-label="{escape(words)}">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{escape(_title(rebalance))}</text>',
        f'<text x="{LEFT - 10}" y="58" text-anchor="end">phases</text>',
    ]
    for each in phases(rebalance):
        parts.append(bar(each, 44, PHASE_COLOURS[each.kind], each.kind))
        if x(each.end_ms) - x(each.begin_ms) > 70:
            label = f"{each.kind} {spell(each.end_ms - each.begin_ms)}"
            parts.append(f'<text x="{x(each.begin_ms) + 6:.1f}" y="58" fill="white">{label}</text>')
    for number, lane in enumerate(everyone):
        y = TOP + number * (LANE + GAP)
        parts.append(
            f'<text x="{LEFT - 10}" y="{y + 14}" text-anchor="end">{escape(lane.name)}</text>'
        )
        parts += [bar(each, y, COLOURS[each.kind], MEANINGS[each.kind]) for each in lane.bars]
        if lane.note:
            note = escape(lane.note)
            parts.append(f'<text x="{LEFT + WIDTH + 8}" y="{y + 14}">{note}</text>')
    for tick in range(6):
        at_ms = end * tick / 5
        parts.append(
            f'<text x="{x(at_ms):.1f}" y="{bottom + 16}" text-anchor="middle" fill="#555">'
            f"{spell(round(at_ms))}</text>"
        )
    for number, (kind, meaning) in enumerate(MEANINGS.items()):
        left, y = LEFT + number % 2 * 360, bottom + 34 + number // 2 * 22
        parts.append(
            f'<rect x="{left}" y="{y}" width="12" height="12" fill="{COLOURS[kind]}"/>'
            f'<text x="{left + 18}" y="{y + 11}">{meaning}</text>'
        )
    return "\n".join([*parts, "</svg>"])


def _title(rebalance: Rebalance) -> str:
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
