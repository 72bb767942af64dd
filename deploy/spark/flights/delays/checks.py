"""Checks at the end of a run: each is a text and whether it holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from flights.delays import truth
from flights.delays.groupings import GROUPINGS
from flights.delays.tables import FLIGHT_KEY, Tables
from flights.notes import REFUSED, WORKS, Note
from flights.watching import Happening, View

Check = tuple[str, bool]
ADDED_BY_VERSION_2 = "made_up"


def read_rows(files: Iterable[Any]) -> pd.DataFrame:
    """The rows of the files that count. Columns that version 1 does not write are null."""
    tables = []
    for path in files:
        with path.open() as file:
            tables.append(pq.read_table(file))
    return pa.concat_tables(tables, promote_options="default").to_pandas()


def check_rows(
    rows: pd.DataFrame, flights: pd.DataFrame, tables: Tables
) -> tuple[Check, list[str]]:
    """Compare every row and column with the flights that were fed; returns the differences too."""
    true = truth.enriched_flights(flights, tables)
    times = pd.to_datetime(true["time_hour"], utc=True)
    true = true.assign(
        time_hour=times, **{ADDED_BY_VERSION_2: true["dep_delay"] - true["arr_delay"]}
    )
    key = [*FLIGHT_KEY]
    twice = int(rows.duplicated(key).sum())
    pairs = true.merge(
        rows.drop_duplicates(key), on=key, how="outer", suffixes=("", "_found"), indicator="side"
    )
    both = pairs[pairs["side"] == "both"]
    is_new = both["version"] == 2
    wrong = []
    for column in true.columns.difference(key):
        expected, found = both[column], both[f"{column}_found"]
        if column == ADDED_BY_VERSION_2:
            expected = expected.where(is_new)
        differ = int((~((expected == found) | (expected.isna() & found.isna()))).sum())
        if differ:
            wrong.append(f"{column}: {differ:,} rows have another value")
    missing, unknown = (int((pairs["side"] == it).sum()) for it in ("left_only", "right_only"))
    text = (
        f"{len(rows):,} rows of {len(true):,}: {missing:,} missing, {twice:,} twice, "
        f"{unknown:,} never fed; all {len(true.columns)} columns compared"
    )
    return (text, not (missing or twice or unknown or wrong)), wrong


def check_versions(rows: pd.DataFrame) -> Check:
    """Check that both versions have done some of the work."""
    old, new = (int((rows["version"] == version).sum()) for version in (1, 2))
    return f"version 1 wrote {old:,} of the rows, and version 2 {new:,}", bool(old and new)


def check_statistics(
    tables: dict[str, pd.DataFrame], flights: pd.DataFrame, joined: Tables
) -> tuple[Check, list[str]]:
    """Compare the statistics with the direct computation; returns the differences too."""
    true = truth.compute_directly(flights, joined)
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
    text = (
        f"{victim} was killed when {killed_at:.0%} was done, was removed, and came back without "
        "its checkpoint"
    )
    return text, killed_at < 1 and came_back


def check_zombie(zombie: str, woken_s: float, notes: Iterable[Note]) -> Check:
    """Check that the batch which the zombie had in hand was refused, and nothing of it counts.

    Args:
        woken_s: when it was woken, by `time.monotonic`, as in the notes.
    """
    after = [note.kind for note in notes if note.member == zombie and note.at_s >= woken_s]
    refused = after.count(REFUSED)
    text = f"{zombie}'s batch of {refused} partitions was refused when it woke up"
    return text, bool(refused) and after[0] == REFUSED


def check_upgrade(old: str, stopped_s: float, status: int | None, notes: Iterable[Note]) -> Check:
    """Check that version 1 ended in good order, and others went on.

    Args:
        stopped_s: when it had left, by `time.monotonic`. status: of its process.
    """
    after = {note.member for note in notes if note.kind == WORKS and note.at_s >= stopped_s}
    text = f"{old} was stopped (exit status {status}), and the rest was done without it"
    return text, status == 0 and bool(after) and old not in after
