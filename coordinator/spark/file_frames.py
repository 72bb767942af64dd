"""Rows of files as DataFrames of Spark's own reader.

Whole files are read as they are. A file that a range cuts is read between two row numbers, by
`_metadata.row_index`, which counts the rows of a Parquet file also where its reader leaves out row
groups. Spark scans such a file as a whole, so ranges are to cut few (`Planner`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any
from urllib.parse import quote

from coordinator.sources.base import NothingFound
from coordinator.sources.files import FileLog, FileRange
from coordinator.sources.group_files import GroupFiles
from coordinator.sources.layout import NUMBERS
from coordinator.spark.options import StreamOptions
from coordinator.spark.ranges import BatchRanges
from coordinator.spark.refusals import BadOption

FORMATS = {
    "parquet": "parquet",
    "orc": "orc",
    "json": "json",
    "csv": "csv",
    "avro": "avro",
    "text": "text",
    "files": "binaryFile",
}
"""Formats of sources that Spark can read for a group, and its names of them. The rows of all but
the first are not numbered, so their offsets count files."""
MOST_FRAMES = 8
"""Cut files up to which each is a scan of its own; above, they are one scan and a join."""
CHOOSING = frozenset(
    "path paths basepath pathglobfilter modifiedbefore modifiedafter recursivefilelookup".split()
)
"""Options that choose files: with them rows would count as read that were not."""
LOOKED_UP = 10_000
"""Local paths that Spark looks up without a job; each takes a tenth of a millisecond."""
_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_PATTERN = re.compile(r"[\\{}\[\]*?]")
"""Characters that are a pattern in a path for Hadoop, unless a backslash is in front."""
_UNESCAPED = "/-_.!~'()*,;:$&+=@"
"""Characters besides letters and digits that `java.net.URI` leaves as they are in a path."""


@dataclass(frozen=True)
class FileReader:
    """Spark's reader of the files of one directory. It can be pickled.

    Args:
        root: URI of the directory; folders below it that are named for columns give their files
            these.
        format: Spark's name of it. schema: a pyspark StructType, or text for
            `DataFrameReader.schema`; None: Spark's, of the files that are read.
        options: of Spark's reader.
    """

    root: str
    format: str
    schema: Any = None  # Any: pyspark is optional.
    options: Mapping[str, str] | None = None

    @classmethod
    def of_log(
        cls, spark: Any, options: StreamOptions, schema: Any, read_options: Mapping[str, str] | None
    ) -> FileReader:
        """The reader of a source's directory, with the schema of all its files.

        The files of one batch do not tell it: the type of a folder's column depends on all its
        values.

        Args:
            schema: the user's, of some or all columns. read_options: of Spark's reader.
        Raises:
            BadOption: an option chooses files. NothingFound: there is neither file nor schema.
        """
        for name in read_options or {}:
            if name.lower() in CHOOSING:
                raise BadOption(f"{name} is not for this reader: the group says which files count")
        log = options.source
        assert isinstance(log, FileLog)
        reader = cls(log.root.uri, FORMATS[log.format], schema, read_options)
        kept = KeptSchema.of(spark, log, reader)
        if (known := kept.read()) is not None:
            return replace(reader, schema=known)
        uris = [path.uri for path in log.files()]
        if not uris and schema is None:
            raise NothingFound(f"{log.root} holds no rows to tell the schema by: give one")
        log_schema = reader._load(spark, uris).schema
        kept.write(log_schema)
        return replace(reader, schema=log_schema)

    def frame(self, spark: Any, batch: BatchRanges, files: Sequence[FileRange]) -> Any:
        """See `RowsReader`. No two of the ranges are of one file."""
        whole = [one.uri for one in files if one.is_whole]
        cut = [one for one in files if not one.is_whole]
        frames = [self._load(spark, whole)] if whole or not cut else []
        if len(cut) <= MOST_FRAMES:
            frames += (self._between(spark, one) for one in cut)
        else:
            frames.append(self._joined(spark, cut))
        return reduce(lambda one, other: one.union(other), frames)

    # --- Inside ---

    def _load(self, spark: Any, uris: Iterable[str]) -> Any:
        paths = [known_to_spark(uri) for uri in uris]
        if not paths:
            return spark.createDataFrame([], self.schema)
        root = known_to_spark(self.root)
        reader = spark.read.format(self.format).options(mergeSchema="true")
        reader = reader.options(**self.options or {}, basePath=root)
        reader = reader if self.schema is None else reader.schema(self.schema)
        with _looked_up_at_once(spark, root):
            return reader.load([_literal(path) for path in paths])

    def _between(self, spark: Any, one: FileRange) -> Any:
        if one.first == one.last:  # Spark does not see that this is nothing, and reads.
            return self._load(spark, [one.uri]).where("spark_partition_id() < 0")
        return self._load(spark, [one.uri]).where(
            f"_metadata.row_index >= {one.first} AND _metadata.row_index < {one.last}"
        )

    def _joined(self, spark: Any, cut: Sequence[FileRange]) -> Any:
        rows = self._load(spark, (one.uri for one in cut))
        bounds = spark.createDataFrame(
            [(escaped(known_to_spark(one.uri)), one.first, one.last) for one in cut],
            "`@path` string, `@first` long, `@last` long",
        )
        names = [f"`{name.replace('`', '``')}`" for name in rows.columns]
        marked = rows.selectExpr(
            *names, "_metadata.file_path AS `@path`", "_metadata.row_index AS `@row`"
        )
        kept = marked.join(bounds.hint("broadcast"), "@path")
        return kept.where("`@row` >= `@first` AND `@row` < `@last`").select(*names)


@dataclass(frozen=True)
class KeptSchema:
    """The schema of a log's files, which a group keeps with its record of them.

    key: of all that it depends on beside the files: the reader, Spark's version and settings.
    """

    files: GroupFiles | None
    topic: str
    key: str

    @classmethod
    def of(cls, spark: Any, log: FileLog, reader: FileReader) -> KeptSchema:
        files = log.order if isinstance(log.order, GroupFiles) else None
        record = None if files is None else files.known(log.topic)
        if record is None or record.rule == NUMBERS:
            # Of numbered partitions, single files are not recorded.
            return cls(None, log.topic, "")
        settings = [
            name
            for name in _settings(spark)
            if name.startswith("spark.sql.") and not name.startswith(_OF_NO_SCHEMA)
        ]
        schema = reader.schema if isinstance(reader.schema, str | None) else reader.schema.json()
        facts = [reader.format, schema, sorted((reader.options or {}).items()), spark.version]
        raw = json.dumps([*facts, sorted(settings)], default=str).encode()
        return cls(files, log.topic, hashlib.blake2b(raw, digest_size=16).hexdigest())

    def read(self) -> Any:
        """The schema of the files that are recorded now; None: it is not kept."""
        from pyspark.sql.types import StructType

        text = None if self.files is None else self.files.schema(self.topic)
        if text is None:
            return None
        key, _, schema = text.partition("\n")
        return StructType.fromJson(json.loads(schema)) if key == self.key else None

    def write(self, schema: Any) -> None:
        if self.files is not None:
            self.files.keep_schema(self.topic, f"{self.key}\n{schema.json()}")


_OF_NO_SCHEMA = ("spark.sql.warehouse", "spark.sql.artifact", "spark.sql.streaming.")


@contextmanager
def _looked_up_at_once(spark: Any, root: str) -> Iterator[None]:
    """Have the driver look local files up, which takes less than the job that Spark makes of it.

    Of threads that share a session, the first one sets and restores.
    """
    before = spark.conf.get(_THRESHOLD)
    if not root.startswith("file:") or int(before) >= LOOKED_UP:
        yield
        return
    spark.conf.set(_THRESHOLD, str(LOOKED_UP))
    try:
        yield
    finally:
        spark.conf.set(_THRESHOLD, before)


def _settings(spark: Any) -> Iterable[str]:
    """The session's settings, as NAME=VALUE."""
    java = getattr(spark.conf, "_jconf", None)
    if java is None:  # Spark Connect.
        return [f"{name}={value}" for name, value in spark.conf.getAll.items()]
    # One call to Java, where `getAll` makes some for each setting.
    text: str = java.getAllAsJava().toString()
    return re.split(r", (?=spark\.)", text[1:-1])


def _literal(path: str) -> str:
    """A path that is no pattern, whatever characters it has."""
    return _PATTERN.sub(r"\\\g<0>", path)


def known_to_spark(uri: str) -> str:
    """A place under Spark's name of S3."""
    return uri.replace("s3://", "s3a://", 1)


def escaped(uri: str) -> str:
    """A URI as `_metadata.file_path` has it: as `java.net.URI` writes it.

    Other than in Python's `quote`, letters beyond ASCII stay as they are.
    """
    scheme, _, rest = uri.partition("://")
    path = "".join(c if c > "\x9f" and c.isprintable() else quote(c, _UNESCAPED) for c in rest)
    return f"{scheme}:{path}" if path.startswith("/") else f"{scheme}://{path}"
