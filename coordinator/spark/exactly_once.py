"""Exactly-once for stateless queries: files and offsets are committed together.

    query = (
        flights.writeStream
        .foreachBatch(ExactlyOnceSink(directory, checkpoint, "127.0.0.1:7400", "delays", "flights"))
        .option("checkpointLocation", checkpoint)
        .start()
    )
    read_exactly_once(spark, directory, "127.0.0.1:7400", "delays")

A batch is written to files of its own, which readers ignore at first. A manifest names them, up to
a hundred batches before them, and the previous manifest. Then one atomic commit to the group does
three things or none: it moves every partition from the begin of the batch to its end
(compare-and-set), increments the count of manifests, and names this manifest as the newest. If the
group's offsets are not those at the begin of the batch, another query has done the work: this one
is a zombie, and its files are dropped. If only the count differs, another query has committed other
partitions: the manifest is written again, after theirs. All queries of a group must use this sink,
or none.

Everything else that a query does (other sinks, state, side effects of the batch function) stays
at-least-once.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc

from coordinator.assignors import TopicPartition
from coordinator.client.admin import GroupAdmin
from coordinator.dial import Credentials
from coordinator.spark.ranges import MANIFESTS, NOTHING_STORED, BatchRanges, ranges_of_batch

LOGGER = logging.getLogger(__name__)
DATA, MANIFEST_FOLDER = "data", "manifests"
BLOCK = 100
"""Batches that a manifest names itself; earlier ones are in the manifest before it."""
GIVE_UP_S, PAUSE_S = 60.0, 0.2
MISMATCH = "OFFSET_MISMATCH"


class ExactlyOnceSink:
    """Sink for `foreachBatch` of a query whose only source is `consumer_group`.

    Args:
        directory: of the results; on storage that driver and executors share.
        checkpoint: the query's checkpointLocation, as a path on the driver.
        coordinator, group, topic: the options of the source.
        credentials: TLS and token; None: from environment variables.
    """

    def __init__(
        self,
        directory: str,
        checkpoint: str,
        coordinator: str,
        group: str,
        topic: str,
        *,
        credentials: Credentials | None = None,
    ) -> None:
        self._credentials = credentials
        self._directory = Path(directory)
        self._checkpoint = Path(checkpoint)
        self._coordinator = coordinator
        self._group = group
        self._topic = topic
        self._admin: GroupAdmin | None = None
        # Manifest and count of this sink's last commit.
        self._newest: tuple[str, int] | None = None
        self.refused = 0
        """Number of batches that another query had done."""

    def __call__(self, rows: Any, batch_id: int) -> None:  # Any: a pyspark DataFrame.
        """Write a batch and commit it; a batch that another query has done is dropped.

        Raises:
            grpc.RpcError: the coordinator did not answer for a minute, so the outcome is unknown.
                When Spark runs the batch again, it is looked up.
        """
        batch = ranges_of_batch(self._checkpoint, batch_id)
        if not batch.ranges:
            return
        name = f"{batch_id:09}-{uuid.uuid4().hex}"
        rows.write.parquet(str(self._directory / DATA / name))
        if not self._commit(batch, name):
            self.refused += 1
            shutil.rmtree(self._directory / DATA / name, ignore_errors=True)

    # --- Inside ---

    def _commit(self, batch: BatchRanges, name: str) -> bool:
        """Commit a batch; False if another query has done it."""
        give_up_at = time.monotonic() + GIVE_UP_S
        while True:
            try:
                if self._admin is None:
                    self._admin = GroupAdmin(
                        self._coordinator, remember=True, credentials=self._credentials
                    )
                return self._try_to_commit(self._admin, batch, name)
            except (grpc.RpcError, LookupError):
                # It may have been stored: the next attempt looks it up.
                self._newest = None
                if self._admin is not None:
                    self._admin.close()
                    self._admin = None
                if time.monotonic() > give_up_at:
                    raise
                time.sleep(PAUSE_S)

    def _try_to_commit(self, admin: GroupAdmin, batch: BatchRanges, name: str) -> bool:
        while True:
            if self._newest is None:
                stored, newest = admin.stored(self._group)
                if not self._is_due(batch, stored):
                    # Done already: by our attempt whose answer was lost, or by another query.
                    return name in data_of(self._directory, newest.decode())
                self._newest = (newest.decode(), stored.get(MANIFESTS, NOTHING_STORED))
            before, count = self._newest
            self._newest = None  # Looked up again, unless this commit succeeds.
            manifest = self._write_manifest(name, before)
            refusals = admin.commit(
                self._group,
                {**self._keys(batch, "end"), MANIFESTS: max(count, 0) + 1},
                expected={**self._keys(batch, "stored"), MANIFESTS: count},
                manifest=manifest.encode(),
                metadata={key: c.metadata for key, c in batch.commits(self._topic).items()},
            )
            if not refusals:
                self._newest = (manifest, max(count, 0) + 1)
                return True
            (self._directory / MANIFEST_FOLDER / manifest).unlink()
            if MISMATCH not in refusals.values():
                raise LookupError(f"the commit was refused: {set(refusals.values())}")

    def _keys(self, batch: BatchRanges, which: str) -> dict[TopicPartition, int]:
        return {
            TopicPartition(self._topic, partition): getattr(r, which)
            for partition, r in batch.ranges.items()
        }

    def _is_due(self, batch: BatchRanges, stored: Mapping[TopicPartition, int]) -> bool:
        return all(
            stored.get(key, NOTHING_STORED) == offset
            for key, offset in self._keys(batch, "stored").items()
        )

    def _write_manifest(self, name: str, before: str) -> str:
        """Write the manifest that follows `before` and adds a batch; returns its name."""
        batches: list[str] = []
        last = before
        if before:
            newest = _read_manifest(self._directory, before)
            if len(newest["batches"]) < BLOCK:
                batches, last = newest["batches"], newest["before"]
        folder = self._directory / MANIFEST_FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        manifest = f"{uuid.uuid4().hex}.json"
        content = {"batches": [*batches, name], "before": last}
        (folder / manifest).write_text(json.dumps(content))
        return manifest


def data_of(directory: Path, newest: str) -> list[str]:
    """Names of the committed batches, in order, from the newest manifest."""
    blocks: list[list[str]] = []
    while newest:
        manifest = _read_manifest(directory, newest)
        blocks.append(manifest["batches"])
        newest = manifest["before"]
    return [name for block in reversed(blocks) for name in block]


def _read_manifest(directory: Path, name: str) -> dict[str, Any]:  # Any: JSON.
    content: dict[str, Any] = json.loads((directory / MANIFEST_FOLDER / name).read_text())
    return content


def read_exactly_once(
    spark: Any,  # Any: pyspark's types.
    directory: str,
    coordinator: str,
    group: str,
    *,
    credentials: Credentials | None = None,
) -> Any:
    """Read the committed rows, as a DataFrame; None if there are none yet.

    Args:
        credentials: TLS and token; None: from environment variables.
    """
    with GroupAdmin(coordinator, credentials=credentials) as admin:
        _, newest = admin.stored(group)
    folder = Path(directory)
    paths = [str(folder / DATA / name) for name in data_of(folder, newest.decode())]
    return spark.read.parquet(*paths) if paths else None
