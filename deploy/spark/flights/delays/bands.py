"""Bands: named classes of a number such as a wind speed.

A band's definition is data, and both sides read it: the query's statistics through Spark
(`in_spark`) and the check through pandas (`in_pandas`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Band:
    """Class `labels[i]` begins at `edges[i]` and ends before `edges[i + 1]`; the last is open.

    Args:
        column: of the number. unit: of the number, for axis labels.
    """

    column: str
    unit: str
    edges: tuple[float, ...]
    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        assert len(self.edges) == len(self.labels)
        assert list(self.edges) == sorted(set(self.edges))

    @property
    def name(self) -> str:
        """Name of the column with the classes."""
        return f"{self.column}_band"


WIND = Band(
    "wind_speed", "mph", (0, 5, 10, 15, 20, 25), ("0–5", "5–10", "10–15", "15–20", "20–25", "25+")
)
VISIBILITY = Band("visibility", "miles", (0, 1, 3, 6, 10), ("0–1", "1–3", "3–6", "6–10", "10"))
PRECIPITATION = Band(
    "precipitation",
    "inches an hour",
    (0, 0.01, 0.05, 0.1),
    ("none", "0.01–0.05", "0.05–0.1", "0.1+"),
)
PLANE_AGE = Band(
    "plane_age", "years", (0, 5, 10, 15, 20, 25), ("0–4", "5–9", "10–14", "15–19", "20–24", "25+")
)
BANDS = (WIND, VISIBILITY, PRECIPITATION, PLANE_AGE)


def in_spark(band: Band) -> Any:
    """Class of each row as a Spark column; unknown if null or below the first edge."""
    from pyspark.sql import functions as f

    number = f.col(band.column)
    chosen = f.when(number.isNull() | (number < band.edges[0]), UNKNOWN)
    for label, end in zip(band.labels, band.edges[1:], strict=False):
        chosen = chosen.when(number < end, label)
    return chosen.otherwise(band.labels[-1]).alias(band.name)


def in_pandas(band: Band, numbers: pd.Series) -> pd.Series:
    """Class of each number in pandas; unknown as in `in_spark`."""
    classes = pd.cut(numbers, [*band.edges, float("inf")], right=False, labels=list(band.labels))
    return classes.astype("object").fillna(UNKNOWN).rename(band.name)
