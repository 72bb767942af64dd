"""Joins flights with airline, destination, aircraft and weather at departure.

Version 2 of the query adds a column to version 1. Pure functions of DataFrames, streaming or not.
All joins are left joins on a unique key, so no flight is lost or duplicated, and their right sides
are small enough to be broadcast: there is no shuffle, and the query stays stateless.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa

from flights.delays.tables import Tables

YEAR = 2013


@dataclass(frozen=True)
class Lookups:
    """The joined tables as Spark DataFrames."""

    airlines: Any
    airports: Any
    planes: Any
    weather: Any

    @classmethod
    def load(cls, spark: Any, tables: Tables) -> Lookups:
        """Load the tables; once for each Spark session."""

        def frame(rows: pd.DataFrame) -> Any:
            # Through Arrow, since a missing number then becomes null in Spark, not NaN.
            return spark.createDataFrame(pa.Table.from_pandas(rows, preserve_index=False))

        return cls(
            frame(tables.airlines),
            frame(tables.airports),
            frame(tables.planes.astype({"plane_built": "Int32"})),
            frame(tables.weather),
        )


def enrich(flights: Any, lookups: Lookups) -> Any:
    """Add the joined columns to each flight; null where there is no match."""
    from pyspark.sql import functions as f

    return (
        flights.join(f.broadcast(lookups.airlines), "carrier", "left")
        .join(f.broadcast(lookups.airports), "dest", "left")
        .join(f.broadcast(lookups.planes), "tailnum", "left")
        .join(f.broadcast(lookups.weather), ["origin", "time_hour"], "left")
        .withColumn("time_hour", f.to_timestamp("time_hour"))
        .withColumn("plane_age", YEAR - f.col("plane_built"))
    )


def as_version(enriched: Any, version: int) -> Any:
    """Sign rows with the query's version; 2 adds `made_up`, the minutes made up in the air."""
    from pyspark.sql import functions as f

    signed = enriched.withColumn("version", f.lit(version))
    if version == 1:
        return signed
    return signed.withColumn("made_up", f.col("dep_delay") - f.col("arr_delay"))
