"""Refusals as the query's own error: the sentence, without the trace of a Python worker.

Spark makes its error of what a worker of its writes down, which is a trace of some thirty lines
with the sentence at its end. A refusal is about options and files, so the trace says nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from coordinator.sources.base import LogChanged, NothingFound
from coordinator.sources.layout import BadLayout


class DataLost(Exception):
    """The stored offset is not between the ends of the partition: rows have gone."""


class BadOption(ValueError):
    """An option of `consumer_group` is missing, unknown, or has a value that it does not take."""


_REFUSALS = (LogChanged, NothingFound, BadLayout, DataLost, BadOption)
_OF_WORKERS = "PYTHON_WORKER_FACTORY_"
"""What the environment of every Python worker of Spark has, and no driver's."""


@contextmanager
def told_plainly() -> Iterator[None]:
    """Have Spark show a refusal's sentence only. Elsewhere than in its workers it does nothing."""
    try:
        yield
    except (*_REFUSALS, OSError) as error:
        is_refusal = isinstance(error, _REFUSALS) or error.filename is not None
        if is_refusal and any(name.startswith(_OF_WORKERS) for name in os.environ):
            # The worker writes the error down and exits, so nobody else's is cut.
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
