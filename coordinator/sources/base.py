"""What every source offers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol


class Source(Protocol):
    """A topic whose partitions are logs of rows, each row at its offset.

    Offsets rise and may have gaps. Any thread may ask; every method may raise OSError, or what
    the library below raises, when files or servers cannot be reached.
    """

    @property
    def topic(self) -> str:
        """Its name in the group."""
        ...

    def partitions(self) -> Sequence[int]:
        """The numbers of the partitions, from 0 on."""
        ...

    def begin_offset(self, partition: int) -> int:
        """The offset of the first row that is still there; where it would be, if there is none."""
        ...

    def end_offset(self, partition: int) -> int:
        """The offset after the last row."""
        ...

    def schema(self) -> Any:
        """Of the rows, as a pyarrow.Schema.

        Raises:
            LookupError: there are no rows to tell it by, and none was given.
        """
        ...

    def with_schema(self, schema: Any) -> Source:
        """The same source with its rows read as a pyarrow.Schema says."""
        ...

    def read(self, partition: int, begin: int, end: int) -> Iterable[Any]:
        """The rows at the offsets from `begin` to before `end`, as pyarrow.RecordBatch."""
        ...


def conformed(batch: Any, schema: Any) -> Any:
    """A pyarrow.RecordBatch with the columns of the schema, by name, and its types.

    Raises:
        KeyError: a column is missing. pyarrow.ArrowInvalid: a value does not fit.
    """
    if batch.schema.equals(schema):
        return batch
    return batch.select(schema.names).cast(schema)
