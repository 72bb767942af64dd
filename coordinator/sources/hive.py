"""Columns that folders are named for, as Spark and Hive write them: `date=2026-11-21/hour=7/`.

A value is text with `%` in front of two hexadecimal digits where a character cannot be in a name,
and `__HIVE_DEFAULT_PARTITION__` is null. The type of a column is inferred from all its values, by
Spark's rules: int, bigint, double, date, timestamp, else string.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from coordinator.sources.base import BadLayout

NULL = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile(r"[+-]?\d+")
_REAL = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|Infinity)|NaN")
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}")
_TIME = re.compile(r"\d{4}-\d{1,2}-\d{1,2}[ T]\d{1,2}:\d{1,2}:\d{1,2}(?:\.\d{1,6})?")
FolderValues = Mapping[str, str | None]


def values_of(name: str) -> dict[str, str | None]:
    """Columns and their values in a file's path.

    Raises:
        BadLayout: a column is there twice, or a folder names none.
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


def fields_of(all_values: Iterable[FolderValues]) -> list[tuple[str, Any]]:
    """Names of the columns and their pyarrow types."""
    found: dict[str, set[str]] = {}
    for values in all_values:
        for column, text in values.items():
            kinds = found.setdefault(column, set())
            if text is not None:
                kinds.add(_kind(text))
    return [(column, _type(kinds)) for column, kinds in found.items()]


def value_as(text: str | None, kind: Any) -> Any:
    """A pyarrow.Scalar of a type.

    Raises:
        ValueError: the text is no such value.
    """
    import pyarrow as pa

    if text is None:
        return pa.scalar(None, kind)
    try:
        parse = _parser(kind)
        if parse is not None:
            return pa.scalar(parse(text), kind)
        return pa.scalar(text).cast(kind)
    except (ValueError, pa.ArrowException) as error:
        raise ValueError(f"{text!r} is no value of the type {kind}") from error


def _kind(text: str) -> str:
    if _WHOLE.fullmatch(text):
        number = int(text)
        if -(2**31) <= number < 2**31:
            return "int"
        return "long" if -(2**63) <= number < 2**63 else "string"
    if _REAL.fullmatch(text):
        return "double"
    for pattern, kind in ((_DATE, "date"), (_TIME, "timestamp")):
        if pattern.fullmatch(text):
            try:
                _moment(text)
            except ValueError:
                continue
            return kind
    return "string"


def _type(kinds: set[str]) -> Any:
    import pyarrow as pa

    if kinds == {"int"}:
        return pa.int32()
    if kinds and kinds <= {"int", "long"}:
        return pa.int64()
    if kinds and kinds <= {"int", "long", "double"}:
        return pa.float64()
    if kinds == {"date"}:
        return pa.date32()
    if kinds and kinds <= {"date", "timestamp"}:
        return pa.timestamp("us", "UTC")
    return pa.string()


def _parser(kind: Any) -> Callable[[str], Any] | None:
    """Function that makes Python's value of a text; None: pyarrow casts."""
    import pyarrow as pa

    if pa.types.is_integer(kind):
        return int
    if pa.types.is_floating(kind):
        return float
    if pa.types.is_date(kind):
        return lambda text: _moment(text).date()
    if pa.types.is_timestamp(kind):
        return lambda text: _moment(text) if kind.tz else _moment(text).replace(tzinfo=None)
    return None


def _moment(text: str) -> dt.datetime:
    """The time of `2026-11-21` or `2026-11-21 7:05:00.5`, in UTC."""
    numbers = [int(part) for part in re.split(r"[-T :]", text.partition(".")[0])]
    fraction = text.partition(".")[2]
    micros = int(fraction.ljust(6, "0")) if fraction else 0
    year, month, day, hour, minute, second = [*numbers, 0, 0, 0][:6]
    return dt.datetime(year, month, day, hour, minute, second, micros, dt.UTC)
