"""Statistics of the committed rows: one Parquet table for each grouping.

    python -m flights.delays.statistics --coordinator ADDRESS --group GROUP --results FOLDER \
        --tables FOLDER
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from coordinator.spark.exactly_once import read_exactly_once
from flights.delays.bands import BANDS, in_spark
from flights.delays.groupings import GROUPINGS, LATE_MINUTES, PERCENTILES
from flights.sessions import start_spark


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("coordinator", "group", "results"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--tables", type=Path, required=True)
    options = parser.parse_args()
    settings = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    spark = start_spark("local[2]", "statistics", options.tables.parent / "spark", settings)
    rows = read_exactly_once(spark, options.results, options.coordinator, options.group)
    if rows is None:
        raise SystemExit("no batch counts: there is nothing to say")
    rows = rows.select(*needed_columns()).cache()
    for name, keys in GROUPINGS.items():
        table = summarise(rows, keys).coalesce(1)
        table.write.mode("overwrite").parquet(str(options.tables / name))
    spark.stop()


def needed_columns() -> list[str]:
    """Columns of the enriched flights that the statistics need."""
    banded = {band.name: band.column for band in BANDS}
    keys = [banded.get(key, key) for keys in GROUPINGS.values() for key in keys]
    return list(dict.fromkeys([*keys, "dep_delay"]))


def summarise(enriched: Any, keys: list[str]) -> Any:
    """One row for each value of the keys, which are columns or bands. Percentiles are exact."""
    from pyspark.sql import functions as f

    delay = f.col("dep_delay")
    measures = [
        f.count("*").alias("flights"),
        f.count_if(delay.isNull()).alias("cancelled"),
        f.mean(delay).alias("mean_delay"),
        *[f.percentile(delay, share).alias(name) for name, share in PERCENTILES.items()],
        # A comparison with null is null, and a mean leaves nulls out.
        f.mean((delay > LATE_MINUTES).cast("double")).alias("late_share"),
    ]
    banded = enriched.select("*", *[in_spark(band) for band in BANDS if band.name in keys])
    return banded.groupBy(*keys).agg(*measures).orderBy(*keys)


if __name__ == "__main__":
    main()
