"""Dataclasses from values that were read as JSON: every field is there, and of its type.

For what this project writes and reads back. Whoever reads it does not have to trust it: after
`parse_dataclass` a value is what its annotations say, and a mistake is one kind of error.
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
"""What the log, the wire and every store can carry."""


def parse_dataclass(kind: type[T], values: Any) -> T:  # Any: what JSON holds.
    """A dataclass of the fields in a mapping; those with a default may be missing. JSON has lists
    for tuples.

    Raises:
        ValueError: it is no mapping, a field is unknown, missing or of another type.
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
        raise ValueError(f"{name} is not whole: {error}") from error


def matches_type(value: Any, hint: Any) -> bool:  # Any: any value, and any annotation.
    """Whether a value is what an annotation says: a plain type, a tuple, a union, an Enum or a
    dataclass. Whole numbers have at most 64 bits."""
    while isinstance(hint, NewType):
        hint = hint.__supertype__
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(matches_type(value, part) for part in parts)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if parts[-1] is Ellipsis:
            return all(matches_type(each, parts[0]) for each in value)
        return len(value) == len(parts) and all(map(matches_type, value, parts))
    if hint is None or hint is NoneType:
        return value is None
    if hint is int:
        return type(value) is int and -_INT_LIMIT <= value < _INT_LIMIT
    if hint in (str, bytes, bool, float):
        return type(value) is hint
    assert is_dataclass(hint) or issubclass(hint, Enum), f"{hint} has no shape"
    return isinstance(value, hint)


def _with_tuples(value: Any) -> Any:  # Any: what JSON holds.
    return tuple(map(_with_tuples, value)) if isinstance(value, list | tuple) else value


_hints: Callable[[Any], dict[str, Any]] = cache(get_type_hints)
"""The annotations of a dataclass, by field."""
