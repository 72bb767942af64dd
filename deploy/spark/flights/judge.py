"""The judge: flights enriched and counted in pandas from the raw tables, beside what Spark made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from flights.dataset import FLIGHT_KEY, JOINS, read

Check = tuple[str, bool]
INTERRUPTED = 130
"""Exit status after Ctrl-C, as of a shell."""


def enriched(flights: pd.DataFrame, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Flights with the columns of version 2 of the query."""
    rows = flights
    for name, key in JOINS.items():
        rows = rows.merge(tables[name], on=key, how="left")
    assert len(rows) == len(flights), "a join has lost or doubled flights"
    return rows.assign(
        time_hour=pd.to_datetime(rows["time_hour"], utc=True),
        plane_age=2013 - rows["plane_built"],
        made_up=rows["dep_delay"] - rows["arr_delay"],
    )


def counted() -> dict[tuple[str, int], tuple[int, int]]:
    """Flights and delayed flights, by carrier and month."""
    flights = read()
    flights["delayed"] = flights["dep_delay"] > 0
    grouped = flights.groupby(["carrier", "month"])["delayed"].agg(["size", "sum"])
    return {(c, int(m)): (int(n), int(d)) for (c, m), n, d in grouped.itertuples()}


def read_rows(files: Iterable[Any]) -> pd.DataFrame:
    """The rows of the files that count. Columns that version 1 does not write are null."""
    tables = []
    for path in files:
        with path.open() as file:
            # In one thread: Arrow's others may still run, and abort, when the interpreter exits.
            tables.append(pq.ParquetFile(file).read(use_threads=False))
    return pa.concat_tables(tables, promote_options="default").to_pandas()


def check_rows(rows: pd.DataFrame, true: pd.DataFrame) -> tuple[Check, list[str]]:
    """Compare every row and column with `enriched`; returns the differences too."""
    twice = int(rows.duplicated(FLIGHT_KEY).sum())
    pairs = true.merge(
        rows.drop_duplicates(FLIGHT_KEY),
        on=FLIGHT_KEY,
        how="outer",
        suffixes=("", "_found"),
        indicator="side",
    )
    both = pairs[pairs["side"] == "both"]
    wrong = []
    for column in true.columns.difference(FLIGHT_KEY):
        expected, found = both[column], both[f"{column}_found"]
        if column == "made_up":
            expected = expected.where(both["version"] == 2)
        differ = int((~((expected == found) | (expected.isna() & found.isna()))).sum())
        if differ:
            wrong.append(f"{column}: {differ:,} rows have another value")
    missing, unknown = (int((pairs["side"] == side).sum()) for side in ("left_only", "right_only"))
    text = (
        f"{len(rows):,} rows of {len(true):,}: {missing:,} missing, {twice:,} twice, "
        f"{unknown:,} never fed; all {len(true.columns)} columns compared"
    )
    return (text, not (missing or twice or unknown or wrong)), wrong


def tell(checks: Sequence[Check], details: Iterable[str] = ()) -> int:
    """Print each check, then details of failures; returns 0 if all hold, else 1."""
    print()
    for text, holds in checks:
        print(f"{'ok ' if holds else 'NOT'}  {text}")
    for line in details:
        print(f"     {line}")
    good = all(holds for _, holds in checks)
    print("\nVerdict:", "exactly right." if good else "WRONG.")
    return 0 if good else 1


def exit_status(main: Callable[[], int]) -> int:
    """Run a part of the demo; returns its exit status, or 130 after Ctrl-C."""
    try:
        return main()
    except KeyboardInterrupt:
        print("\nStopped by Ctrl-C.")
        return INTERRUPTED
