"""Logs of rows, read by offset as Arrow record batches: what the members of a group work on.

A source is a topic whose partitions are logs. It is small, travels to workers by pickle, and
opens files and connections where it is asked. All but `open_source` needs an extra: `files`,
`kafka` or `sql`.
"""

from coordinator.sources.base import LogChanged, NothingFound, Source, partitions_of, snapshot_of
from coordinator.sources.files import FileLog
from coordinator.sources.layout import BadLayout
from coordinator.sources.location import open_source
from coordinator.sources.writing import SegmentWriter, write_log

__all__ = [
    "BadLayout",
    "FileLog",
    "LogChanged",
    "NothingFound",
    "SegmentWriter",
    "Source",
    "open_source",
    "partitions_of",
    "snapshot_of",
    "write_log",
]
