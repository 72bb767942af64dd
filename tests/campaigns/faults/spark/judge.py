"""Claims about the rows that a run leaves behind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pyarrow.dataset as ds


@dataclass(frozen=True)
class Verdict:
    """Verdict on the rows in the log, by partition and number."""

    rows: int
    missing: int
    duplicates: int
    repeated_batches: int
    """Batches of a partition that held rows which others had done."""
    moves: int
    """Times that a partition went from one run of a query to another."""
    worst: str
    """The partition with most repeated batches beyond its moves; empty if there is none."""


def judge_counted(rows: Counter[tuple[int, int]], lengths: dict[int, int]) -> Verdict:
    """Compare the rows (partition, number) of a table with the lengths of the partitions."""
    expected = {(p, n) for p, length in lengths.items() for n in range(length)}
    assert rows.keys() <= expected, "rows that were never in the log"
    return Verdict(rows.total(), len(expected - rows.keys()), rows.total() - len(rows), 0, 0, "")


def judge(paths: list[Path], lengths: dict[int, int]) -> Verdict:
    """Compare rows (partition, row, run, batch) with the lengths of the partitions."""
    columns = ["partition", "row", "run", "batch"]
    rows = pd.concat(
        [ds.dataset(path, format="parquet").to_table(columns).to_pandas() for path in paths]
    )
    different = rows[["partition", "row"]].drop_duplicates()
    expected = pd.MultiIndex.from_tuples(
        [(p, n) for p, length in lengths.items() for n in range(length)]
    )
    found = pd.MultiIndex.from_frame(different)
    missing = len(expected.difference(found))
    assert found.difference(expected).empty, "rows that were never in the log"
    repeated, moves, worst = 0, 0, ""
    for partition, some in rows.groupby("partition"):
        mine_repeated, mine_moves = _history(some)
        repeated += mine_repeated
        moves += mine_moves
        if mine_repeated > mine_moves:
            worst = f"partition {partition}: {mine_repeated} batches again, {mine_moves} moves"
    return Verdict(len(rows), missing, len(rows) - len(different), repeated, moves, worst)


def _history(rows: pd.DataFrame) -> tuple[int, int]:
    """Batches of a partition with rows that are in another too, and changes of run."""
    batches = rows.groupby(["run", "batch"])["row"].agg(["min", "max"])
    batches = batches.reset_index().sort_values(["min", "max"])
    repeated, end = 0, -1
    for first, last in zip(batches["min"], batches["max"], strict=True):
        repeated += first <= end
        end = max(end, last)
    runs = batches["run"].tolist()
    return repeated, sum(a != b for a, b in pairwise(runs))
