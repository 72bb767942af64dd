"""The pictures of the pages: `poe pictures` makes them again.

`deploy/explain.svg` and `deploy/timeline.svg` show what `coordinator explain` and `timeline` say of
an incident that is played on virtual time, so they are the same on every machine.
`deploy/workers.svg` is a run of the README's worker, drawn by
`tests/integration/clients/recorded_workers.py`, and `deploy/owners.svg` that of a `deploy/demo`.
The pictures of the console (`tests/integration/browser/pictures.py`) are photographs of a real one.
"""

from __future__ import annotations

import functools
import re
import sys
import textwrap
from collections.abc import Sequence
from html import escape

from coordinator.client.member.calls import Join, Sync
from coordinator.observe.timeline_svg import as_svg
from coordinator.v1 import admin_pb2
from tests.kit.client_scenario import ClientScenario, Player
from tests.kit.documents import ROOT

EXPLAIN = ROOT / "deploy/explain.svg"
TIMELINE = ROOT / "deploy/timeline.svg"
GROUP = "orders"
COLUMNS = 96
CHARACTER, LINE, MARGIN, BAR = 8.4, 21, 20, 40
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


@functools.cache
def incident() -> admin_pb2.Rebalance:
    """A rebalance of three members: one had died, and another was slow."""
    scenario = ClientScenario("cooperative-sticky")
    members = [_member(scenario, number) for number in (1, 2, 3)]
    for member in members:
        scenario.until(lambda member=member: member.assignment, polling=tuple(members))
    scenario.until(
        lambda: len({len(one_member.assignment) for one_member in members}) == 1,
        polling=tuple(members),
    )
    leader, killed, slow = members
    for _ in range(10):  # Time for heartbeats.
        scenario.advance(1_000)
    killed.kill()
    slow.hold(Join)
    leader.hold(Sync)
    left = (leader, slow)
    while not any(isinstance(letter.request, Join) for letter in slow.letters):
        scenario.advance(1_000)
    scenario.advance(3_600)
    slow.release()
    scenario.advance(40)
    scenario.coordinator.hold_appends()
    leader.release()
    scenario.advance(3)
    scenario.coordinator.release_appends()
    scenario.until(lambda: sum(len(item.assignment) for item in left) == 12, polling=left)
    answer = scenario.coordinator.send(admin_pb2.ListRebalancesRequest(group_id=GROUP)).response
    return next(
        rebalance for rebalance in answer.rebalances if rebalance.cause == "session expired"
    )


def explanation() -> list[str]:
    """Sentences about the incident. The virtual clock begins with the epoch."""
    return [
        re.sub(r"\b00:(\d\d:\d\d)", r"14:\1", line.replace("1970-01-01", "2026-03-02"))
        for line in incident().explanation
    ]


def _member(scenario: ClientScenario, number: int) -> Player:
    player = scenario.member(
        group_id=GROUP, topics={"orders": 12}, client_id=f"etl-{number}", instance_id=None,
        session_timeout_ms=10_000, rebalance_timeout_ms=60_000, heartbeat_interval_ms=3_000,
        max_poll_interval_ms=None,
    )  # fmt: skip
    player.host = f"/10.0.0.2{number}"
    return player


def terminal(command: str, output: Sequence[str]) -> str:
    """A terminal with a command and its output, as SVG with the fonts of whoever looks at it."""
    lines = [line for text in output for line in textwrap.wrap(text, COLUMNS)]
    width = round(2 * MARGIN + COLUMNS * CHARACTER)
    height = BAR + MARGIN + (len(lines) + 1) * LINE
    rows = [_row(0, f"$ {command}", "#8fd0ff")]
    rows += [_row(n, line, "#e6e6e6") for n, line in enumerate(lines, start=1)]
    lights = [
        f'<circle cx="{MARGIN + 18 * n}" cy="{BAR // 2}" r="5" fill="{colour}"/>'
        for n, colour in enumerate(("#ec6a5e", "#f4bf4f", "#61c554"))
    ]
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONT}" font-size="14">',
            f"<title>{escape(command)}</title>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#1e2430"/>',
            *lights,
            *rows,
            "</svg>\n",
        ]
    )


def _row(number: int, text: str, colour: str) -> str:
    y = BAR + LINE // 2 + number * LINE
    # The length is given, so that the picture is as wide in every font.
    return (
        f'<text x="{MARGIN}" y="{y}" fill="{colour}" xml:space="preserve" '
        f'textLength="{len(text) * CHARACTER:.0f}">{escape(text)}</text>'
    )


def draw_explain() -> str:
    """The picture of `coordinator explain`."""
    return terminal(f"coordinator explain {GROUP}", explanation())


def draw_timeline() -> str:
    """The picture of `coordinator timeline`."""
    return as_svg(incident()) + "\n"


DRAWN = {
    EXPLAIN: draw_explain,
    TIMELINE: draw_timeline,
}


def main() -> None:
    for path, drawing in DRAWN.items():
        path.write_text(drawing())
    from tests.integration.browser import pictures  # Only here: it needs a browser.

    pictures.main()


if __name__ == "__main__":
    sys.exit(main())
