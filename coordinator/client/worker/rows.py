"""Handlers of rows: a source is read in lists of rows, and each list is committed."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from coordinator.client.worker.errors import WrongHandler
from coordinator.client.worker.handlers import COLOURS, Handler, check_function, refuse_coroutine
from coordinator.client.worker.partition import BlockingPartition, Partition, PartitionView
from coordinator.client.worker.policy import ErrorPolicy, check_number
from coordinator.client.worker.reading import (
    Chunk,
    Reading,
    commit,
    commit_blocking,
    until_may_begin,
    until_may_begin_blocking,
)
from coordinator.sources.base import Source

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
    classes = COLOURS if takes_partition else {}
    is_async = check_function(function, parameters, FORMS, classes)

    def read(p: PartitionView, reading: Reading) -> tuple[Chunk, list[Any]] | None:
        chunk = reading.next(batch)
        p._tell("log_end", reading.log_end)
        if chunk is None:
            return None
        return chunk, [row for found in chunk.batches for row in found.to_pylist()]

    async def handle_async(p: Partition) -> None:
        # The source is read in a thread, since it may block.
        reading = await asyncio.to_thread(Reading, source, p)
        while (found := await asyncio.to_thread(read, p, reading)) is not None:
            chunk, rows = found
            await until_may_begin(p)
            p._check()
            if rows:
                await (function(p, rows) if takes_partition else function(rows))
            await commit(p, chunk)

    def handle(p: BlockingPartition) -> None:
        reading = Reading(source, p)
        while (found := read(p, reading)) is not None:
            chunk, rows = found
            until_may_begin_blocking(p)
            p._check()
            if rows:
                result = function(p, rows) if takes_partition else function(rows)
                refuse_coroutine(result, f"it returned a coroutine that nobody awaits; {FORMS}")
            commit_blocking(p, chunk)

    return Handler(handle_async if is_async else handle, is_async, policy)


def _count(function: Callable[..., object]) -> int:
    try:
        return len(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return 0
