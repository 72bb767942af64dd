"""Timeline of a rebalance as SVG, for wide and for narrow screens."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from coordinator.observe.spelling import spell
from coordinator.observe.timeline import (
    ASSIGNING,
    IDLE,
    JOINED,
    LATE,
    MEANINGS,
    PERHAPS,
    SYNCED,
    Lane,
    Rebalance,
    begin_of,
    idle_lanes,
    lanes,
    phases,
    title_of,
)

COLOURS = {
    LATE: "#D55E00",
    JOINED: "#56B4E9",
    ASSIGNING: "#F0E442",
    SYNCED: "#009E73",
    IDLE: "#E69F00",
    PERHAPS: "#F9E2B0",
}
"""The colour-blind safe palette of Okabe and Ito."""
PHASE_COLOURS = {"join": "#0072B2", "sync": "#CC79A7", "durable": "#999999"}
FONTS = "DejaVu Sans, Liberation Sans, Arial, Helvetica, sans-serif"
"""Font families, named ones first: resvg does not resolve `sans-serif` alone."""
BAR, GAP = 20, 6
LETTER = 6.6
"""Width of a letter, on average and rather more."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Measures in pixels.

    left, width: of the bars. right: at least so much is right of them. above: room for the name and
    the note of a lane; 0: they are beside its bar. legend: columns of the legend. every: of so many
    ticks one is drawn.
    """

    left: int
    width: int
    right: int
    above: int
    legend: int
    every: int

    @property
    def lane(self) -> int:
        return self.above + BAR + GAP

    @property
    def top(self) -> int:
        """Top of the first bar, below the title and the phases."""
        return 78 + self.above

    def right_of(self, drawn: list[Lane]) -> int:
        """Width on the right of the bars in which all notes fit."""
        if not self.above:
            return max([self.right] + [16 + round(LETTER * len(lane.note)) for lane in drawn])
        texts = (round(LETTER * len(f"{lane.name}  {lane.note}")) for lane in drawn)
        return max([self.right] + [text - self.width + self.left for text in texts])

    def texts(self, lane: Lane, y: int, right: int) -> list[str]:
        """The name and the note of a lane whose bar is at `y`."""
        end = self.left + self.width
        if self.above:
            name = _text(self.left, y - 5, lane.name)
            note = _text(end + right - self.left, y - 5, lane.note, anchor="end")
        else:
            name = _text(self.left - 10, y + 14, lane.name, anchor="end")
            note = _text(end + 8, y + 14, lane.note)
        return [name, note] if lane.note else [name]


WIDE = Layout(left=170, width=720, right=250, above=0, legend=2, every=1)
NARROW = Layout(left=22, width=314, right=22, above=20, legend=1, every=2)


def as_svg(rebalance: Rebalance, *, dark: bool = False, layout: Layout = WIDE) -> str:
    """The timeline as a standalone SVG; each bar has its meaning and duration as a title.

    Args:
        dark: draw it light on dark; the bars have the same colours.
        layout: `NARROW`: 358 pixels wide unless a note is longer, with the names above the bars.
    """
    paper, quiet = ("#0f141a", "#a3afbd") if dark else ("white", "#555")
    ink = ' fill="#e2e8ef"' if dark else ""
    everyone = lanes(rebalance) + idle_lanes(rebalance)
    end, begin = max(rebalance.ended_at_ms - rebalance.started_at_ms, 1), begin_of(everyone)
    bottom = layout.top + len(everyone) * layout.lane - layout.above
    title = title_of(rebalance)
    description = f"{title}. " + " ".join(
        f"{lane.name}: {lane.note}." for lane in everyone if lane.note
    )

    def x(ms: float) -> float:
        return layout.left + layout.width * (ms - begin) / (end - begin)

    def bar(begin_ms: int, end_ms: int, y: int, colour: str, text: str) -> str:
        return (
            f'<rect x="{x(begin_ms):.1f}" y="{y}" width="{max(x(end_ms) - x(begin_ms), 1):.1f}" '
            f'height="{BAR}" fill="{colour}"><title>{escape(text)}, {spell(end_ms - begin_ms)}'
            "</title></rect>"
        )

    right = layout.right_of(everyone)
    legend_height = 22 * -(-len(MEANINGS) // layout.legend)
    size = f"{layout.left + layout.width + right} {bottom + 42 + legend_height}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" font-family="{FONTS}"',
        f'font-size="12"{ink} role="img" aria-label="{escape(description)}">',
        f'<rect width="100%" height="100%" fill="{paper}"/>',
    ]
    if layout.above:  # The page has the title above the picture.
        parts.append(_text(layout.left, 39, "phases"))
    else:
        parts.append(f'<text x="{layout.left}" y="22" font-size="15">{escape(title)}</text>')
        parts.append(_text(layout.left - 10, 58, "phases", anchor="end"))
    for phase_bar in phases(rebalance):
        parts.append(
            bar(
                phase_bar.begin_ms,
                phase_bar.end_ms,
                44,
                PHASE_COLOURS[phase_bar.kind],
                phase_bar.kind,
            )
        )
        if x(phase_bar.end_ms) - x(phase_bar.begin_ms) > 70:
            label = f"{phase_bar.kind} {spell(phase_bar.end_ms - phase_bar.begin_ms)}"
            parts.append(
                f'<text x="{x(phase_bar.begin_ms) + 6:.1f}" y="58" fill="white">{label}</text>'
            )
    for number, lane in enumerate(everyone):
        y = layout.top + number * layout.lane
        parts += layout.texts(lane, y, right)
        parts += [
            bar(
                lane_bar.begin_ms,
                lane_bar.end_ms,
                y,
                COLOURS[lane_bar.kind],
                MEANINGS[lane_bar.kind],
            )
            for lane_bar in lane.bars
        ]
    marks = ticks(begin, end)[:: layout.every]
    for at_ms in marks:
        parts.append(
            f'<text x="{x(at_ms):.1f}" y="{bottom + 16}" text-anchor="middle" fill="{quiet}">'
            f"{tick_label(at_ms, marks.step)}</text>"
        )
    return "\n".join([*parts, *_legend(layout, bottom + 34), "</svg>"])


def _text(x: float, y: int, text: str, *, anchor: str = "start") -> str:
    how = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x}" y="{y}"{how}>{escape(text)}</text>'


def _legend(layout: Layout, top: int) -> list[str]:
    parts = []
    for number, (kind, meaning) in enumerate(MEANINGS.items()):
        left, y = layout.left + number % layout.legend * 360, top + number // layout.legend * 22
        parts.append(
            f'<rect x="{left}" y="{y}" width="12" height="12" fill="{COLOURS[kind]}"/>'
            f'<text x="{left + 18}" y="{y + 11}">{meaning}</text>'
        )
    return parts


STEPS_MS = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000,
    60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000,
)  # fmt: skip
TICKS_MAX = 12


def tick_step(length_ms: float) -> int:
    """The smallest round step, in milliseconds, with at most `TICKS_MAX` steps in a length.

    Above twelve hours it is a whole number of hours.
    """
    for step_ms in STEPS_MS:
        if length_ms / step_ms <= TICKS_MAX:
            return step_ms
    hour_ms = STEPS_MS[-1]
    return -(-round(length_ms) // (TICKS_MAX * hour_ms)) * hour_ms


def ticks(begin_ms: int, end_ms: int) -> range:
    """Times of the ticks between two times, multiples of one round step; 0 is one if inside."""
    step_ms = tick_step(end_ms - begin_ms)
    return range(-(-begin_ms // step_ms) * step_ms, end_ms + 1, step_ms)


def tick_label(at_ms: int, step_ms: int) -> str:
    """A time in the unit of its step: `-5 s`, `0.2 s`, `20 ms`."""
    sign, at_ms = "−" * (at_ms < 0), abs(at_ms)
    if step_ms < 100:
        return f"{sign}{at_ms} ms"
    return f"{sign}{at_ms / 1_000:g} s"
