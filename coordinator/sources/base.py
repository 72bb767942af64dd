"""Interface of sources and of their snapshots."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Protocol


class LogChanged(ValueError):
    """The rows before an offset have changed since they were read: the offset means other rows.

    `rows_are_gone`: a counted file was deleted or became shorter; else one was inserted or
    overwritten.
    """

    def __init__(self, message: str, *, rows_are_gone: bool = False) -> None:
        super().__init__(message)
        self.rows_are_gone = rows_are_gone


class BadLayout(ValueError):
    """Files are there, and would be misread or not read at all."""


class BadRow(ValueError):
    """Rows cannot be read, or do not fit the schema; the message names file and offset.

    `row`: its number in the file; -1: unknown.
    """

    def __init__(self, message: str, *, row: int = -1) -> None:
        super().__init__(message)
        self.row = row


class NothingFound(LookupError):
    """There is no such topic, table or column, no partition for a group to share, or no row to
    infer the schema from."""


class Source(Protocol):
    """A topic whose partitions are logs of rows, each row at its offset.

    Offsets rise and may have gaps. Any thread may ask; every method may raise OSError, or what
    the library below raises, when files or servers cannot be reached.
    """

    @property
    def topic(self) -> str:
        """Name of the topic in the group."""
        ...

    def partitions(self) -> Sequence[int]:
        """Numbers of the partitions, from 0 on."""
        ...

    def begin_offset(self, partition: int) -> int:
        """Offset of the first row that still exists; where it would be, if there is none."""
        ...

    def end_offset(self, partition: int) -> int:
        """The offset after the last row."""
        ...

    def schema(self) -> Any:
        """Schema of the rows, as a pyarrow.Schema.

        Raises:
            LookupError: there are no rows to infer it from, and none was given.
        """
        ...

    def with_schema(self, schema: Any) -> Source:
        """The same source, with its rows read by a pyarrow.Schema."""
        ...

    def read(self, partition: int, begin: int, end: int) -> Iterable[Any]:
        """The rows at the offsets from `begin` to before `end`, as pyarrow.RecordBatch."""
        ...


class Snapshot(Protocol):
    """One partition at one moment: read, measured and compared without races.

    A mark is a short text that identifies the rows before an offset. It is stored with a committed
    offset and in a query's checkpoint, so that another process notices when the offset has come to
    mean other rows. It is empty where there is nothing to compare.
    """

    def begin(self) -> int:
        """Offset of the first row that still exists; where it would be, if there is none."""
        ...

    def end(self) -> int:
        """The offset after the last row."""
        ...

    def cut(self, begin: int, end: int) -> Snapshot:
        """The part that holds these rows, to be sent to whoever reads them."""
        ...

    def starts(self) -> Sequence[int]:
        """Offsets at which a reader may begin without a look at rows in front, as far as known."""
        ...

    def mark(self, offset: int) -> str:
        """Mark of the rows before an offset; at most 2,500 ASCII characters."""
        ...

    def check(self, mark: str) -> None:
        """Compare with a mark made earlier, perhaps elsewhere.

        Raises:
            LogChanged: files came in front, or those that were counted changed or went away.
        """
        ...

    def read(self, begin: int, end: int) -> Iterator[Any]:
        """Rows at the offsets from `begin` to before `end`, as pyarrow.RecordBatch."""
        ...


def snapshot_of(source: Source, partition: int) -> Snapshot:
    """Snapshot of a partition; without marks where offsets never change meaning (Kafka, SQL)."""
    take = getattr(source, "snapshot", None)
    return _Unmarked(source, partition) if take is None else take(partition)


def snapshots_of(source: Source, partitions: Collection[int]) -> dict[int, Snapshot]:
    """Snapshots of several partitions, of one moment where the source can do so."""
    take = getattr(source, "snapshots", None)
    return {p: snapshot_of(source, p) for p in partitions} if take is None else take(partitions)


def partitions_of(source: Source, *, allow_empty: bool = False) -> list[int]:
    """The partitions that a group is to share.

    Raises:
        NothingFound: there is none, and `allow_empty` is not set. A member counts partitions when
            it joins, so it would never read anything.
    """
    numbers = list(source.partitions())
    if not numbers and not allow_empty:
        expected = getattr(source, "expected", "a source has at least one partition")
        raise NothingFound(
            f"nothing was found in {source.topic}: {expected}; make the partitions first, or set "
            "allowEmpty (allow_empty in Python) to go on without any"
        )
    return numbers


class _Unmarked:
    """`Snapshot` of a source that has none of its own."""

    def __init__(self, source: Source, partition: int) -> None:
        self._source, self._partition = source, partition

    def begin(self) -> int:
        return self._source.begin_offset(self._partition)

    def cut(self, begin: int, end: int) -> Snapshot:
        return self

    def end(self) -> int:
        return self._source.end_offset(self._partition)

    def starts(self) -> Sequence[int]:
        return ()

    def mark(self, offset: int) -> str:
        return ""

    def check(self, mark: str) -> None:
        pass

    def read(self, begin: int, end: int) -> Iterator[Any]:
        return iter(self._source.read(self._partition, begin, end))


def conformed(batch: Any, schema: Any, *, allow_missing: bool = False) -> Any:
    """A pyarrow.RecordBatch with the columns of the schema, by name, and its types.

    Args:
        allow_missing: a column that the batch lacks is null.
    Raises:
        KeyError: a column is missing. pyarrow.ArrowInvalid: a value does not fit.
    """
    import pyarrow as pa

    if batch.schema.equals(schema):
        return batch
    if not schema.names:
        return batch.select([])  # Keeps the number of rows.
    if not allow_missing:
        return batch.select(schema.names).cast(schema)
    here = {name: i for i, name in enumerate(batch.schema.names)}
    columns = [
        batch.column(here[field.name]).cast(field.type)
        if field.name in here
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
