"""Joins flights with airline, destination, aircraft and weather at departure.

Pure functions of DataFrames, streaming or not. All joins are left joins on a unique key, so no
flight is lost or duplicated, and their right sides are small enough to be broadcast: there is no
shuffle, and the query stays stateless.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import pyarrow as pa

from flights.dataset import JOINS

YEAR = 2013


def loaded(spark: Any, tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """The joined tables as Spark DataFrames; once for each Spark session."""
    return {
        # Through Arrow, since a missing number then becomes null in Spark, not NaN.
        name: spark.createDataFrame(pa.Table.from_pandas(rows, preserve_index=False))
        for name, rows in tables.items()
    }


def enrich(flights: Any, tables: Mapping[str, Any], version: int) -> Any:
    """Add the joined columns to each flight (null where there is no match), and the version.

    Version 2 adds `made_up`, the minutes made up in the air.
    """
    from pyspark.sql import functions as f

    for name, key in JOINS.items():
        flights = flights.join(f.broadcast(tables[name]), key, "left")
    added = {
        "time_hour": f.to_timestamp("time_hour"),
        "plane_age": YEAR - f.col("plane_built"),
        "version": f.lit(version),
        "made_up": f.col("dep_delay") - f.col("arr_delay"),
    }
    if version == 1:
        del added["made_up"]
    return flights.withColumns(added)
