"""SVG of a history: a lane for each partition, a colour for each owner, hatched where one died.

Numbers above the lanes are the steps of the demo, and a cross is a batch that was refused.
"""

from __future__ import annotations

import textwrap
from html import escape

from coordinator.observe.spelling import spell
from coordinator.observe.timeline_svg import FONTS, tick_label, tick_step, ticks
from flights.history import SIGKILL, History, Kill, Rest

PALETTE = (
    ("#0072B2", "white"),
    ("#009E73", "black"),
    ("#E69F00", "black"),
    ("#CC79A7", "black"),
    ("#56B4E9", "black"),
    ("#F0E442", "black"),
    ("#999999", "black"),
)
"""Colours of owners and of text on them: Okabe and Ito's, for colour-blind readers."""
ALARM = "#A83200"
"""Their vermilion, darker, so that text in it can be read on white."""
DASHED = 'stroke="#767676" stroke-dasharray="3,3"'
CROSS = "cross"

LEFT, WIDTH, RIGHT, LANE, GAP, LETTER = 100, 880, 30, 20, 4, 6.6
LEGEND_TOP, LEGEND_ROW = 40, 22
STEPS_ROW = 24


def span(history: History) -> tuple[int, int]:
    """Begin and end of the axis in milliseconds: a round tick before the first event, and the end
    of the run."""
    first = min([stint.begin_s for stint in history.stints] + [*history.rebalances, history.end_s])
    begin_ms, end_ms = round(1_000 * max(first, 0)), max(round(1_000 * history.end_s), 1)
    step_ms = tick_step(end_ms - begin_ms)
    return begin_ms // step_ms * step_ms, end_ms


def account(history: History) -> list[str]:
    """Sentences about the steps, and about each kill and how long its partitions rested."""
    steps = [
        f"{number}: at {moment.at_s:.1f} s {moment.text}."
        for number, moment in enumerate(history.moments, start=1)
    ]
    return [*steps, *(_sentence(history, kill) for kill in history.kills)]


def draw(history: History, title: str, partitions: int) -> str:
    """The picture. Bars carry their owner's name, so no colour is needed to read it."""
    return _Picture(history, title, partitions).svg()


