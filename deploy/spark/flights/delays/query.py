"""A driver: one streaming query that enriches flights, as a member of the group, exactly once.

    python -m flights.delays.query --coordinator ADDRESS --group GROUP --log FOLDER \
        --results FOLDER --checkpoint FOLDER --notes FOLDER --name NAME --version 1|2 --hold FILE

Any number of them, of any version, share the partitions. SIGTERM ends one; one that was killed is
started again with the same arguments and goes on, with its checkpoint or without. While the file
`--hold` is there, a batch waits between writing its rows and deciding that they count, so that
the demo can strike there.
"""

from __future__ import annotations

import argparse
import signal
import threading
import time
from pathlib import Path
from typing import Any

from coordinator.spark.exactly_once import ExactlyOnceSink
from coordinator.spark.ranges import BatchRanges
from coordinator.spark.stream import ConsumerGroupSource
from flights.dataset import TOPIC
from flights.delays.enrich import Lookups, as_version, enrich
from flights.delays.tables import FLIGHTS_SCHEMA, read_tables
from flights.notes import REFUSED, STAGED, WORKS, Notebook
from flights.sessions import start_spark

MEMORY = "768m"
TRIGGER = "1 second"
ROWS_PER_BATCH = 20_000
SESSION_TIMEOUT_MS = 5_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("coordinator", "group", "log", "results", "checkpoint", "notes", "name"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--version", type=int, choices=(1, 2), required=True)
    parser.add_argument("--hold", type=Path, required=True)
    options = parser.parse_args()
    asked_to_stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_stop.set())
    settings = {"spark.driver.memory": MEMORY}
    scratch = Path(options.checkpoint).parent / f"spark-{options.name}"
    spark = start_spark("local[1]", options.name, scratch, settings)
    query = start_query(spark, options)
    while query.isActive and not asked_to_stop.wait(0.2):
        pass
    query.stop()
    if query.exception() is not None:
        raise query.exception()
    spark.stop()


def start_query(spark: Any, options: argparse.Namespace) -> Any:
    """The streaming query: read as a member, enrich, write exactly once."""
    from pyspark.sql.pandas.types import from_arrow_schema

    spark.dataSource.register(ConsumerGroupSource)
    flights = (
        spark.readStream.format("consumer_group")
        .schema(from_arrow_schema(FLIGHTS_SCHEMA))  # The log may still be empty.
        .option("coordinator", options.coordinator)
        .option("group", options.group)
        .option("instance", options.name)
        .option("source", f"segments:{options.log}")
        .option("topic", TOPIC)
        .option("maxRowsPerBatch", ROWS_PER_BATCH)
        .option("sessionTimeoutMs", SESSION_TIMEOUT_MS)
        .load()
    )
    enriched = as_version(enrich(flights, Lookups.load(spark, read_tables())), options.version)
    sink = NotingSink(
        options.results, options.checkpoint, options.coordinator, options.group, TOPIC
    )
    sink.notebook = Notebook(Path(options.notes), f"spark-{options.name}")
    sink.hold = options.hold

    def write(rows: Any, batch_id: int) -> None:
        sink(rows.coalesce(1), batch_id)  # A file a batch, not one for each partition.

    return (
        enriched.writeStream.foreachBatch(write)
        .option("checkpointLocation", options.checkpoint)
        .trigger(processingTime=TRIGGER)
        .start()
    )


class NotingSink(ExactlyOnceSink):
    """Notes what becomes of each batch, for the picture of who worked on what."""

    notebook: Notebook
    hold: Path

    def write(self, rows: Any, batch: BatchRanges) -> bool:
        began_s = time.monotonic()

        def at(step: str) -> None:
            if step == "staged":
                self.notebook.note(STAGED, batch.ranges)
                while self.hold.exists():
                    time.sleep(0.05)

        self.decider.at = at
        counts = super().write(rows, batch)
        if counts:
            self.notebook.note(WORKS, batch.ranges, began_s)
            self.notebook.note(WORKS, batch.ranges)
        else:
            self.notebook.note(REFUSED, batch.ranges)
        return counts


if __name__ == "__main__":
    main()
