"""The option `filters`: conditions on columns that are read, as JSON."""

from __future__ import annotations

import json
from typing import Any

from coordinator.sources.conditions import (
    COMPARISONS,
    EQUAL,
    IS_NOT_NULL,
    IS_NULL,
    MOST_VALUES,
    Condition,
    condition,
)
from coordinator.sources.location import nearest
from coordinator.spark.refusals import BadOption

IN = "in"
FilterTold = tuple[str, str, tuple[Any, ...]]
"""Column, operator, and values: any of them is enough."""


def filters_told(text: str) -> tuple[FilterTold, ...]:
    """Parse conditions on rows: `[["delay", ">", 10], ["carrier", "in", ["UA", "B6"]]]`.

    Raises:
        ValueError: they are none.
    """
    refusal = ValueError(
        f"filters={text[:80]}: expected is a JSON list of conditions, each a list of column, "
        f"operator ({', '.join((*COMPARISONS, IN, IS_NULL, IS_NOT_NULL))}) and value, such as "
        '[["delay", ">", 10], ["carrier", "in", ["UA", "B6"]], ["tail", "is not null"]]'
    )
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        raise refusal from None
    if not isinstance(told, list) or not told:
        raise refusal
    return tuple(_filter_told(each, refusal) for each in told)


def condition_of(column: str, operator: str, values: tuple[Any, ...], schema: Any) -> Condition:
    """A filter as a condition on the columns of a pyarrow.Schema.

    Raises:
        BadOption: there is no such column, a value is not of its type, or there are too many.
    """
    import pyarrow as pa

    if column not in schema.names:
        raise BadOption(
            f"filters names the column {column[:80]}, which is not read"
            f"{nearest(column[:80], schema.names)}; those that are read are "
            f"{', '.join(schema.names)[:400]}"
        )
    kind = schema.field(column).type
    if pa.types.is_nested(kind):
        raise BadOption(
            f"filters names {column[:80]}, which is of the type {str(kind)[:80]}: filters are on "
            "columns that are not nested"
        )
    if len(values) > MOST_VALUES:
        raise BadOption(
            f"filters has {len(values)} values for {column[:80]}, and at most {MOST_VALUES} are "
            "compared: leave that condition to where(...)"
        )
    try:
        typed = [pa.scalar(v).cast(kind).as_py() if isinstance(v, str) else v for v in values]
    except (pa.ArrowException, ValueError):
        typed = []
    made = condition(column, operator, typed, kind) if len(typed) == len(values) else None
    if made is None:
        has_zone = pa.types.is_timestamp(kind) and kind.tz
        advice = ": write it with its zone, such as 2026-11-21T09:30:00Z" if has_zone else ""
        raise BadOption(
            f"filters compares {column[:80]} with what is not of the type {kind}{advice}"
        )
    return made


# --- Inside ---


def _filter_told(each: Any, refusal: ValueError) -> FilterTold:
    if not isinstance(each, list) or not all(isinstance(part, str) for part in each[:2]):
        raise refusal
    match each:
        case [column, operator] if operator in (IS_NULL, IS_NOT_NULL):
            return column, operator, ()
        case [column, operator, value] if operator in COMPARISONS and _is_value(value):
            return column, operator, (value,)
        case [column, operator, [*values]] if operator == IN and all(map(_is_value, values)):
            return column, EQUAL, tuple(values)
    raise refusal


def _is_value(value: Any) -> bool:
    return isinstance(value, str | int | float)  # Also true and false.
