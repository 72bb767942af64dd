"""Figures of benchmarks as tables and as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from tests.bench.figures import Figure, Figures, Goal, shown

WIDE_ENOUGH: Final = 160
"""Columns of a table that goes into a file: nothing is cut off."""


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


def write_json(results: Mapping[str, Figures], file: Path) -> None:
    """Names of benchmarks to figures; one with a goal is an object that says whether it is met."""
    found = {
        name: {what: _plain(figure) for what, figure in figures.items()}
        for name, figures in results.items()
    }
    file.write_text(json.dumps(found, indent=2) + "\n")


def _plain(figure: Figure) -> object:
    if not isinstance(figure, Goal):
        return figure
    bound = {"at_most": figure.at_most, "at_least": figure.at_least}
    goal = {name: value for name, value in bound.items() if value is not None}
    return {"value": figure.value, **goal, "met": figure.is_met}
