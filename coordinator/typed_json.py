"""Dataclasses from JSON values: every field is present and of its annotated type.

Used for JSON that this project writes and reads back without trusting it: `parse_dataclass` returns
a value that matches its annotations or raises ValueError.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
_INT_LIMIT = 2**63
"""Bound of integers in the log, on the wire and in every store (int64)."""


def parse_dataclass(kind: type[T], values: Any) -> T:  # Any: a JSON value.
    """A dataclass from a mapping of its fields; fields with a default may be missing.

    Lists become tuples.

    Raises:
        ValueError: it is not a mapping, or a field is unknown, missing or of another type.
    """
    name = kind.__name__
    if not isinstance(values, dict):
        raise ValueError(f"{name} cannot be made of a {type(values).__name__}")
    hints, fields = _hints(kind), {}
    for field, value in values.items():
        value = _with_tuples(value)
        if field not in hints:
            raise ValueError(f"{name} has no field {field!r:.80}")
        if not matches_type(value, hints[field]):
            raise ValueError(f"{field} of {name} cannot be {value!r:.80}")
        fields[field] = value
    try:
        return kind(**fields)
    except TypeError as error:
        raise ValueError(f"{name} is incomplete: {error}") from error


def matches_type(value: Any, hint: Any) -> bool:  # Any: any value, and any annotation.
    """True if a value matches an annotation: a plain type, tuple, union, Enum or dataclass.

    Integers must fit into 64 bits.
    """
    while isinstance(hint, NewType):
        hint = hint.__supertype__
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(matches_type(value, part) for part in parts)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if parts[-1] is Ellipsis:
            return all(matches_type(item, parts[0]) for item in value)
        return len(value) == len(parts) and all(map(matches_type, value, parts))
    if hint is object:
        return True
    if hint is None or hint is NoneType:
        return value is None
    if hint is int:
        return type(value) is int and -_INT_LIMIT <= value < _INT_LIMIT
    if hint in (str, bytes, bool, float):
        return type(value) is hint
    assert is_dataclass(hint) or issubclass(hint, Enum), f"{hint} has no shape"
    return isinstance(value, hint)


def _with_tuples(value: Any) -> Any:  # Any: a JSON value.
    return tuple(map(_with_tuples, value)) if isinstance(value, list | tuple) else value


_hints: Callable[[Any], dict[str, Any]] = cache(get_type_hints)
"""The annotations of a dataclass, by field."""
