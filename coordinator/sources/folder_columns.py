"""Columns that folders are named for, as Spark and Hive write them: `date=2026-11-21/hour=7/`.

Their values are texts, as they stand in the names: what types they are, and in which time zone,
is Spark's to say, which reads them with its own readers.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from coordinator.sources.base import BadLayout

NULL = "__HIVE_DEFAULT_PARTITION__"


def values_of(name: str) -> dict[str, str | None]:
    """Columns and their values in a file's path.

    Raises:
        BadLayout: a column is there twice.
    """
    values: dict[str, str | None] = {}
    for folder in name.split("/")[:-1]:
        column, equals, text = folder.partition("=")
        column = unquote(column)
        if not equals or not column:
            continue
        if column in values:
            raise BadLayout(f"{name} is in two folders that name the column {column}")
        values[column] = None if text == NULL else unquote(text)
    return values


def with_values(batch: Any, values: dict[str, str | None], schema: Any) -> Any:
    """A pyarrow.RecordBatch with the columns of its folders too, in the order of a schema.

    Raises:
        pyarrow.ArrowInvalid: a text is no value of the schema's type.
    """
    import pyarrow as pa

    if batch.schema.equals(schema):
        return batch
    columns = [
        pa.repeat(pa.scalar(values[field.name], pa.string()).cast(field.type), batch.num_rows)
        if field.name in values
        else batch.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
