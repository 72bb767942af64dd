"""A driver with two streaming queries that enrich flights exactly once, one in each group.

    python -m flights.query --coordinator ADDRESS --folder FOLDER --name NAME --version 1|2

Both read the same log and do the same, one as a member of a classic group and one of a session
group, so that what happens to the driver happens to both. Any number of drivers, of any version,
share the partitions. SIGTERM ends one; one that was killed is started again with the same arguments
and goes on, with its checkpoints or without. While the file `hold-NAME` is there, batches wait
between writing their rows and deciding that they count, so that the demo can strike there.
"""

from __future__ import annotations

import argparse
import signal
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from coordinator.spark import streaming
from coordinator.spark.exactly_once import ExactlyOnce
from coordinator.spark.ranges import GroupBatch
from coordinator.spark.sinks.parquet import ParquetSink
from flights.dataset import SCHEMA, TOPIC, read_tables
from flights.enrich import enrich, loaded
from flights.notes import REFUSED, STAGED, WORKS, Notebook
from flights.sessions import start_spark

PROTOCOLS = ("classic", "session")
MEMORY = "768m"
TRIGGER = "1 second"
ROWS_PER_BATCH = 40_000
SESSION_TIMEOUT_MS = 5_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--coordinator", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--version", type=int, choices=(1, 2), required=True)
    options = parser.parse_args()
    asked_to_stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_stop.set())
    settings = {"spark.driver.memory": MEMORY}
    spark = start_spark(
        "local[2]", options.name, options.folder / f"spark-{options.name}", settings
    )
    tables = loaded(spark, read_tables())
    queries = [start_query(spark, tables, protocol, options) for protocol in PROTOCOLS]
    while all(query.isActive for query in queries) and not asked_to_stop.wait(0.2):
        pass
    for query in queries:
        query.stop()
        if query.exception() is not None:
            raise query.exception()
    spark.stop()


def group_of(protocol: str) -> str:
    """The group of all queries of a protocol."""
    return f"delays-{protocol}"


def start_query(
    spark: Any, tables: Mapping[str, Any], protocol: str, options: argparse.Namespace
) -> Any:
    """A streaming query: read as a member of a group, enrich, write exactly once."""
    from pyspark.sql.pandas.types import from_arrow_schema

    group, folder = group_of(protocol), options.folder
    flights = streaming(
        spark,
        coordinator=options.coordinator,
        group=group,
        protocol=protocol,
        instance=options.name,
        source=f"parquet:{folder / 'log'}",
        topic=TOPIC,
        schema=from_arrow_schema(SCHEMA),  # The log may still be empty.
        maxRowsPerBatch=ROWS_PER_BATCH,
        sessionTimeoutMs=SESSION_TIMEOUT_MS,
    )
    checkpoint = str(folder / f"checkpoint-{options.name}" / protocol)
    results = str(folder / "results" / protocol)
    notebook = Notebook(folder / "notes" / protocol, options.name)
    sink = NotingSink(results, notebook, folder / f"hold-{options.name}")

    def write(rows: Any, batch_id: int) -> None:
        enriched = enrich(rows, tables, options.version)
        sink(enriched.coalesce(1), batch_id)  # A file a batch, not one for each partition.

    return (
        flights.foreach_batch(write)
        .queryName(group)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=TRIGGER)
        .start()
    )


class NotingSink(ExactlyOnce):
    """Notes what becomes of each batch, for the picture of who worked on what.

    hold: a batch that is staged waits while this file is there.
    """

    def __init__(self, results: str, notebook: Notebook, hold: Path) -> None:
        super().__init__(ParquetSink(results), at=self._staged)
        self._notebook, self._hold = notebook, hold
        self._partitions: Collection[int] = ()

    def write(self, rows: Any, announced: GroupBatch) -> bool:
        began_s = time.monotonic()
        self._partitions = announced.batch.ranges
        counts = super().write(rows, announced)
        if counts:
            self._notebook.note(WORKS, self._partitions, began_s)
        self._notebook.note(WORKS if counts else REFUSED, self._partitions)
        return counts

    def _staged(self, step: str) -> None:
        if step == "staged":
            self._notebook.note(STAGED, self._partitions)
            while self._hold.exists():
                time.sleep(0.05)


if __name__ == "__main__":
    main()
