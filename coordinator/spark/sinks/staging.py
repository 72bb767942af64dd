"""Staged files: executors write Parquet with pyarrow, and say which files they have written.

Only files that a finished task names count: what attempts that failed, or were run twice, leave
behind has other names. So nothing is listed and nothing renamed, on any store.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial, reduce
from types import MappingProxyType
from typing import Any

from coordinator.sources.file_systems import StorePath
from coordinator.spark.sinks.protocol import Decision, SinkRefused
from coordinator.spark.worker_imports import ImportedInWorkers

TOKEN_MAX = 32 << 10
"""Characters of a token; a manifest has offsets too, and at most 64 KiB by default."""
MOST_FILES = 100
"""Files that a task writes at once, one for each partition of the table that its rows are in."""
NO_CONDITIONS: Mapping[str, str] = MappingProxyType({})
_COLUMNS = "name string, size long, rows long, json_values string"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A Parquet file below the place of staged files. size: bytes.

    values: of the columns that the table is partitioned by, as text; they are not in the file.
    """

    name: str
    size: int
    rows: int
    values: tuple[str | None, ...] = ()


def stage_files(
    rows: Any,
    opener: Callable[[str], Any],
    folder: str,
    by: Sequence[str] = (),
    conditions: Mapping[str, str] = NO_CONDITIONS,
) -> list[StagedFile]:
    """Write rows as Parquet, a file for each partition of the DataFrame that has any.

    Args:
        rows: a pyspark DataFrame, or a pyarrow Table.
        opener: opens a new file by name; a context manager with `write`. It is pickled.
        folder: in front of the files' names.
        by: columns that the table is partitioned by: a file for each of their values, too. Of text,
            whole numbers, dates or booleans.
        conditions: in Spark's SQL, by what to call them. A row that does not meet one, or of which
            it is not known, fails the job.
    Raises:
        SinkRefused: conditions cannot be asked of these rows.
        whatever opening or writing raises, or py4j's error of the job.
    """
    if conditions:
        rows = _with_answers(rows, conditions)
    return stage_tasks(rows, partial(_write, opener, folder, by, list(conditions)))


def stage_tasks(
    rows: Any, write: Callable[[Iterable[Any]], Iterable[StagedFile]]
) -> list[StagedFile]:
    """Have executors write rows, and return what the tasks that finished have written.

    Args:
        write: called for each partition with its pyarrow record batches; it is pickled.
    """
    if not hasattr(rows, "mapInArrow"):
        return list(write(rows.to_batches()))
    done = rows.mapInArrow(_StagingTask(write), _COLUMNS).collect()
    files = (
        StagedFile(r["name"], r["size"], r["rows"], tuple(json.loads(r["json_values"])))
        for r in done
    )
    return sorted(files, key=lambda f: f.name)


def _with_answers(rows: Any, conditions: Mapping[str, str]) -> Any:
    """The rows with a column for each condition, which the task that writes them looks at.

    Not as a filter: Spark would ask it of rows that a join or a filter before drops.
    """
    if not hasattr(rows, "selectExpr"):
        raise SinkRefused(f"only Spark can ask rows for {', '.join(conditions)}")
    from pyspark.errors import AnalysisException

    try:
        answers = (f"({sql}) AS `{_answer(n)}`" for n, sql in enumerate(conditions.values()))
        return rows.selectExpr("*", *answers)
    except AnalysisException as error:
        raise SinkRefused(
            f"the rows cannot be asked for {', '.join(conditions)}: {error}"
        ) from error


def _answer(number: int) -> str:
    return f"@condition {number}"


def to_token(files: Sequence[StagedFile]) -> str:
    """Files as a token; empty if there are none.

    Raises:
        SinkRefused: they are too many.
    """
    entries = [[f.name, f.size, f.rows, *([f.values] if f.values else [])] for f in files]
    token = json.dumps(entries, separators=(",", ":"))
    if len(token) > TOKEN_MAX:
        raise SinkRefused(
            f"a batch of {len(files)} files does not fit into a manifest: write fewer, with "
            "rows.coalesce(n) before the sink, or a smaller maxRowsPerBatch or minPartitions"
        )
    return token if files else ""


def files_of(token: str) -> list[StagedFile]:
    """The files of a token."""
    if not token:
        return []
    return [StagedFile(*file[:3], *map(tuple, file[3:])) for file in json.loads(token)]


