"""Reports of benchmarks, and their output as table, JSON and pictures.

A benchmark returns `Figures`, or a `Report` if there is something to draw.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tests.bench.figures import CannotMeasure, Figure, Figures, Goal, shown

WIDE_ENOUGH: Final = 160
"""Columns of a table that goes into a file: nothing is cut off."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Points (x, y), in the order in which they are joined."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Spans:
    """Horizontal bars (y, from x, to x)."""

    name: str
    bars: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes. A `diagonal` shows where y would be x; `x_end` and `y_end` end the axes."""

    title: str
    x_axis: str
    y_axis: str
    curves: tuple[Curve, ...] = ()
    diagonal: bool = False
    spans: tuple[Spans, ...] = ()
    x_end: float | None = None
    y_end: float | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """A file `name`.svg and `name`.png: panels in rows of `columns`."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    columns: int = 2


@dataclass(frozen=True, slots=True)
class Report:
    """The figures of a benchmark, by what they say, and its pictures."""

    figures: Figures
    pictures: tuple[Picture, ...] = ()


def print_tables(results: Mapping[str, Figures]) -> None:
    """A table for each benchmark, to standard output."""
    width = None if sys.stdout.isatty() else WIDE_ENOUGH
    console = Console(width=width, highlight=False, markup=False)
    for name, figures in results.items():
        table = Table(title=name, title_justify="left", box=None, pad_edge=False)
        table.add_column("what", overflow="fold")
        table.add_column("measured", justify="right", overflow="fold")
        has_goals = any(isinstance(figure, Goal) for figure in figures.values())
        if has_goals:
            table.add_column("goal")
            table.add_column("")
        for what, figure in figures.items():
            if isinstance(figure, Goal):
                met = "met" if figure.is_met else "missed"
                table.add_row(what, shown(figure.value), figure.text, met)
            else:
                table.add_row(what, shown(figure))
        console.print()
        console.print(table)


def write_json(
    results: Mapping[str, Figures], file: Path, pictures: Sequence[Picture] = ()
) -> None:
    """Names of benchmarks to figures; one with a goal is an object that says whether it is met.

    What is drawn is under `pictures`, by picture, panel and curve: the points.
    """
    found: dict[str, object] = {
        name: {what: _plain(figure) for what, figure in figures.items()}
        for name, figures in results.items()
    }
    if pictures:
        found["pictures"] = {
            picture.name: {
                f"{panel.title}: {panel.y_axis}": {
                    **{curve.name: curve.points for curve in panel.curves},
                    **{spans.name: spans.bars for spans in panel.spans},
                }
                for panel in picture.panels
            }
            for picture in pictures
        }
    file.write_text(json.dumps(found, indent=2) + "\n")


def _plain(figure: Figure) -> object:
    if not isinstance(figure, Goal):
        return figure
    bound = {"at_most": figure.at_most, "at_least": figure.at_least}
    goal = {name: value for name, value in bound.items() if value is not None}
    return {"value": figure.value, **goal, "met": figure.is_met}


def draw(pictures: Sequence[Picture], folder: Path) -> list[Path]:
    """Draw each picture as SVG and PNG.

    Returns:
        The files written.
    Raises:
        CannotMeasure: the drawing library is missing.
    """
    try:
        import matplotlib as mpl
    except ImportError:
        raise CannotMeasure("pictures need matplotlib, of the extra `test`") from None
    # Text as text, and the same bytes for the same figures. Any: one type in one release of
    # matplotlib, another in the next.
    style: Any = {"svg.fonttype": "none", "svg.hashsalt": "coordinator", "font.size": 9}
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(style):
        return [path for picture in pictures for path in _draw(picture, folder)]


def _draw(picture: Picture, folder: Path) -> list[Path]:
    from matplotlib.figure import Figure as Canvas

    columns = min(picture.columns, len(picture.panels))
    rows = -(-len(picture.panels) // columns)
    canvas = Canvas(figsize=(5.2 * columns, 3.6 * rows), layout="constrained")
    canvas.suptitle(picture.title)
    grid = canvas.subplots(rows, columns, squeeze=False)
    names = [[each.name for each in panel.curves + panel.spans] for panel in picture.panels]
    is_one_legend = all(of_panel == names[0] for of_panel in names)
    for panel, axes in zip(picture.panels, grid.flat, strict=False):
        if panel.diagonal:
            ends = [x for curve in panel.curves for x, _ in curve.points]
            axes.plot([0, max(ends)], [0, max(ends)], color="0.7", linestyle=":", linewidth=1)
        for curve in panel.curves:
            across, up = zip(*curve.points, strict=True)
            axes.plot(across, up, marker="o", markersize=3, linewidth=1.3, label=curve.name)
        for color, spans in enumerate(panel.spans):
            axes.hlines(
                [y for y, _, _ in spans.bars], [x for _, x, _ in spans.bars],
                [x for _, _, x in spans.bars], colors=f"C{color}", linewidth=1, label=spans.name,
            )  # fmt: skip
        axes.set_title(panel.title)
        axes.set_xlabel(panel.x_axis)
        axes.set_ylabel(panel.y_axis)
        axes.set_xlim(left=0, right=panel.x_end)
        axes.set_ylim(bottom=0, top=panel.y_end)
        axes.grid(color="0.9")
        if not is_one_legend:
            axes.legend(frameon=False)
    if is_one_legend:
        lines, _ = grid.flat[0].get_legend_handles_labels()
        canvas.legend(lines, names[0], loc="outside lower center", ncols=len(lines), frameon=False)
    for axes in list(grid.flat)[len(picture.panels) :]:
        axes.remove()
    svg, png = folder / f"{picture.name}.svg", folder / f"{picture.name}.png"
    canvas.savefig(svg, metadata={"Date": None})
    canvas.savefig(png, dpi=110, metadata={"Software": None})
    return [svg, png]
