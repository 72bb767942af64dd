"""Delta tables. Needs the extra `delta`.

Staged files lie in the table's folder, where Delta's own VACUUM removes those that do not count.
The number is a transaction identifier of Delta (`txn`: appId, version), which the log keeps through
checkpoints, and which the version of the table that brings the rows sets.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from coordinator.sources.file_stores import StoreEntry
from coordinator.sources.file_systems import StorePath
from coordinator.spark.sinks.attempts import attempts
from coordinator.spark.sinks.delta_protocol import conditions_of
from coordinator.spark.sinks.delta_stats import stats_of
from coordinator.spark.sinks.protocol import Decision, SinkRefused
from coordinator.spark.sinks.staging import (
    arrow_schema,
    files_of,
    new_file,
    stage_files,
    staged_are_gone,
    to_token,
)

PARTITIONED_BY = frozenset({"string", "byte", "short", "integer", "long", "boolean", "date"})
"""Types of columns that a table may be partitioned by: their text is the same everywhere."""


class DeltaSink:
    """A `Sink` into a Delta table, which is made without partitions if it is not there.

    Args:
        location: of the table: a path, or s3://BUCKET/PATH and the like. Settings behind `?` are
            pyarrow's, and count for Delta too: endpoint_override, region, scheme.
        storage_options: more settings for `deltalake`, under its names.
    """

    def __init__(self, location: str, *, storage_options: Mapping[str, str] | None = None) -> None:
        self._folder = StorePath.of(location)
        self._options = {**_options(self._folder), **(storage_options or {})}
        # The table as it was last seen, its version, and the file of that version.
        self._kept: tuple[Any, int, StoreEntry | None] | None = None

    @property
    def location(self) -> str:
        return f"delta:{self._folder.absolute}"

    def stage(self, rows: Any, name: str) -> str:
        by, conditions = self._check(arrow_schema(rows))
        opener = partial(new_file, self._folder)
        return to_token(stage_files(rows, opener, f"staged-{name}", by, conditions))

    def commit(self, token: str, decision: Decision) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction

        now_ms, files = int(time.time() * 1_000), files_of(token)
        # A put without an answer may have been made: each attempt looks at the number again.
        for attempt in attempts(DeltaError, OSError, failure=f"{self.location} cannot be written"):
            with attempt:
                table = self._table()
                if self._number(table, decision.group) >= decision.number:
                    return
                by = table.metadata().partition_columns
                if any(len(file.values) != len(by) for file in files):
                    raise SinkRefused(
                        f"{self.location} was partitioned anew, by {', '.join(by) or 'nothing'}, "
                        "after rows were staged for it: put it back"
                    )
                table.create_write_transaction(
                    [
                        AddAction(
                            file.name,
                            file.size,
                            dict(zip(by, file.values, strict=True)),
                            now_ms,
                            True,
                            self._stats(file.name, decision),
                        )
                        for file in files
                    ],
                    mode="append",
                    schema=table.schema(),
                    partition_by=by or None,
                    commit_properties=CommitProperties(
                        custom_metadata={"consumerGroup": decision.group},
                        # Delta would try again on top of a version that has our number.
                        max_commit_retries=0,
                        app_transactions=[Transaction(_app_id(decision.group), decision.number)],
                    ),
                )
                return

    def recover(self, newest: Decision) -> int:
        from deltalake.exceptions import TableNotFoundError

        try:
            return self._number(self._table(), newest.group)
        except TableNotFoundError:
            return 0

    def discard(self, token: str) -> None:
        for file in files_of(token):
            (self._folder / file.name).delete()

    # --- Inside ---

    def _stats(self, name: str, decision: Decision) -> str:
        """Statistics of a staged file, which only a VACUUM can have deleted."""
        try:
            return stats_of(self._folder / name)
        except FileNotFoundError as error:
            cleaner = "a VACUUM that keeps files for less than the 7 days that Delta has by default"
            raise staged_are_gone(f"{self.location}: {name}", decision, cleaner) from error

    def _check(self, schema: Any) -> tuple[list[str], Mapping[str, str]]:
        """Make the table if there is none, and compare the schema with its own.

        Returns:
            The columns that it is partitioned by, and conditions that rows have to meet.
        """
        import deltalake
        from deltalake.exceptions import CommitFailedError, TableNotFoundError

        stored = deltalake.Schema.from_arrow(schema)
        try:
            table = self._table()
        except TableNotFoundError:
            with contextlib.suppress(CommitFailedError):  # Another query makes it at this moment.
                deltalake.DeltaTable.create(
                    self._uri(), stored, mode="ignore", storage_options=self._options
                )
            table = self._table()
        conditions = conditions_of(table, self.location, schema.names)
        known = {field.name: field for field in table.schema().fields}
        by = list(table.metadata().partition_columns)
        for name in by:
            if name not in schema.names:
                raise SinkRefused(
                    f"{self.location} is partitioned by {name}, which the rows do not have"
                )
            if str(getattr(known[name].type, "type", "")) not in PARTITIONED_BY:
                raise SinkRefused(
                    f"{self.location} is partitioned by {name}, which is {known[name].type}: this "
                    f"sink writes partitions by {', '.join(sorted(PARTITIONED_BY))}"
                )
        for field in stored.fields:
            if field.name not in known:
                raise SinkRefused(
                    f"{self.location} has no column {field.name}: add it to the table, or select "
                    f"its columns ({', '.join(known)}) before the sink"
                )
            if field.type != known[field.name].type:
                raise SinkRefused(
                    f"{self.location}: column {field.name} is {known[field.name].type} in the "
                    f"table, and {field.type} in the rows: cast it before the sink"
                )
        return by, conditions

    def _table(self) -> Any:
        """The table as it is now.

        One that was seen before is brought up to date: to read the log anew takes some requests
        for each version since the last checkpoint.
        """
        from deltalake import DeltaTable

        nothing: tuple[Any, int, StoreEntry | None] = (None, 0, None)
        (table, version, entry), self._kept = self._kept or nothing, None
        # Not if a copy of another time took the table's place.
        if entry is not None and entry == self._log_entry(version):
            table.update_incremental()
        else:
            table = DeltaTable(self._uri(), storage_options=self._options)
        if table.version() != version or entry is None:
            version, entry = table.version(), self._log_entry(table.version())
        self._kept = table, version, entry
        return table

    def _log_entry(self, version: int) -> StoreEntry | None:
        return (self._folder / f"_delta_log/{version:020}.json").stat()

    def __getstate__(self) -> dict[str, Any]:  # Any: attributes.
        return {**self.__dict__, "_kept": None}

    def _number(self, table: Any, group: str) -> int:
        return table.transaction_version(_app_id(group)) or 0

    def _uri(self) -> str:
        return os.path.abspath(self._folder.path) if self._folder.is_local else str(self._folder)


def _app_id(group: str) -> str:
    return f"consumer-group:{group}"


def _options(folder: StorePath) -> dict[str, str]:
    """Settings for deltalake's S3, from those for pyarrow's and the environment."""
    if not folder.base.startswith("s3:"):
        return {}
    parsed = dict(parse_qsl(folder.settings))
    options = {}
    endpoint = parsed.get("endpoint_override") or os.environ.get("AWS_ENDPOINT_URL", "")
    if endpoint:
        scheme = parsed.get("scheme", "https")
        endpoint = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
        options["AWS_ENDPOINT_URL"] = endpoint
        options["AWS_ALLOW_HTTP"] = str(endpoint.startswith("http:")).lower()
    if "region" in parsed:
        options["AWS_REGION"] = parsed["region"]
    return options
