"""Fields that a record and its message have under one name, and ranges as distances."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from itertools import accumulate
from typing import Any


def names_of(record: type, but: Iterable[str] = ()) -> list[str]:
    """Names of the fields of a record that its message has with the same type."""
    special = {"group_id", *but}
    return [field.name for field in fields(record) if field.name not in special]


def values_of(record: object, names: Iterable[str]) -> dict[str, Any]:
    """Values of these fields of a record."""
    return {name: getattr(record, name) for name in names}


def read_fields(message: Any, names: Iterable[str]) -> dict[str, Any]:  # Any: a message.
    """Values of these fields of a message; those that are not set, and could be, are left out."""
    return {
        name: getattr(message, name)
        for name in names
        if not message.DESCRIPTOR.fields_by_name[name].has_presence or message.HasField(name)
    }


def distances(ranges: Iterable[tuple[int, int]]) -> Iterable[int]:
    """First and last of each range in turn, each as its distance from the number before."""
    before = 0
    for first, last in ranges:
        yield first - before
        yield last - first
        before = last


def ranges(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Ranges from what `distances` returned."""
    ends = list(accumulate(numbers))
    return tuple(zip(ends[::2], ends[1::2], strict=True))
