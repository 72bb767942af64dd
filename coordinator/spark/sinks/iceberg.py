"""Iceberg tables. Needs the extra `iceberg`.

Staged files lie in the table's data folder and are added as they are. The number is a property of
the table, set by the same commit as the snapshot that brings the rows, so that it outlives
snapshots that expire; each snapshot names group and number too. The catalog compares and sets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from coordinator.spark.sinks.attempts import attempts
from coordinator.spark.sinks.protocol import Decision, SinkRefused
from coordinator.spark.sinks.staging import (
    arrow_schema,
    files_of,
    stage_files,
    staged_are_gone,
    to_token,
)

RETRIES = "commit.retry.num-retries"
NEWEST_FORMAT = 2
"""Version of tables that it knows how to write."""
MADE_WITH = {
    # As Iceberg's own writers do unless told otherwise, and pyiceberg does not: without, a commit
    # and a reader's plan go through one manifest for each batch that there ever was.
    "commit.manifest-merge.enabled": "true",
    # Each file of metadata names all snapshots: the files of n commits are n² names.
    "write.metadata.delete-after-commit.enabled": "true",
}
"""Properties of tables that the sink makes."""
SECRETS = re.compile("//[^/]*@")


class IcebergSink:
    """A `Sink` into an unpartitioned Iceberg table, which is made if it is not there.

    Args:
        table: NAMESPACE.NAME.
        catalog: its name, which SQL catalogs keep with every table.
        properties: the catalog's, as `pyiceberg.catalog.load_catalog` takes them: type, uri,
            warehouse, s3.endpoint, …; None: from pyiceberg's own configuration. Those of the
            table's files are pickled for the executors, which write them.
    """

    def __init__(
        self, table: str, catalog: str = "default", properties: Mapping[str, str] | None = None
    ) -> None:
        self._name, self._catalog_name = table, catalog
        self._properties = dict(properties or {})
        self._catalog: Any = None

    @property
    def location(self) -> str:
        uri = self._opened().properties.get("uri", "").partition("?")[0]
        # Users and passwords stand in front of the host.
        return f"iceberg:{SECRETS.sub('//', uri)}#{self._catalog_name}.{self._name}"

    def stage(self, rows: Any, name: str) -> str:
        table = self._prepared(arrow_schema(rows))
        base = f"{table.location().rstrip('/')}/data"
        opener = partial(_new_file, dict(table.io.properties), base)
        return to_token(stage_files(rows, opener, f"staged-{name}"))

    def commit(self, token: str, decision: Decision) -> None:
        from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

        # A commit without an answer may have been made: each attempt looks at the number again.
        for attempt in attempts(
            CommitFailedException,
            CommitStateUnknownException,
            *_store_errors(),
            failure=f"{self.location} cannot be written",
        ):
            with attempt:
                table = self._table()
                if _number(table, decision.group) >= decision.number:
                    return
                _narrow(table)
                base = f"{table.location().rstrip('/')}/data"
                files = [f"{base}/{file.name}" for file in files_of(token)]
                properties = {_key(decision.group): str(decision.number)}
                try:
                    with table.transaction() as transaction:
                        transaction.set_properties(properties)
                        # Duplicates: would read the names of all files; the number says it already.
                        transaction.add_files(files, properties, check_duplicate_files=False)
                except FileNotFoundError as error:  # Or of a file of metadata, which has moved on.
                    for path in files:
                        if not table.io.new_input(path).exists():
                            cleaner = "remove_orphan_files that keeps them for less than 3 days"
                            subject = f"{self.location}: {path}"
                            raise staged_are_gone(subject, decision, cleaner) from error
                    raise
                return

    def recover(self, newest: Decision) -> int:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return _number(self._table(), newest.group)
        except NoSuchTableError:
            return 0

    def discard(self, token: str) -> None:
        table = self._table()
        for file in files_of(token):
            table.io.delete(f"{table.location().rstrip('/')}/data/{file.name}")

    # --- Inside ---

    def _prepared(self, schema: Any) -> Any:
        """The table, made if there is none; its schema takes the rows'."""
        from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

        try:
            table = self._table()
        except NoSuchTableError:
            catalog = self._opened()
            # Two that make a namespace of a SQL catalog at the same moment violate its key.
            for attempt in attempts(*_store_errors(), failure="the namespace cannot be made"):
                with attempt:
                    catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
                    break
            try:
                table = catalog.create_table(self._name, schema=schema, properties=MADE_WITH)
            except TableAlreadyExistsError:
                table = self._table()
        if table.format_version > NEWEST_FORMAT:
            raise SinkRefused(
                f"{self.location} is of format version {table.format_version}, and this sink "
                f"writes up to {NEWEST_FORMAT}: row lineage and defaults of columns are not its to "
                "keep"
            )
        if not table.spec().is_unpartitioned():
            raise SinkRefused(
                f"{self.location} is partitioned, which this sink does not write: give it a table "
                "without partitions, or write a Delta table, which may have some"
            )
        try:
            from pyiceberg.io.pyarrow import _check_pyarrow_schema_compatible as check

            check(table.schema(), schema, format_version=table.format_version)
        except (ValueError, TypeError) as error:
            raise SinkRefused(
                f"{self.location} does not take the rows: {error}: change the table's schema, or "
                "select and cast its columns before the sink"
            ) from error
        return table

    def _table(self) -> Any:
        return self._opened().load_table(self._name)

    def _opened(self) -> Any:
        from pyiceberg.catalog import load_catalog

        if self._catalog is None:
            # Two processes that make a catalog's own tables at the same moment are both right.
            for attempt in attempts(*_store_errors(), failure="the catalog cannot be opened"):
                with attempt:
                    self._catalog = load_catalog(self._catalog_name, **self._properties)
                    break
        return self._catalog


def _new_file(properties: Mapping[str, str], base: str, name: str) -> Any:
    """Open a new file as the table's own are opened, with the catalog's settings."""
    from pyiceberg.io import load_file_io

    location = f"{base}/{name}"
    return load_file_io(dict(properties), location).new_output(location).create()


def _store_errors() -> tuple[type[Exception], ...]:
    """Errors of files, and of the database that a SQL catalog is in."""
    try:
        from sqlalchemy.exc import DBAPIError
    except ImportError:
        return (OSError,)
    return (OSError, DBAPIError)


def _narrow(table: Any) -> None:
    """Leave of the metadata what an append needs: the newest snapshot, and no retries.

    pyiceberg copies all of it 18 times for a commit, with every snapshot, which was most of the
    727 ms of CPU that a commit took above 1,000 of them; it takes 60. And in a conflict it would
    add the files again, above whoever was faster.

    Changes what this process has read of the table, and nothing else: the catalog applies the
    updates to what it has itself.
    """
    metadata = table.metadata
    newest = metadata.current_snapshot_id
    table.metadata = metadata.model_copy(
        update={
            "snapshots": [s for s in metadata.snapshots if s.snapshot_id == newest],
            "snapshot_log": [],
            "properties": {**metadata.properties, RETRIES: "0"},
        }
    )


def _number(table: Any, group: str) -> int:
    return int(table.properties.get(_key(group), "0"))


def _key(group: str) -> str:
    return f"consumer-group.{group}"
