"""Refusals as the query's error: the message, without the traceback of a Python worker.

Spark makes its error from the output of its worker, a traceback of some thirty lines with the
message at its end. A refusal is about options and files, so the traceback does not help.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from coordinator.client.errors import CoordinatorError
from coordinator.sources.base import BadLayout, BadRow, LogChanged, NothingFound
from coordinator.sources.formats.json_lines import BadText
from coordinator.spark.logs import is_spark_worker


class DataLost(Exception):
    """The committed offset is outside of the partition's range: rows are gone."""


class BadOption(ValueError):
    """An option of `consumer_group` is missing, unknown, or has an invalid value."""


class RowsLeftUnread(Exception):
    """A query with AvailableNow is done with its partitions, and others' rows are not committed."""


_REFUSALS = (
    LogChanged, NothingFound, BadLayout, BadRow, BadText, DataLost, BadOption, RowsLeftUnread,
    CoordinatorError,
)  # fmt: skip


@contextmanager
def with_plain_errors() -> Iterator[None]:
    """Have Spark show only the message of a refusal. No effect outside of its workers."""
    try:
        yield
    except (*_REFUSALS, OSError) as error:
        is_refusal = isinstance(error, _REFUSALS) or error.filename is not None
        if is_refusal and is_spark_worker():
            # The worker reports this error and exits, so no other error is affected.
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
