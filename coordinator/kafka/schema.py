"""Kafka's message schemas, as kio's generated dataclasses have them.

kio is the library that is generated from Kafka's own schemas. Here its metadata become `Field`s, of
which `shape.py` makes checks of lengths and `codec.py` writers.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import timedelta
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin

from kio.index import load_request_schema, load_response_schema

MILLISECOND = timedelta(milliseconds=1)
SIZES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "float64": 8,
    "uuid": 16,
}
"""Bytes of the types that always have the same number of them."""
EMPTY: dict[str, Any] = {"string": "", "bytes": b"", "records": b""}
"""Values of fields without a default, if they cannot be null; of others 0."""


@dataclass(frozen=True, slots=True)
class Field:
    """Field of a message, or of the items of one of its fields.

    Args:
        kind: Kafka's type: a key of `SIZES`, `string`, `bytes`, `records`; empty for messages.
        message: kio's dataclass of the items; None for plain values.
        tag: its number among tagged fields; None: it is an ordinary one.
        default: value in an answer that does not say it: Kafka's, or else null or empty.
    """

    name: str
    kind: str
    message: type | None
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: Any  # Any: of the field's type.


def request_schema(key: int, version: int) -> type:
    """kio's dataclass of a request."""
    return load_request_schema(key, version)


def response_schema(key: int, version: int) -> type:
    """kio's dataclass of an answer."""
    return load_response_schema(key, version)


@cache
def fields_of(message: type) -> tuple[Field, ...]:
    """The fields of a message, in the order of the wire; tagged ones by tag at the end."""
    mapped = []
    for one_field in fields(message):
        kind, is_array = _without_none(one_field.type), False
        if get_origin(kind) is tuple:
            kind, is_array = get_args(kind)[0], True
        inner = kind if is_dataclass(kind) else None
        if one_field.default is not MISSING:
            default = one_field.default
        elif isinstance(one_field.type, UnionType):
            default = None
        else:
            default = () if is_array else EMPTY.get(one_field.metadata.get("kafka_type", ""), 0)
        if isinstance(default, timedelta):
            default //= MILLISECOND
        mapped.append(
            Field(
                one_field.name,
                one_field.metadata.get("kafka_type", ""),
                inner if isinstance(inner, type) else None,
                is_array,
                isinstance(one_field.type, UnionType),
                one_field.metadata.get("tag"),
                default,
            )
        )
    return tuple(sorted(mapped, key=lambda field: -1 if field.tag is None else field.tag))


def is_flexible(message: type) -> bool:
    """True if a message has compact lengths and tagged fields."""
    flexible: bool = message.__flexible__  # type: ignore[attr-defined]  # kio has no base class.
    return flexible


def _without_none(kind: Any) -> Any:
    if isinstance(kind, UnionType):
        return next(option for option in get_args(kind) if option is not type(None))
    return kind
