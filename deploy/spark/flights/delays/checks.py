"""Checks at the end of a run: each is a text and whether it holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from flights import dataset
from flights.delays import truth
from flights.delays.groupings import GROUPINGS
from flights.delays.statistics import SUMMARY
from flights.delays.tables import read_tables
from flights.watching import Happening, View

Check = tuple[str, bool]


def check_flights(statistics: Path) -> Check:
    """Check that no flight is missing, and that none is there twice."""
    summary = json.loads((statistics / SUMMARY).read_text())
    found, different = summary["flights"], summary["different_flights"]
    text = f"{found:,} rows, {different:,} different, of {dataset.FLIGHTS:,}"
    return f"every flight is there once: {text}", found == different == dataset.FLIGHTS


def check_statistics(
    tables: dict[str, pd.DataFrame], flights: pd.DataFrame
) -> tuple[Check, list[str]]:
    """Compare the statistics with the direct computation; returns the differences too."""
    true = truth.compute_directly(flights, read_tables())
    wrong = [
        f"{name}: {line}"
        for name, keys in GROUPINGS.items()
        for line in truth.differences(tables[name], true[name], keys)
    ]
    groups = sum(map(len, true.values()))
    return (f"{groups} groups in {len(true)} tables equal the direct computation", not wrong), wrong


def check_kill(
    victim: str, killed_at: float, views: Sequence[View], happenings: Sequence[Happening]
) -> Check:
    """Check that the killed member was removed, and owned partitions again later."""
    removed = [h.at_s for h in happenings if (h.kind, h.client_id) == ("evicted", victim)]
    came_back = bool(removed) and any(
        view.at_s > removed[0] and victim in view.owning_clients() for view in views
    )
    text = f"{victim} was killed when {killed_at:.0%} was done, was removed, and came back"
    return text, killed_at < 1 and came_back
