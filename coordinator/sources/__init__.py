"""Sources: logs of rows that members of a group process, read by offset as Arrow batches.

A source is a topic whose partitions are logs. It is small, is pickled to workers, and opens files
and connections in the process that reads. All but `open_source` needs an extra: `files`, `kafka`
or `sql`.
"""

from coordinator.sources.base import (
    BadLayout,
    BadRow,
    LogChanged,
    NothingFound,
    Source,
    partitions_of,
    snapshot_of,
)
from coordinator.sources.files import FileLog
from coordinator.sources.location import open_source
from coordinator.sources.readable import GroupReadable
from coordinator.sources.writing import SegmentWriter, write_log

__all__ = [
    "BadLayout",
    "BadRow",
    "FileLog",
    "GroupReadable",
    "LogChanged",
    "NothingFound",
    "SegmentWriter",
    "Source",
    "open_source",
    "partitions_of",
    "snapshot_of",
    "write_log",
]
