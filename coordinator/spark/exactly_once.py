"""Exactly-once for stateless queries: rows and offsets count together.

    sink = DeltaSink("s3://bucket/delays")
    query = (
        flights.writeStream
        .foreachBatch(ExactlyOnce(sink, "127.0.0.1:7400", "delays", "flights"))
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

import time
import uuid
from contextlib import closing
from typing import Any

from coordinator.assignors import TopicPartition
from coordinator.dial import Credentials
from coordinator.operator.admin import GroupAdmin
from coordinator.sources.file_systems import StorePath
from coordinator.spark.announced import announced_batch, java_process
from coordinator.spark.file_frames import known_to_spark
from coordinator.spark.ranges import MANIFESTS, NOTHING_STORED, BatchRanges
from coordinator.spark.refused_batches import RefusedBatches
from coordinator.spark.sinks.deciding import Decider, Proposal
from coordinator.spark.sinks.parquet import DAY_S, ParquetSink
from coordinator.spark.sinks.protocol import Decision, Sink
from coordinator.spark.stateless import check_stateless
from coordinator.spark.worker_imports import ImportedInWorkers

SMALL_BYTES = 32 << 20


class ExactlyOnce(metaclass=ImportedInWorkers):
    """Function for `foreachBatch` of a query whose only source is `consumer_group`.

    Args:
        sink: where the rows go.
        coordinator, group, topic: the options of the source.
        checkpoint: the query's checkpointLocation. Needed only if several queries of the group run
            in one Spark application.
        credentials: TLS and token; None: from environment variables.
    """

    def __init__(
        self,
        sink: Sink,
        coordinator: str,
        group: str,
        topic: str,
        *,
        checkpoint: str | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.sink = sink
        self.decider = Decider(sink, coordinator, group, credentials=credentials)
        self.group, self.topic = group, topic
        self._checkpoint = StorePath.of(checkpoint) if checkpoint else None
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
        self._is_stateless = self._is_stateless or check_stateless(rows, self.group)
        self.add(
            rows,
            announced_batch(java_process(rows), self.group, self.topic, batch_id, self._checkpoint),
        )

    def add(self, rows: Any, batch: BatchRanges) -> None:
        """Write a batch that the caller knows, and count it if it is dropped; see `__call__`."""
        if not self.write(rows, batch):
            self._refused.add()

    def write(self, rows: Any, batch: BatchRanges) -> bool:
        """Write the rows of a batch; False if another query has done it.

        Args:
            rows: a pyspark DataFrame, or a pyarrow Table.
        Raises:
            SinkRefused, grpc.RpcError: see `__call__`.
        """
        token = self.sink.stage(rows, f"{int(time.time()):012}-{uuid.uuid4().hex}")
        if not batch.ranges:
            return True  # It had no rows: the sink has looked at its table, and is warm.
        self.decider.at("staged")
        commits = batch.commits(self.topic)
        return self.decider.decide(
            token,
            Proposal(
                {TopicPartition(self.topic, p): r.stored for p, r in batch.ranges.items()},
                {key: commit.offset for key, commit in commits.items()},
                {key: commit.metadata for key, commit in commits.items()},
            ),
        )

    def recover(self) -> Decision:
        """Have the table follow the newest decision, which a query that was killed may have left.

        The next batch does so by itself. Returns the decision.
        """
        return self.decider.recover()


class ExactlyOnceSink(ExactlyOnce):
    """`ExactlyOnce` into Parquet files with manifests, which `read_exactly_once` reads.

    Args:
        directory: of the results: a path, or s3://BUCKET/PATH and the like.
    """

    def __init__(
        self,
        directory: str,
        checkpoint: str | None,
        coordinator: str,
        group: str,
        topic: str,
        *,
        credentials: Credentials | None = None,
    ) -> None:
        super().__init__(
            ParquetSink(directory),
            coordinator,
            group,
            topic,
            checkpoint=checkpoint,
            credentials=credentials,
        )


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
