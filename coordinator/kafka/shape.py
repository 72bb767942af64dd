"""Walks over the bytes of a request before the library reads them, and checks every length.

kio allocates as many items as an array says it has: a length of two billion would exhaust memory
and end the process without an exception. And an item that is a byte on the wire
is a hundred once it is read. So each length has to fit into the bytes that are left, and all items
together may be so many. What the bytes mean is kio's business.

A walk over 1,000 offsets takes a millisecond; over a join, a few microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from coordinator.kafka.errors import Undecodable
from coordinator.kafka.headers import read_uvarint
from coordinator.kafka.schema import SIZES, Field, fields_of, is_flexible

LONG_DURATION = "timedelta_i64"
LONGEST_MS = 10**15
"""Longest duration that is handed to kio, in milliseconds: 30,000 years."""
CUT_OFF = "it is shorter than its fields"


class Walk:
    """One walk.

    items: how many items arrays may still have.
    changes: what is to be changed before kio reads it: begin, end, and what comes there.
    """

    __slots__ = ("changes", "data", "items")

    def __init__(self, data: bytes, items: int) -> None:
        self.data = data
        self.items = items
        self.changes: list[tuple[int, int, bytes]] = []


ShapeStep = Callable[[Walk, int], int]
"""Goes over one field, and returns the place after it."""


def checked(message: type, data: bytes, at: int, most_items: int) -> bytes:
    """Check the lengths of a request, and return bytes that the library can read.

    They are the same bytes, but for two things at which the library fails. Tagged fields that
    nobody knows here are left out: a newer client may have more of them (KIP-482). Durations that
    are too long for it become 0: clients say "for ever" with the largest number there is.

    Args:
        at: where its body begins in `data`.
    Raises:
        Undecodable: it is cut off, has a null where there is none, or more items.
    """
    walk = Walk(data, most_items)
    try:
        end = _message(message)(walk, at)
    except IndexError:
        raise Undecodable(CUT_OFF) from None
    if end > len(data):
        raise Undecodable(CUT_OFF)
    if not walk.changes:
        return data
    kept, done = bytearray(), 0
    for begin, end, instead in walk.changes:
        kept += data[done:begin] + instead
        done = end
    return bytes(kept + data[done:])


@cache
def _message(message: type) -> ShapeStep:
    """The step over a message; fields of fixed size that follow each other are one."""
    flexible = is_flexible(message)
    steps: list[ShapeStep] = []
    fixed = 0
    for field in fields_of(message):
        if field.tag is not None:
            continue
        if not field.is_array and field.kind in SIZES and field.kind != LONG_DURATION:
            fixed += SIZES[field.kind]
            continue
        if fixed:
            steps.append(_fixed(fixed))
            fixed = 0
        steps.append(_step(field, flexible))
    if fixed:
        steps.append(_fixed(fixed))
    if flexible:
        tagged = {
            field.tag: _step(field, True) for field in fields_of(message) if field.tag is not None
        }
        steps.append(_tags(tagged))

    def walk(walk: Walk, at: int) -> int:
        for step in steps:
            at = step(walk, at)
        return at

    return walk


def _step(field: Field, flexible: bool) -> ShapeStep:
    length = _compact_length if flexible else _long_length
    if field.is_array:
        item = _message(field.message) if field.message is not None else None
        size = SIZES.get(field.kind, 0)
        if item is None and not size:
            item = _string(flexible, field.kind)
        return _array(length, item, size, field.is_nullable)
    if field.message is not None:
        return _message(field.message)
    if field.kind == LONG_DURATION:
        return _long_duration
    return _string(flexible, field.kind)


def _fixed(size: int) -> ShapeStep:
    return lambda _, at: at + size


def _long_duration(walk: Walk, at: int) -> int:
    value = int.from_bytes(walk.data[at : at + 8], "big", signed=True)
    if abs(value) > LONGEST_MS:
        walk.changes.append((at, at + 8, bytes(8)))
    return at + 8


def _tags(known: dict[int, ShapeStep]) -> ShapeStep:
    def walk_tags(walk: Walk, at: int) -> int:
        data = walk.data
        if data[at] == 0:
            return at + 1
        begin = at
        count, at = read_uvarint(data, at)
        kept = []
        for _ in range(count):
            first = at
            tag, at = read_uvarint(data, at)
            size, at = read_uvarint(data, at)
            end = at + size
            if tag in known:
                kept.append(data[first:end])
                if known[tag](walk, at) != end:
                    raise Undecodable("a tagged field has another length than it says")
            at = end
        if len(kept) < count:
            walk.changes.append((begin, at, bytes([len(kept)]) + b"".join(kept)))
        return at

    return walk_tags


def _string(flexible: bool, kind: str) -> ShapeStep:
    if flexible:
        return _compact_string
    return _short_string if kind == "string" else _long_string


def _compact_string(walk: Walk, at: int) -> int:
    size = walk.data[at]
    if size < 0x80:
        return at + size if size else at + 1
    size, at = read_uvarint(walk.data, at)
    return at + max(size - 1, 0)  # A null may be written in two bytes, as any number.


def _short_string(walk: Walk, at: int) -> int:
    data = walk.data
    size = data[at] << 8 | data[at + 1]
    return at + 2 if size == 0xFFFF else at + 2 + size


def _long_string(walk: Walk, at: int) -> int:
    size, at = _long_length(walk.data, at)
    return at + max(size, 0)


def _compact_length(data: bytes, at: int) -> tuple[int, int]:
    size, at = read_uvarint(data, at)
    return size - 1, at


def _long_length(data: bytes, at: int) -> tuple[int, int]:
    if at + 4 > len(data):
        raise Undecodable(CUT_OFF)
    return int.from_bytes(data[at : at + 4], "big", signed=True), at + 4


def _array(
    length: Callable[[bytes, int], tuple[int, int]],
    item: ShapeStep | None,
    size: int,
    is_nullable: bool,
) -> ShapeStep:
    def walk(walk: Walk, at: int) -> int:
        data = walk.data
        count, at = length(data, at)
        if count <= 0:
            if count < 0 and not is_nullable:
                raise Undecodable("an array is null")
            return at
        # An item has a byte at least.
        if count * max(size, 1) > len(data) - at:
            raise Undecodable("an array is longer than the frame")
        walk.items -= count
        if walk.items < 0:
            raise Undecodable("it has too many items")
        if item is None:
            return at + count * size
        for _ in range(count):
            at = item(walk, at)
        return at

    return walk
