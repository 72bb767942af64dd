"""Demands of a Delta table on those who append to it: kept by this sink, or refused by its name.

Delta's protocol (PROTOCOL.md of delta-io/delta) lists features; a table names those that its
writers must know, and its configuration and schema say which are used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from coordinator.spark.sinks.protocol import SinkRefused

FEATURES = frozenset(
    "appendOnly invariants checkConstraints changeDataFeed generatedColumns identityColumns "
    "columnMapping deletionVectors timestampNtz v2Checkpoint vacuumProtocolCheck typeWidening "
    "domainMetadata clustering allowColumnDefaults inCommitTimestamp".split()
)
"""Features that ask nothing of an append, or whose use is looked for below. An append deletes and
changes no row, so it writes neither deletion vectors nor change data."""
NEWEST_VERSION = 7
"""Newest version of the protocol for writers; it is the one with names of features."""
_CONSTRAINT = "delta.constraints."
_USED = {
    "delta.enableRowTracking": "row tracking",
    "delta.enableInCommitTimestamps": "timestamps in commits",
    "delta.enableIcebergCompatV1": "Iceberg's format (v1)",
    "delta.enableIcebergCompatV2": "Iceberg's format (v2)",
}
"""Settings that ask something of an append, and what it is."""
_OF_COLUMNS = {
    "delta.generationExpression": "is generated",
    "delta.identity.start": "is an identity column",
    "delta.identity.step": "is an identity column",
}


def conditions_of(table: Any, location: str, columns: list[str]) -> dict[str, str]:
    """Conditions that each row has to meet, in Spark's SQL, by what to call them.

    Args:
        table: a deltalake.DeltaTable. columns: of the rows.
    Raises:
        SinkRefused: the table demands what this sink cannot keep.
    """
    protocol, settings = table.protocol(), table.metadata().configuration
    unknown = sorted(set(protocol.writer_features or ()) - FEATURES)
    if protocol.min_writer_version > NEWEST_VERSION or unknown:
        reason = ", ".join(unknown) or f"version {protocol.min_writer_version} of its protocol"
        raise _refused(location, f"asks its writers for {reason}")
    for name, reason in _USED.items():
        if settings.get(name, "").lower() == "true":
            raise _refused(location, f"has {reason} ({name})")
    if (mapping := settings.get("delta.columnMapping.mode", "none")) != "none":
        raise _refused(location, f"has its columns under other names (column mapping by {mapping})")
    conditions = {
        f"constraint {name.removeprefix(_CONSTRAINT)}": sql
        for name, sql in settings.items()
        if name.startswith(_CONSTRAINT)
    }
    for field in table.schema().fields:
        conditions |= _of_column(field, location, is_given=field.name in columns)
    return conditions


# --- Inside ---


def _of_column(field: Any, location: str, *, is_given: bool) -> dict[str, str]:
    """Conditions of one column."""
    column, metadata = f"column {field.name}", field.metadata
    for name, condition in _OF_COLUMNS.items():
        if name in metadata:
            raise _refused(location, f"{column} {condition}")
    if "CURRENT_DEFAULT" in metadata and not is_given:
        raise _refused(location, f"{column} has a default, and the rows do not have it: add it")
    if not all(_inside_may_be_null(field.type)):
        raise _refused(location, f"{column} has a field that may not be null")
    conditions = {}
    if "delta.invariants" in metadata:
        invariant = json.loads(metadata["delta.invariants"])
        conditions[f"the invariant of {column}"] = invariant["expression"]["expression"]
    if not field.nullable:
        if not is_given:
            raise _refused(
                location, f"{column} may not be null, and the rows do not have it: add it"
            )
        conditions[f"{column}, which may not be null"] = (
            f"`{field.name.replace('`', '``')}` IS NOT NULL"
        )
    return conditions


def _inside_may_be_null(kind: Any) -> Iterator[bool]:
    """For everything inside a type, at any depth: whether it may be null. Keys of maps may not."""
    for field in getattr(kind, "fields", ()):
        yield field.nullable
        yield from _inside_may_be_null(field.type)
    for name in ("element_type", "key_type", "value_type"):
        if hasattr(kind, name):
            yield from _inside_may_be_null(getattr(kind, name))
    yield getattr(kind, "contains_null", True)
    yield getattr(kind, "value_contains_null", True)


def _refused(location: str, reason: str) -> SinkRefused:
    return SinkRefused(f"{location} {reason}, which this sink cannot write: write to another table")
