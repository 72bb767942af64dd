"""Exactly-once for stateless queries: rows and offsets count together.

    query = (
        streaming(spark, coordinator="127.0.0.1:7400", group="delays", source="parquet:/logs")
        .foreach_batch(ExactlyOnce(DeltaSink("s3://bucket/delays")))
        .option("checkpointLocation", checkpoint)
        .start()
    )

A batch is staged where readers do not see it; the coordinator decides, by one commit, that it
counts; the table follows. `coordinator.spark.sinks.protocol` says why that is exact, and what a
sink of your own has to do. If the group's offsets are not those at the begin of the batch, another
query has done the work: this one is a zombie, and what it has staged is dropped. All queries of a
group must use one sink, or none.

Everything else that a query does (other sinks, state, side effects of the batch function) stays
at-least-once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from coordinator.dial import Credentials
from coordinator.operator.admin import GroupAdmin
from coordinator.sources.file_systems import StorePath
from coordinator.spark.announced import batch_of
from coordinator.spark.file_frames import known_to_spark
from coordinator.spark.ranges import MANIFESTS, NOTHING_STORED, GroupBatch
from coordinator.spark.refused_batches import RefusedBatches
from coordinator.spark.sinks.deciding import Decider, Proposal
from coordinator.spark.sinks.parquet import DAY_S, ParquetSink
from coordinator.spark.sinks.protocol import Decision, Sink
from coordinator.spark.sinks.writer import BatchWriter
from coordinator.spark.stateless import check_stateless
from coordinator.spark.worker_imports import ImportedInWorkers

SMALL_BYTES = 32 << 20


class ExactlyOnce(metaclass=ImportedInWorkers):
    """Function for `GroupStream.foreach_batch`, or to be called in the one that is given to it.

    Also for Spark's `foreachBatch` of a query whose only source is `format("consumer_group")`.
    Coordinator, group and topic are those of the stream.

    Args:
        sink: where the rows go.
        checkpoint: the query's checkpointLocation. Only for several queries of that format in one
            application of Spark Connect, or in a `newSession`, where Spark does not tell whose
            batch it runs.
        credentials: TLS and token; None: from environment variables.
        at: called at each of `sinks.deciding.STEPS`.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        checkpoint: str | None = None,
        credentials: Credentials | None = None,
        at: Callable[[str], None] = lambda step: None,
    ) -> None:
        self.sink = sink
        self._checkpoint = StorePath.of(checkpoint) if checkpoint else None
        self._credentials = credentials
        self._at = at
        self._writer: BatchWriter | None = None
        self._writes_for: tuple[str, str, str] | None = None  # Coordinator, group and topic.
        self._refused = RefusedBatches()
        self._is_stateless = False  # It is not known yet.

    @property
    def refused(self) -> int:
        """Number of batches that another query had done; also where Spark Connect runs batches.

        Raises:
            pyspark's error: the session of Spark Connect is stopped.
        """
        return self._refused.total()

    def __call__(self, rows: Any, batch_id: int) -> None:  # Any: a pyspark DataFrame.
        """Write a batch and commit it; a batch that another query has done is dropped.

        Raises:
            SinkRefused: trying again does not help.
            grpc.RpcError: the coordinator refused, or did not answer for a minute, so the outcome
                is unknown. When Spark runs the batch again, it is looked up.
        """
        announced = batch_of(rows, batch_id, self._checkpoint)
        self._is_stateless = self._is_stateless or check_stateless(rows, announced.group)
        if not self.write(rows, announced):
            self._refused.add()

    def write(self, rows: Any, announced: GroupBatch) -> bool:
        """Write a batch that is known; False if another query has done it. Raises: as a call."""
        of = (announced.coordinator, announced.group, announced.topic)
        if self._writer is None or of != self._writes_for:
            self._writer = BatchWriter(self.sink, *of, credentials=self._credentials, at=self._at)
            self._writes_for = of
        return self._writer.write(rows, announced.batch)


# --- Results in Parquet -----------------------------------------------------------------------


def committed_files(
    directory: str, coordinator: str, group: str, *, credentials: Credentials | None = None
) -> list[StorePath]:
    """The files that count, in the order of their batches."""
    with GroupAdmin(coordinator, credentials=credentials) as admin:
        stored, manifest = admin.stored(group)
    count = stored.get(MANIFESTS, NOTHING_STORED)
    return ParquetSink(directory).files(Decision.from_manifest(group, count, manifest))


def read_exactly_once(
    spark: Any,  # Any: pyspark's types.
    directory: str,
    coordinator: str,
    group: str,
    *,
    credentials: Credentials | None = None,
) -> Any:
    """Read the committed rows, as a DataFrame; None if there are none yet.

    For Parquet with manifests only: Delta, Iceberg and SQL tables are read as always. Spark reads
    the files itself, those in S3 as s3a. Columns are those of all files: versions of a query may
    have added some.

    Args:
        credentials: TLS and token; None: from environment variables.
    """
    files = committed_files(directory, coordinator, group, credentials=credentials)
    paths = [known_to_spark(str(path)) for path in files]
    return spark.read.option("mergeSchema", "true").parquet(*paths) if paths else None


def compact(
    directory: str,
    coordinator: str,
    group: str,
    *,
    small_bytes: int = SMALL_BYTES,
    credentials: Credentials | None = None,
) -> bool:
    """Write the small files of the results into one, while queries run; False: nothing to do.

    Readers see the rows in the old files or in the new one. The old ones stay until `clean`.

    Args:
        small_bytes: size below which a file is small.
    """
    sink = ParquetSink(directory)
    with closing(Decider(sink, coordinator, group, credentials=credentials)) as decider:
        token = sink.stage_compaction(decider.recover(), small_bytes)
        return bool(token) and decider.decide(token, Proposal())


def clean(
    directory: str,
    coordinator: str,
    group: str,
    *,
    older_than_s: float = DAY_S,
    credentials: Credentials | None = None,
) -> list[StorePath]:
    """Delete files of the results that do not count, and return them.

    Args:
        older_than_s: younger ones are left, since they may be staged, or be read. Longer than any
            batch and any read takes.
    """
    sink = ParquetSink(directory)
    with closing(Decider(sink, coordinator, group, credentials=credentials)) as decider:
        return sink.clean(decider.recover(), older_than_s=older_than_s)