def staged_are_gone(subject: str, decision: Decision, cleaner: str) -> SinkRefused:
    """Refusal of a decision whose staged files were deleted, perhaps by a table's cleaner."""
    return SinkRefused(
        f"{subject}, staged for decision {decision.number} of group {decision.group}, is gone: "
        f"somebody has deleted it, perhaps {cleaner}. To write its rows again, set the group's "
        f"offsets back to the begin of that batch, which ends at {dict(decision.offsets)}, and "
        "delete the offset of __manifests-0"
    )


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


@dataclass(frozen=True)
class _StagingTask(metaclass=ImportedInWorkers):
    """Function of a task, which writes its rows and returns a row for each file."""

    write: Callable[[Iterable[Any]], Iterable[StagedFile]]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        done = list(self.write(batches))
        yield pa.RecordBatch.from_pydict(
            {
                "name": pa.array([f.name for f in done], pa.string()),
                "size": pa.array([f.size for f in done], pa.int64()),
                "rows": pa.array([f.rows for f in done], pa.int64()),
                "json_values": pa.array([json.dumps(f.values) for f in done], pa.string()),
            }
        )


def _write(
    opener: Callable[[str], Any],
    folder: str,
    by: Sequence[str],
    conditions: Sequence[str],
    batches: Iterable[Any],
) -> list[StagedFile]:
    """Write a file for each value of the columns `by` that there are rows of."""
    files: dict[tuple[str | None, ...], _File] = {}
    with ExitStack() as stack:
        for batch in batches:
            good = _met(batch, conditions)
            plain = good.cast(plain_schema(good.schema))
            for values, rows in _split(plain, by):
                if values not in files:
                    if len(files) == MOST_FILES:
                        raise SinkRefused(
                            f"the rows of a task are in more than {MOST_FILES} partitions of the "
                            f"table: use rows.repartition({', '.join(by)}) before the sink"
                        )
                    name = f"{folder}/{uuid.uuid4().hex}.parquet"
                    files[values] = stack.enter_context(_File(opener, name, rows.schema))
                files[values].write(rows)
    return [StagedFile(f.name, f.size, f.rows, values) for values, f in files.items()]


def _met(batch: Any, conditions: Sequence[str]) -> Any:
    """The rows, without the answers to conditions.

    Raises:
        SinkRefused: a row does not meet one.
    """
    import pyarrow.compute as pc

    names = [_answer(number) for number in range(len(conditions))]
    rows = batch.drop_columns(names) if names else batch
    for condition, name in zip(conditions, names, strict=True):
        is_met = pc.fill_null(batch.column(name), False)
        if not pc.all(is_met).as_py():
            row = rows.filter(pc.invert(is_met)).slice(0, 1).to_pylist()[0]
            raise SinkRefused(f"a row breaks {condition}: {row}")
    return rows


def _split(batch: Any, by: Sequence[str]) -> Iterator[tuple[tuple[str | None, ...], Any]]:
    """The rows of each value of some columns, without those columns."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not by:
        if batch.num_rows:
            yield (), batch
        return
    for row in pa.Table.from_batches([batch]).group_by(list(by)).aggregate([]).to_pylist():
        masks = [
            pc.is_null(batch.column(name)) if row[name] is None
            else pc.equal(batch.column(name), pa.scalar(row[name], batch.column(name).type))
            for name in by
        ]  # fmt: skip
        # A comparison with null is null, and a filter leaves nulls out.
        rows = batch.filter(reduce(pc.and_, masks)).drop_columns(list(by))
        yield tuple(_as_text(name, row[name]) for name in by), rows


def _as_text(name: str, value: Any) -> str | None:
    if value == "":
        raise SinkRefused(
            f"column {name} has an empty text, which a partition of a table cannot tell from null: "
            "replace it before the sink"
        )
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


class _File(AbstractContextManager["_File"]):
    """A Parquet file that is written in pieces, and durable when it is closed."""

    def __init__(self, opener: Callable[[str], Any], name: str, schema: Any) -> None:
        import pyarrow.parquet as pq

        self.name, self.rows = name, 0
        self._stack = ExitStack()
        self._file = self._stack.enter_context(opener(name))
        self._counted = _Counted(self._file)
        self._writer = self._stack.enter_context(pq.ParquetWriter(self._counted, schema))

    @property
    def size(self) -> int:
        return self._counted.size

    def write(self, rows: Any) -> None:
        self._writer.write_batch(rows)
        self.rows += rows.num_rows

    def __exit__(self, *error: Any) -> None:
        with self._stack:
            if error[0] is None:
                self._writer.close()
                _make_durable(self._file)


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
