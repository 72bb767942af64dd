"""The source of `streaming`, which registers it.

Spark starts a Python process to ask it for the schema, and another one to read: only that one
imports what reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from coordinator.spark.worker_imports import ImportedInWorkers

if TYPE_CHECKING:
    from coordinator.spark.stream import FilesReader

STREAM = "stream"
"""Option: the id under which the stream's batches are announced."""


class FilesSource(DataSource, metaclass=ImportedInWorkers):
    """A stream without rows. Its batches are announced with the files that hold them."""

    @classmethod
    def name(cls) -> str:
        return "consumer_group_files"

    def schema(self) -> str:
        return "nothing int"

    def streamReader(self, schema: StructType) -> FilesReader:
        from coordinator.spark.logs import log_like_spark
        from coordinator.spark.options import StreamOptions
        from coordinator.spark.refusals import with_plain_errors
        from coordinator.spark.stream import FilesReader

        log_like_spark()
        options = {name: value for name, value in self.options.items() if name != STREAM}
        with with_plain_errors():
            return FilesReader(StreamOptions.parse(options), self.options[STREAM])
