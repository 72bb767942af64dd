"""Bodies of requests, read by kio, and bodies of answers, written from mappings.

An answer is a mapping from the names of kio's dataclasses to values: numbers, texts, bytes, lists
of such mappings; durations in milliseconds. One answer serves all versions: what a version has no
field for is left out, and what the answer does not say has Kafka's default. So handlers need to
know of versions only where their meaning differs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import cache
from struct import Struct, pack
from typing import Any, TypeAlias

from kio.serial import entity_reader

from coordinator.kafka.errors import Undecodable
from coordinator.kafka.frames import LENGTH
from coordinator.kafka.headers import RequestHeader, answer_header
from coordinator.kafka.schema import Field, fields_of, is_flexible, request_schema, response_schema
from coordinator.kafka.shape import checked

Body: TypeAlias = Any
"""A request: kio's dataclass of its API and version."""
Answer: TypeAlias = Mapping[str, Any]  # Any: of each field's type.
Encoding: TypeAlias = Generator[None, None, bytes]

AT_ONCE = 50
"""Items of an array that are written before others may use the event loop."""
MOST_ITEMS = 1_000_000
NO_ID = bytes(16)
NO_TIME = -1
LONGEST_TEXT = 32_767
"""Bytes of a text in versions that are not flexible."""


class Unsayable(Exception):
    """An answer that a version has no room for."""


def decode(header: RequestHeader, frame: bytes, most_items: int = MOST_ITEMS) -> Body:
    """Return the body of a request, by its version's fields.

    Args:
        most_items: most items that its arrays may have together.
    Raises:
        Undecodable: the bytes are none.
    """
    message, read = _reader(header.api.key, header.version)
    data = checked(message, frame, header.end, most_items)
    try:
        body, _ = read(data, header.end)
    except Exception as error:  # kio has no list of what it raises.
        raise Undecodable(f"{type(error).__name__}: {error}") from error
    return body


def encode(header: RequestHeader, answer: Answer) -> Encoding:
    """Write the frame of the answer to a request, a slice at a time.

    Raises:
        Unsayable: a text is longer than this version can say.
    """
    out = bytearray(4)
    out += answer_header(header)
    write = _writer(response_schema(header.api.key, header.version))
    yield from write(out, answer)
    LENGTH.pack_into(out, 0, len(out) - 4)
    return bytes(out)


@cache
def _reader(key: int, version: int) -> tuple[type, Callable[[bytes, int], tuple[Any, int]]]:
    message = request_schema(key, version)
    return message, entity_reader(message)


Write = Callable[[bytearray, Any], None]  # Any: of the field's type.
Work = Callable[[bytearray, Any], Generator[None, None, None]]


@cache
def _writer(message: type) -> Work:
    """The writer of a message that may have arrays of messages."""
    flexible = is_flexible(message)
    fields = fields_of(message)
    ordinary = [_field(field, flexible) for field in fields if field.tag is None]
    tagged = [(field.tag, *_field(field, flexible)) for field in fields if field.tag is not None]

    def write(out: bytearray, answer: Answer) -> Generator[None, None, None]:
        for name, default, plain, work in ordinary:
            value = answer.get(name, default)
            if plain is not None:
                plain(out, value)
            else:
                assert work is not None
                yield from work(out, value)
        if flexible:
            _write_tags(out, answer, tagged)

    return write


def _write_tags(out: bytearray, answer: Answer, tagged: list[Any]) -> None:
    present = [entry for entry in tagged if answer.get(entry[1], entry[2]) != entry[2]]
    out += _uvarint(len(present))
    for tag, name, _, plain, work in present:
        value = bytearray()
        if plain is not None:
            plain(value, answer[name])
        else:
            for _ in work(value, answer[name]):
                pass
        out += _uvarint(tag) + _uvarint(len(value)) + value


def _field(field: Field, flexible: bool) -> tuple[str, Any, Write | None, Work | None]:
    """Name, default, and a writer: one of two kinds."""
    if field.is_array:
        return field.name, field.default, *_array(field, flexible)
    if field.message is not None:
        return field.name, field.default, None, _writer(field.message)
    return field.name, field.default, _plain(field.kind, flexible), None


def _array(field: Field, flexible: bool) -> tuple[Write | None, Work | None]:
    write_length = _write_compact_length if flexible else _write_length
    if field.message is None:
        plain = _plain(field.kind, flexible)

        def write_values(out: bytearray, values: Any) -> None:
            write_length(out, values)
            for value in values or ():
                plain(out, value)

        return write_values, None
    write_item = _writer(field.message)

    def write_items(out: bytearray, items: Any) -> Generator[None, None, None]:
        write_length(out, items)
        for number, item in enumerate(items or (), 1):
            yield from write_item(out, item)
            if not number % AT_ONCE:
                yield

    return None, write_items


def _write_compact_length(out: bytearray, values: Any) -> None:
    out += _uvarint(0 if values is None else len(values) + 1)


def _write_length(out: bytearray, values: Any) -> None:
    out += LENGTH.pack(-1 if values is None else len(values))


def _plain(kind: str, flexible: bool) -> Write:
    if kind in _FORMATS:
        pack_value = Struct(">" + _FORMATS[kind]).pack

        def write_number(out: bytearray, value: Any) -> None:
            out += pack_value(value)

        def write_time(out: bytearray, value: Any) -> None:
            out += pack_value(NO_TIME if value is None else value)

        return write_time if kind == "datetime_i64" else write_number
    if kind == "uuid":
        return lambda out, value: out.extend(NO_ID if value is None else value.bytes)
    if flexible:
        return _write_compact
    return _write_short if kind == "string" else _write_long


_FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "error_code": "h",
    "int32": "i",
    "timedelta_i32": "i",
    "int64": "q",
    "timedelta_i64": "q",
    "datetime_i64": "q",
    "float64": "d",
}


def _write_compact(out: bytearray, value: str | bytes | None) -> None:
    if value is None:
        out.append(0)
        return
    data = value.encode() if isinstance(value, str) else value
    out += _uvarint(len(data) + 1)
    out += data


def _write_short(out: bytearray, value: str | None) -> None:
    if value is None:
        out += b"\xff\xff"
        return
    data = value.encode()
    if len(data) > LONGEST_TEXT:
        raise Unsayable(f"a text of {len(data)} bytes")
    out += pack(">h", len(data))
    out += data


def _write_long(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
        return
    out += LENGTH.pack(len(value))
    out += value


def _uvarint(value: int) -> bytes:
    if value < 0x80:
        return _SMALL[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL = [bytes([value]) for value in range(0x80)]
