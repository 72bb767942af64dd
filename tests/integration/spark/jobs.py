"""Queries of a group on a real Spark, and what the group has stored."""

from __future__ import annotations

from coordinator.operator.admin import GroupAdmin
from coordinator.spark import streaming
from coordinator.spark.exactly_once import ExactlyOnce, read_exactly_once
from coordinator.spark.sinks.parquet import ParquetSink


class Job:
    """A query that writes exactly once; it may be started again on its checkpoint.

    by_spark: rows are read by Spark's own reader, else by the library's source.
    """

    def __init__(
        self, spark, log, server, folder, name="query", *, by_spark=False, **options
    ) -> None:
        self.by_spark = by_spark
        self.spark, self.folder, self.address = spark, folder, server.address
        self.checkpoint = str(folder / f"checkpoint-{name}")
        self.options = {
            "coordinator": server.address,
            "group": "g",
            "source": str(log),
            "topic": "t",
            "maxRowsPerBatch": "1000",
            "sessionTimeoutMs": "3000",
            **options,
        }

    def sink(self):
        return ExactlyOnce(ParquetSink(str(self.folder)))

    def start(self, **trigger):
        sink = self.sink()
        if self.by_spark:
            writer = streaming(self.spark, **self.options).foreach_batch(sink)
        else:
            reader = self.spark.readStream.format("consumer_group").options(**self.options).load()
            writer = reader.writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", self.checkpoint)
        return writer.trigger(**trigger).start()

    def rows(self):
        return read_exactly_once(self.spark, str(self.folder), self.address, "g")

    def result(self) -> tuple[int, int]:
        """Rows, and different rows."""
        rows = self.rows()
        return (0, 0) if rows is None else (rows.count(), rows.distinct().count())


def committed(server) -> dict[int, int]:
    with GroupAdmin(server.address) as admin:
        return {p.partition: o for p, o in admin.offsets("g").items() if p.topic == "t"}