class _Picture:
    def __init__(self, history: History, title: str, partitions: int) -> None:
        self._history = history
        self._title = title
        self._partitions = partitions
        self._begin_ms, self._end_ms = span(history)
        self._colours = {
            owner: PALETTE[number % len(PALETTE)] for number, owner in enumerate(history.owners)
        }
        self._legend, rows = self._draw_legend()
        self._steps_y = LEGEND_TOP + rows * LEGEND_ROW + 14
        self._top = LEGEND_TOP + rows * LEGEND_ROW + 30 + STEPS_ROW * bool(history.moments)
        self._bottom = self._top + partitions * (LANE + GAP)

    def svg(self) -> str:
        told = [line for text in account(self._history) for line in textwrap.wrap(text, WIDTH // 6)]
        width, height = LEFT + WIDTH + RIGHT, self._bottom + 40 + 18 * len(told)
        words = escape(" ".join([f"{self._title}.", *account(self._history)]))
        caption = [
            f'<text x="{LEFT}" y="{self._bottom + 44 + 18 * number}">{escape(line)}</text>'
            for number, line in enumerate(told)
        ]
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"',
                f'width="{width}" height="{height}" font-family="{FONTS}" font-size="12"',
                f'role="img" aria-label="{words}">',
                *self._patterns(),
                '<rect width="100%" height="100%" fill="white"/>',
                f'<text x="{LEFT}" y="26" font-size="16">{escape(self._title)}</text>',
                *self._legend,
                *self._axis(),
                *self._lanes(),
                *self._moments(),
                *self._refusals(),
                *self._steps(),
                *caption,
                "</svg>\n",
            ]
        )

    def _x(self, at_s: float) -> float:
        return LEFT + WIDTH * (1_000 * at_s - self._begin_ms) / (self._end_ms - self._begin_ms)

    def _patterns(self) -> list[str]:
        """A hatch in the colour of each owner that was killed."""
        return [
            f'<pattern id="{self._hatch(kill.owner)}" width="7" height="7" '
            'patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
            '<rect width="7" height="7" fill="white"/>'
            f'<rect width="2.5" height="7" fill="{self._colours[kill.owner][0]}"/></pattern>'
            for kill in self._killed()
        ]

    def _killed(self) -> list[Kill]:
        return [kill for kill in self._history.kills if kill.owner in self._colours]

    def _hatch(self, owner: str) -> str:
        return f"hatch-{self._history.owners.index(owner)}"

    def _draw_legend(self) -> tuple[list[str], int]:
        """Swatches with their meaning, and the number of rows that they take."""
        items = [(owner, f'fill="{fill}"') for owner, (fill, _) in self._colours.items()]
        items += [
            (
                f"{kill.owner} is {_state(kill)}, nobody works",
                f'fill="url(#{self._hatch(kill.owner)})"',
            )
            for kill in self._killed()
        ]
        items += [("nobody works", 'fill="white" stroke="#767676"')]
        items += [("a rebalance begins", DASHED)]
        if self._history.refusals:
            items += [("a batch is refused", CROSS)]
        x, row, parts = LEFT, 0, []
        for text, paint in items:
            length = round(20 + LETTER * len(text) + 18)
            if x + length > LEFT + WIDTH:
                x, row = LEFT, row + 1
            y = LEGEND_TOP + row * LEGEND_ROW
            if paint is DASHED:
                sign = f'<line x1="{x + 7}" x2="{x + 7}" y1="{y - 3}" y2="{y + 15}" {paint}/>'
            elif paint is CROSS:
                sign = _cross(x + 7, y + 6)
            else:
                sign = f'<rect x="{x}" y="{y}" width="14" height="12" {paint}/>'
            parts.append(f'{sign}<text x="{x + 20}" y="{y + 10}">{escape(text)}</text>')
            x += length
        return parts, row + 1

    def _axis(self) -> list[str]:
        parts = []
        marks = ticks(self._begin_ms, self._end_ms)
        for at_ms in marks:
            x = self._x(at_ms / 1_000)
            parts.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{self._top}" y2="{self._bottom + 2}" '
                'stroke="#dddddd"/>'
                f'<text x="{x:.1f}" y="{self._bottom + 18}" text-anchor="middle">'
                f"{tick_label(at_ms, marks.step)}</text>"
            )
        return parts

    def _lanes(self) -> list[str]:
        parts = [
            f'<text x="{LEFT - 10}" y="{self._y(partition) + 14}" text-anchor="end">'
            f"partition {partition}</text>"
            for partition in range(self._partitions)
        ]
        for stint in self._history.stints:
            fill, ink = self._colours[stint.owner]
            what = f"{stint.owner}, {stint.begin_s:.1f} to {stint.end_s:.1f} s"
            box = (stint.partition, stint.begin_s, stint.end_s)
            parts.append(self._bar(*box, f'fill="{fill}"', what))
            if self._x(stint.end_s) - self._x(stint.begin_s) > LETTER * len(stint.owner) + 12:
                parts.append(
                    f'<text x="{self._x(stint.begin_s) + 6:.1f}" '
                    f'y="{self._y(stint.partition) + 14}" fill="{ink}">{escape(stint.owner)}</text>'
                )
        for kill in self._killed():
            paint = (
                f'fill="url(#{self._hatch(kill.owner)})" stroke="{self._colours[kill.owner][0]}"'
            )
            for rest in self._history.rests(kill):
                what = f"nobody for {_spell(rest)}: {rest.owner} was {_done(kill)}"
                parts.append(self._bar(rest.partition, rest.begin_s, rest.end_s, paint, what))
        return parts

    def _y(self, partition: int) -> int:
        return self._top + partition * (LANE + GAP)

    def _bar(self, partition: int, begin_s: float, end_s: float, paint: str, what: str) -> str:
        width = max(self._x(end_s) - self._x(begin_s), 1)
        return (
            f'<rect x="{self._x(begin_s):.1f}" y="{self._y(partition)}" width="{width:.1f}" '
            f'height="{LANE}" {paint}><title>{escape(what)}</title></rect>'
        )

    def _moments(self) -> list[str]:
        """Vertical lines: rebalances, kills, sessions that expired, and wakings."""
        parts = [
            self._line(at_s, "a rebalance begins", DASHED)
            for at_s in self._history.rebalances
            if 1_000 * at_s >= self._begin_ms
        ]
        for kill in self._history.kills:
            text = f"{kill.signal} at {kill.at_s:.1f} s"
            parts.append(self._line(kill.at_s, text, f'stroke="{ALARM}" stroke-width="2"'))
            parts.append(self._label(self._x(kill.at_s) - 4, text, "end", bold=True))
            if kill.expired_s is not None:
                text = "session expired"
                parts.append(
                    self._line(
                        kill.expired_s,
                        f"{text} at {kill.expired_s:.1f} s",
                        f'stroke="{ALARM}" stroke-dasharray="6,3"',
                    )
                )
                parts.append(self._label(self._x(kill.expired_s) + 4, text, "start"))
        return parts

    def _refusals(self) -> list[str]:
        return [
            f"<g><title>a batch of {escape(it.owner)} is refused at {it.at_s:.1f} s</title>"
            f"{_cross(self._x(it.at_s), self._y(it.partition) + LANE / 2)}</g>"
            for it in self._history.refusals
        ]

    def _steps(self) -> list[str]:
        parts, last = [], 0.0
        for number, moment in enumerate(self._history.moments, start=1):
            # Side by side if they are too close to each other to be read.
            at_x = self._x(moment.at_s)
            x = last = max(at_x, last + 20)
            y = self._steps_y
            parts.append(
                f'<g><title>{escape(moment.text)}</title><line x1="{at_x:.1f}" x2="{at_x:.1f}" '
                f'y1="{y + 8}" y2="{self._bottom + 4}" stroke="#333333" stroke-dasharray="1,3"/>'
                f'<circle cx="{x:.1f}" cy="{y}" r="8.5" fill="#333333"/>'
                f'<text x="{x:.1f}" y="{y + 4}" text-anchor="middle" fill="white" '
                f'font-size="11" font-weight="bold">{number}</text></g>'
            )
        return parts

    def _line(self, at_s: float, what: str, paint: str) -> str:
        x = self._x(at_s)
        return (
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{self._top - 8}" y2="{self._bottom + 4}" '
            f"{paint}><title>{escape(what)}</title></line>"
        )

    def _label(self, x: float, text: str, anchor: str, *, bold: bool = False) -> str:
        weight = ' font-weight="bold"' if bold else ""
        return (
            f'<text x="{x:.1f}" y="{self._top - 10}" text-anchor="{anchor}" '
            f'fill="{ALARM}"{weight}>{escape(text)}</text>'
        )


