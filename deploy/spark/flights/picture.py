"""SVG of partition owners over time: one lane for each partition, one colour for each member."""

from __future__ import annotations

from html import escape
from pathlib import Path

from flights.watching import Happening, View

COLOURS = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb"]
LEFT, TOP, WIDTH, LANE, GAP = 110, 70, 900, 20, 4


def draw(path: Path, views: list[View], happenings: list[Happening], partitions: int) -> None:
    """Write the SVG. Gaps in a lane are rebalances, when the partition had no owner."""
    end_s = max(views[-1].at_s, 0.001)
    members = list(dict.fromkeys(owner for view in views for owner in view.owners.values()))
    colour = {member: COLOURS[i % len(COLOURS)] for i, member in enumerate(members)}
    height = TOP + partitions * (LANE + GAP)

    def x(at_s: float) -> float:
        return LEFT + WIDTH * at_s / end_s

    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 30}" '
            f'height="{height + 120}" font-family="sans-serif" font-size="12" role="img" '
            'aria-label="Owners of partitions over time">'
        ),
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="16">Who owned which partition</text>',
    ]
    for i, member in enumerate(members):
        parts.append(
            f'<rect x="{LEFT + i * 190}" y="38" width="12" height="12" fill="{colour[member]}"/>'
            f'<text x="{LEFT + 18 + i * 190}" y="49">{escape(member)}</text>'
        )
    for partition in range(partitions):
        y = TOP + partition * (LANE + GAP)
        parts.append(
            f'<text x="{LEFT - 10}" y="{y + 14}" text-anchor="end">partition {partition}</text>'
        )
        for first_s, last_s, owner in _stretches(views, partition):
            width = max(x(last_s) - x(first_s), 1)
            parts.append(
                f'<rect x="{x(first_s):.1f}" y="{y}" width="{width:.1f}" height="{LANE}" '
                f'fill="{colour[owner]}"><title>{escape(owner)}</title></rect>'
            )
    for happening in happenings:
        if happening.kind in ("rebalance", "kill"):
            at, ink = x(happening.at_s), "#cc0000" if happening.kind == "kill" else "#555555"
            dash = "" if happening.kind == "kill" else ' stroke-dasharray="3,3"'
            parts.append(
                f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP - 6}" y2="{height + 4}" '
                f'stroke="{ink}"{dash}><title>{escape(happening.text)}</title></line>'
            )
            if happening.kind == "kill":
                parts.append(
                    f'<text x="{at:.1f}" y="{height + 34}" fill="{ink}" '
                    f'text-anchor="middle">{escape(happening.text)}</text>'
                )
    for tick in range(6):
        at_s = end_s * tick / 5
        parts.append(
            f'<text x="{x(at_s):.1f}" y="{height + 18}" text-anchor="middle">{at_s:.0f} s</text>'
        )
    parts.append(
        f'<text x="{LEFT}" y="{height + 60}" fill="#555555">dashed: a rebalance begins; '
        "white: no assignment is in force; cooperative members go on with what they hold"
        "</text></svg>"
    )
    path.write_text("\n".join(parts))


def _stretches(views: list[View], partition: int) -> list[tuple[float, float, str]]:
    """Intervals in which one member owned the partition, as (from, to, owner)."""
    stretches: list[tuple[float, float, str]] = []
    for view, following in zip(views, [*views[1:], views[-1]], strict=True):
        owner = view.owners.get(partition)
        if owner is None:
            continue
        if stretches and stretches[-1][2] == owner and stretches[-1][1] >= view.at_s:
            stretches[-1] = (stretches[-1][0], following.at_s, owner)
        else:
            stretches.append((view.at_s, following.at_s, owner))
    return stretches
