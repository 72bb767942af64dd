"""Handlers of rows: a source is read in lists of rows, and each list is committed."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

from coordinator.client.commit_metadata import of_reader, parsed
from coordinator.client.worker.errors import WrongHandler
from coordinator.client.worker.handlers import Handler, check_function
from coordinator.client.worker.partition import BlockingPartition, Partition, PartitionView
from coordinator.client.worker.policy import ErrorPolicy, check_number
from coordinator.sources.base import Snapshot, Source, snapshot_of

Rows = Sequence[Any]  # Any: rows are dictionaries by column.
RowsHandler = (
    Callable[[list[Any]], object]
    | Callable[[list[Any]], Coroutine[Any, Any, object]]
    | Callable[[Partition, list[Any]], Coroutine[Any, Any, object]]
    | Callable[[BlockingPartition, list[Any]], object]
)
FORMS = (
    "a handler of rows is `async def handle(rows: list) -> None` or `def handle(rows: list) -> "
    "None`; with two parameters, (p, rows), the first is the partition"
)


def rows_handler(source: Source | None, function: Any, batch: int, policy: ErrorPolicy) -> Handler:
    """The handler that reads a source for a handler of rows.

    Raises:
        WrongHandler: the function cannot be called, or there is no source. ValueError: `batch`.
    """
    if source is None:
        raise WrongHandler(
            "@worker.rows reads the worker's source: give Worker(..., source=open_source(...))"
        )
    check_number("batch", batch, 1)
    takes_partition = callable(function) and _count(function) == 2
    parameters = "p, rows" if takes_partition else "rows"
    classes = {"Partition": True, "BlockingPartition": False} if takes_partition else {}
    is_async = check_function(function, parameters, FORMS, classes)
    reader = _Reader(source, batch)

    async def handle_async(p: Partition) -> None:
        chunks = reader.chunks(p)
        # The source is read in a thread, since it may block.
        while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
            if chunk.rows:
                await (function(p, chunk.rows) if takes_partition else function(chunk.rows))
            await p.commit(chunk.after, chunk.metadata)

    def handle(p: BlockingPartition) -> None:
        for chunk in reader.chunks(p):
            if chunk.rows:
                result = function(p, chunk.rows) if takes_partition else function(chunk.rows)
                if inspect.iscoroutine(result):
                    result.close()
                    raise WrongHandler(f"it returned a coroutine that nobody awaits; {FORMS}")
            p.commit(chunk.after, chunk.metadata)

    return Handler(handle_async if is_async else handle, is_async, policy)


class _Chunk:
    """Rows up to an offset. `metadata`: of its commit."""

    __slots__ = ("after", "metadata", "rows")

    def __init__(self, rows: list[Any], after: int, metadata: str) -> None:
        self.rows, self.after, self.metadata = rows, after, metadata


class _Reader:
    """Reader of a source in lists of at most `batch` rows."""

    def __init__(self, source: Source, batch: int) -> None:
        self._source, self._batch = source, batch

    def chunks(self, p: PartitionView) -> Iterator[_Chunk]:
        """Rows that there are now from the partition's position on.

        Raises:
            LogChanged: rows before the position have changed or are gone.
        """
        mark, offset = parsed(p.metadata).mark, p.position
        snapshot: Snapshot = snapshot_of(self._source, p.number)
        snapshot.check(mark)
        end = snapshot.end()
        p._tell("log_end", end)
        offset = max(offset, self._source.begin_offset(p.number))
        while offset < end:
            after = min(offset + self._batch, end)
            rows = [row for found in snapshot.read(offset, after) for row in found.to_pylist()]
            yield _Chunk(rows, after, of_reader(snapshot.mark(after)))
            offset = after


def _count(function: Callable[..., object]) -> int:
    try:
        return len(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return 0
