"""Sinks of every kind, on disk and in S3, and queries that write to them without Spark."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from coordinator.assignors import TopicPartition
from coordinator.operator.admin import GroupAdmin
from coordinator.sources import write_log
from coordinator.spark.exactly_once import committed_files
from coordinator.spark.ranges import BatchRanges, OffsetRange
from coordinator.spark.sinks.protocol import Sink
from coordinator.spark.sinks.writer import BatchWriter
from tests.kit.documents import blocks
from tests.kit.s3_server import BUCKET

KINDS = ("parquet", "delta", "iceberg", "sql")
OWN = "own"
"""The sink that the page on sinks shows users how to write."""
PAGE = Path(__file__).parents[2] / "deploy/docs/exactly-once.md"
PARTITIONS = 3
GROUP, TOPIC = "g", "t"


@dataclass(frozen=True)
class Place:
    """Location of a run's results: on disk, or in S3 at an endpoint. Text, for other processes."""

    kind: str
    folder: str
    endpoint: str = ""

    def sink(self, name: str = "results") -> Sink:
        match self.kind:
            case "parquet":
                from coordinator.spark.sinks.parquet import ParquetSink

                return ParquetSink(self.location(name))
            case "delta":
                from coordinator.spark.sinks.delta import DeltaSink

                return DeltaSink(self.location(name))
            case "iceberg":
                from coordinator.spark.sinks.iceberg import IcebergSink

                return IcebergSink(f"ns.{name}", "lake", self._catalog())
            case "sql":
                from coordinator.spark.sinks.sql import SqlSink

                return SqlSink(f"sqlite:///{self.folder}/results.db", name)
            case "own":
                return _sink_of_the_page()(f"{self.folder}/{name}")
        raise ValueError(self.kind)

    def location(self, name: str = "results") -> str:
        if not self.endpoint:
            return f"{self.folder}/{name}"
        return f"s3://{BUCKET}/{self._prefix}/{name}?endpoint_override={self.endpoint}&region=us-east-1"

    def rows(self, address: str, name: str = "results") -> Counter[tuple[int, int]]:
        """The rows that readers of the table see, and how often."""
        table = getattr(self, f"_read_{self.kind}")(address, name)
        return Counter(zip(table["p"].to_pylist(), table["n"].to_pylist(), strict=True))

    def staged(self, name: str = "results") -> int:
        """Files or rows that are staged, whether they count or not."""
        if self.kind == "sql":
            with contextlib.closing(sqlite3.connect(f"{self.folder}/results.db")) as database:
                return database.execute(f"SELECT count(*) FROM {name}__staged").fetchone()[0]
        if self.kind == OWN:
            return len(list(Path(self.folder, name, "staged").iterdir()))
        from coordinator.sources.file_systems import StorePath

        location = self._table(name).location() if self.kind == "iceberg" else self.location(name)
        if self.endpoint and self.kind == "iceberg":
            location += f"?endpoint_override={self.endpoint}&region=us-east-1"
        found = StorePath.of(location).files_below()
        return sum(path.name.endswith(".parquet") for path, _ in found)

    # --- Inside ---

    @property
    def _prefix(self) -> str:
        return Path(self.folder).name

    def _catalog(self) -> dict[str, str]:
        catalog = {
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": f"file://{self.folder}/warehouse",
        }
        if self.endpoint:
            catalog |= {
                "warehouse": f"s3://{BUCKET}/{self._prefix}/warehouse",
                "s3.endpoint": self.endpoint,
                "s3.region": "us-east-1",
            }
        return catalog

    def _table(self, name: str) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog("lake", **self._catalog()).load_table(f"ns.{name}")

    def _read_parquet(self, address: str, name: str) -> pa.Table:
        import pyarrow.parquet as pq

        tables = []
        for path in committed_files(self.location(name), address, GROUP):
            with path.open() as file:
                tables.append(pq.read_table(file, columns=NOTHING.column_names))
        return pa.concat_tables([NOTHING, *tables])

    def _read_delta(self, address: str, name: str) -> pa.Table:
        from deltalake import DeltaTable

        sink = self.sink(name)
        return DeltaTable(sink._uri(), storage_options=sink._options).to_pyarrow_table()

    def _read_iceberg(self, address: str, name: str) -> pa.Table:
        return self._table(name).scan().to_arrow()

    def _read_sql(self, address: str, name: str) -> pa.Table:
        with contextlib.closing(sqlite3.connect(f"{self.folder}/results.db")) as database:
            rows = database.execute(f"SELECT p, n FROM {name}").fetchall()
        return pa.table({"p": [p for p, _ in rows], "n": [n for _, n in rows]}, NOTHING.schema)

    def _read_own(self, address: str, name: str) -> pa.Table:
        files = sorted(Path(self.folder, name, "shown").glob("*.json"))
        rows = [row for file in files for row in json.loads(file.read_text())]
        return pa.Table.from_pylist(rows, NOTHING.schema)


def _sink_of_the_page() -> Any:
    (program,) = [b for b in blocks(PAGE, "python") if b.name == "numbered_files.py"]
    names: dict[str, Any] = {}
    exec(compile(program.text, program.name, "exec"), names)
    return names["NumberedFiles"]


NOTHING = pa.table({"p": pa.array([], pa.int64()), "n": pa.array([], pa.int64())})


def rows_of(batch: BatchRanges) -> pa.Table:
    """The rows that a query would make of a batch: partition and offset."""
    rows = [(p, n) for p, r in batch.ranges.items() for n in range(r.begin, r.end)]
    return pa.table({"p": [p for p, _ in rows], "n": [n for _, n in rows]}, NOTHING.schema)


def plan(address: str, dice: random.Random, rows: int, *, most: int = 7) -> BatchRanges | None:
    """Ranges of some partitions from what the group has stored; None: all is done."""
    with GroupAdmin(address) as admin:
        stored = admin.offsets(GROUP)
    ranges = {}
    for partition in dice.sample(range(PARTITIONS), dice.randint(1, PARTITIONS)):
        offset = stored.get(TopicPartition(TOPIC, partition), -1)
        begin = max(offset, 0)
        end = min(begin + dice.randint(1, most), rows)
        if begin < end:
            ranges[partition] = OffsetRange(begin, end, offset)
    return BatchRanges(1, ranges) if ranges else None


def query(place: Place, address: str, at: Callable[[str], None] = lambda step: None) -> BatchWriter:
    """A query that writes; `at` is called at its steps."""
    return BatchWriter(place.sink(), address, GROUP, TOPIC, at=at)


def log_of(rows: int, folder: Path, rows_per_batch: int = 4_096) -> Path:
    """Write a log of so many rows a partition, those of `everything`."""
    for number in range(PARTITIONS):
        table = pa.table({"p": [number] * rows, "n": range(rows)})
        write_log(folder, number, table, rows_per_batch=rows_per_batch)
    return folder


def everything(rows: int) -> Counter[tuple[int, int]]:
    return Counter((p, n) for p in range(PARTITIONS) for n in range(rows))
