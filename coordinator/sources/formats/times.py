"""Timestamps in text, as Spark writes them: `2026-11-21T09:30:00.000+01:00`, `…Z`, or no zone.

Text with a zone is a point in time (`timestamp[us, UTC]`); without one it is one too if a point
in time is asked for, in UTC.
"""

from __future__ import annotations

from typing import Any

ISO = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?"
ZONE = r"(Z|[+-]\d\d(:?\d\d)?)$"


def without_times(schema: Any) -> Any:
    """The schema with its timestamps as text, to be parsed by `timestamps`."""
    import pyarrow as pa

    return pa.schema(
        [pa.field(f.name, pa.string()) if pa.types.is_timestamp(f.type) else f for f in schema]
    )


def timestamps(table: Any, schema: Any) -> Any:
    """The table with the columns that are timestamps in the schema as such.

    Raises:
        pyarrow.ArrowInvalid: a text is no time.
    """
    import pyarrow as pa

    for field in schema:
        at = table.schema.get_field_index(field.name)
        if at < 0 or not pa.types.is_timestamp(field.type):
            continue
        if table.schema.field(at).type == pa.string():
            table = table.set_column(at, field, _times(table.column(at), field.type))
    return table


def times_in(table: Any) -> Any:
    """The table with columns of text as timestamps where all of them are, in microseconds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            kind = pa.timestamp("us", "UTC" if field.type.tz else None)
            table = table.set_column(at, field.name, table.column(at).cast(kind))
        elif field.type == pa.string():
            column = table.column(at).drop_null()
            if not len(column):
                continue
            for kind, pattern in (
                (pa.timestamp("us", "UTC"), ISO + ZONE),
                (pa.timestamp("us"), ISO + "$"),
            ):
                if pc.all(pc.match_substring_regex(column, pattern)).as_py():
                    table = table.set_column(at, field.name, _times(table.column(at), kind))
                    break
    return table


def zoned(schema: Any, texts: Any) -> Any:
    """The schema with the timestamps as points in time whose texts have a zone.

    Arrow's guess at JSON takes `2026-11-21T09:30:00+01:00` for a time without one.

    Args:
        texts: table of the same rows with timestamps as text.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for at, field in enumerate(schema):
        if pa.types.is_timestamp(field.type) and not field.type.tz:
            found = pc.match_substring_regex(texts.column(field.name), ISO + ZONE)
            if pc.any(found).as_py():
                schema = schema.set(at, field.with_type(pa.timestamp("us", "UTC")))
    return schema


def _times(column: Any, kind: Any) -> Any:
    import pyarrow.compute as pc

    if kind.tz:
        for pattern, rest in ((r"^[^T ]*$", "T00:00:00Z"), (r"[T ][\d:.]*$", "Z")):
            lacks = pc.match_substring_regex(column, pattern)
            column = pc.if_else(lacks, pc.binary_join_element_wise(column, rest, ""), column)
    return column.cast(kind)
