"""A source as a worker reads it in a group: lists of rows for its handler, each committed."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from coordinator.client.group_address import GroupAddress
from coordinator.client.worker.adapters import (
    check_held,
    report_log_end,
    until_may_begin,
    until_may_begin_blocking,
)
from coordinator.client.worker.handlers import (
    COLOURS,
    ErrorPolicy,
    TopicHandler,
    check_function,
    check_number,
    refuse_coroutine,
)
from coordinator.client.worker.partition import BlockingPartition, Partition, PartitionView
from coordinator.sources.base import Source
from coordinator.sources.group.commits import commit, commit_blocking
from coordinator.sources.group.measures import begins_of, ends_of, topics_of_source
from coordinator.sources.group.reading import Chunk, Reading
from coordinator.sources.group.record import files_of_group, ordered_by

FORMS = (
    "a handler of rows is `async def handle(rows: list) -> None` or `def handle(rows: list) -> "
    "None`; with two parameters, (p, rows), the first is the partition"
)


class GroupRows:
    """`GroupSource` of the client's workers over a source."""

    def __init__(self, source: Source, address: GroupAddress) -> None:
        self._files = files_of_group(address)
        self._source = source = ordered_by(source, self._files)
        self.topics = topics_of_source(source)
        self.log_ends = ends_of(source)
        self.begin_offsets = begins_of(source)

    def handler(self, function: Any, batch: int, policy: ErrorPolicy) -> TopicHandler:
        """See `GroupSource`."""
        return rows_handler(self._source, function, batch, policy)

    def on_virtual_time(self) -> None:
        """See `GroupSource`: files count in order of name then."""
        self._files.switch_off()


def rows_handler(source: Source, function: Any, batch: int, policy: ErrorPolicy) -> TopicHandler:
    """The handler that reads a source for a handler of rows.

    Raises:
        WrongHandler: the function cannot be called. ValueError: `batch` is no number.
    """
    check_number("batch", batch, 1)
    takes_partition = callable(function) and _count(function) == 2
    parameters = "p, rows" if takes_partition else "rows"
    classes = COLOURS if takes_partition else {}
    is_async = check_function(function, parameters, FORMS, classes)

    def read(p: PartitionView, reading: Reading) -> tuple[Chunk, list[Any]] | None:
        chunk = reading.next(batch)
        report_log_end(p, reading.log_end)
        if chunk is None:
            return None
        return chunk, [row for some_rows in chunk.batches for row in some_rows.to_pylist()]

    async def handle_async(p: Partition) -> None:
        # The source is read in a thread, since it may block.
        reading = await asyncio.to_thread(Reading, source, p)
        while (read_chunk := await asyncio.to_thread(read, p, reading)) is not None:
            chunk, rows = read_chunk
            await until_may_begin(p)
            check_held(p)
            if rows:
                await (function(p, rows) if takes_partition else function(rows))
            await commit(p, chunk)

    def handle(p: BlockingPartition) -> None:
        reading = Reading(source, p)
        while (read_chunk := read(p, reading)) is not None:
            chunk, rows = read_chunk
            until_may_begin_blocking(p)
            check_held(p)
            if rows:
                result = function(p, rows) if takes_partition else function(rows)
                refuse_coroutine(result, f"it returned a coroutine that nobody awaits; {FORMS}")
            commit_blocking(p, chunk)

    return TopicHandler(handle_async if is_async else handle, is_async, policy)


def _count(function: Callable[..., object]) -> int:
    try:
        return len(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return 0
