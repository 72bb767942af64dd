"""Staged files: executors write Parquet with pyarrow, and say which files they have written.

Only files that a finished task names count: what attempts that failed, or were run twice, leave
behind has other names. So nothing is listed and nothing renamed, on any store.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from coordinator.sources.file_systems import StorePath
from coordinator.spark.sinks.protocol import SinkRefused

TOKEN_MAX = 32 << 10
"""Characters of a token; a manifest has offsets too, and at most 64 KiB by default."""
_COLUMNS = "name string, size long, rows long"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A Parquet file below the place of staged files. size: bytes."""

    name: str
    size: int
    rows: int


def stage_files(rows: Any, opener: Callable[[str], Any], folder: str) -> list[StagedFile]:
    """Write rows as Parquet, a file for each partition of the DataFrame that has any.

    Args:
        rows: a pyspark DataFrame, or a pyarrow Table.
        opener: opens a new file by name; a context manager with `write`. It is pickled.
        folder: in front of the files' names.
    Raises:
        whatever opening or writing raises, or py4j's error of the job.
    """
    return stage_tasks(rows, partial(_write, opener, folder))


def stage_tasks(
    rows: Any, write: Callable[[Iterable[Any]], Iterable[StagedFile]]
) -> list[StagedFile]:
    """Have executors write rows, and return what the tasks that finished have written.

    Args:
        write: called for each partition with its pyarrow record batches; it is pickled.
    """
    if not hasattr(rows, "mapInArrow"):
        return list(write(rows.to_batches()))
    done = rows.mapInArrow(partial(_in_task, write), _COLUMNS).collect()
    return sorted((StagedFile(r["name"], r["size"], r["rows"]) for r in done), key=lambda f: f.name)


def to_token(files: Sequence[StagedFile]) -> str:
    """Files as a token; empty if there are none.

    Raises:
        SinkRefused: they are too many.
    """
    token = json.dumps([[f.name, f.size, f.rows] for f in files], separators=(",", ":"))
    if len(token) > TOKEN_MAX:
        raise SinkRefused(
            f"a batch of {len(files)} files does not fit into a manifest: write fewer, with "
            "rows.coalesce(n) before the sink or a smaller maxRowsPerBatch"
        )
    return token if files else ""


def files_of(token: str) -> list[StagedFile]:
    """The files of a token."""
    return [StagedFile(*values) for values in json.loads(token)] if token else []


def new_file(folder: StorePath, name: str) -> Any:
    """Open a new file below a folder."""
    return (folder / name).writer()


def arrow_schema(rows: Any) -> Any:
    """Schema that the staged files of rows have, as a pyarrow.Schema."""
    if hasattr(rows, "mapInArrow"):
        from pyspark.sql.pandas.types import to_arrow_schema

        return plain_schema(to_arrow_schema(rows.schema, timezone="UTC"))
    return plain_schema(rows.schema)


def plain_schema(schema: Any) -> Any:
    """A schema as tables have it: every column may be null, times are in UTC, texts are short."""
    import pyarrow as pa

    return pa.schema([pa.field(f.name, _plain(f.type)) for f in schema])


def _plain(kind: Any) -> Any:
    import pyarrow as pa
    from pyarrow import types

    if types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if types.is_large_string(kind):
        return pa.string()
    if types.is_large_binary(kind):
        return pa.binary()
    if types.is_dictionary(kind):
        return _plain(kind.value_type)
    if types.is_struct(kind):
        return pa.struct([pa.field(f.name, _plain(f.type)) for f in kind])
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type)))
    if types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    return kind


# --- In the process that writes ---------------------------------------------------------------


def _in_task(
    write: Callable[[Iterable[Any]], Iterable[StagedFile]], batches: Iterable[Any]
) -> Iterator[Any]:
    import pyarrow as pa

    done = list(write(batches))
    yield pa.RecordBatch.from_pydict(
        {
            "name": pa.array([f.name for f in done], pa.string()),
            "size": pa.array([f.size for f in done], pa.int64()),
            "rows": pa.array([f.rows for f in done], pa.int64()),
        }
    )


def _write(
    opener: Callable[[str], Any], folder: str, batches: Iterable[Any]
) -> Iterator[StagedFile]:
    """Write one file, if there are rows."""
    import pyarrow.parquet as pq

    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return
    name = f"{folder}/{uuid.uuid4().hex}.parquet"
    schema, rows = plain_schema(first.schema), 0
    with opener(name) as file:
        counted = _Counted(file)
        with pq.ParquetWriter(counted, schema) as writer:
            while first is not None:
                writer.write_batch(first.cast(schema))
                rows += first.num_rows
                first = next(filled, None)
        _make_durable(file)
    yield StagedFile(name, counted.size, rows)


class _Counted:
    """A file that counts the bytes written to it."""

    def __init__(self, file: Any) -> None:
        self._file, self.size, self.closed = file, 0, False

    def write(self, content: Any) -> int:
        self._file.write(content)
        self.size += len(content)
        return len(content)

    def flush(self) -> None:
        pass


def _make_durable(file: Any) -> None:
    """Have a file of the operating system reach the disk; others do so when they are closed."""
    try:
        number = file.fileno()
    except (OSError, AttributeError):
        return
    file.flush()
    os.fsync(number)