def _state(kill: Kill) -> str:
    return "dead" if kill.signal == SIGKILL else "stopped"


def _done(kill: Kill) -> str:
    return "killed" if kill.signal == SIGKILL else "stopped"


def _cross(x: float, y: float) -> str:
    arms = f"M{x - 5:.1f},{y - 5:.1f} l10,10 m0,-10 l-10,10"
    return (
        f'<path d="{arms}" stroke="white" stroke-width="5" fill="none"/>'
        f'<path d="{arms}" stroke="{ALARM}" stroke-width="2.5" fill="none"/>'
    )


def _sentence(history: History, kill: Kill) -> str:
    rests, after = history.rests(kill), _afterwards(history, kill)
    if not rests:
        return f"{kill.owner} was {_done(kill)} at {kill.at_s:.1f} s; it had no partitions.{after}"
    lengths = sorted(rest.end_s - rest.begin_s for rest in rests)
    shortest, longest = _seconds(lengths[0]), _seconds(lengths[-1])
    how_long = longest if shortest == longest else f"{shortest} to {longest}"
    takers = [t for t in history.owners if any(rest.taker == t for rest in rests)]
    left = sum(rest.taker is None for rest in rests)
    what, them = ("partition", "it") if len(rests) == 1 else (f"{len(rests)} partitions", "them")
    until = f"until {_list(takers)} went on with {them}" if takers else "until the end"
    if takers and left:
        until += f"; {left} of {them} until the end"
    return (
        f"{kill.owner} was {_done(kill)} at {kill.at_s:.1f} s: its {what} rested for {how_long}, "
        f"{until}.{after}"
    )


def _afterwards(history: History, kill: Kill) -> str:
    """Sentence about an owner that was woken; empty for others."""
    if kill.woken_s is None:
        return ""
    refused = [it for it in history.refusals if it.owner == kill.owner and it.at_s >= kill.woken_s]
    woken = f" It was woken at {kill.woken_s:.1f} s"
    if not refused:
        return f"{woken}."
    what = "1 partition" if len(refused) == 1 else f"{len(refused)} partitions"
    return f"{woken}, and its batch of {what} was refused."


def _spell(rest: Rest) -> str:
    return _seconds(rest.end_s - rest.begin_s)


def _seconds(length_s: float) -> str:
    return spell(round(1_000 * length_s))


def _list(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
