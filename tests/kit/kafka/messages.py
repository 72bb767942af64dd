"""Messages of Kafka's protocol for tests, made and read by kio: the other side of the wire."""

from __future__ import annotations

import io
import random
import struct
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.serial import entity_reader, entity_writer

from coordinator.kafka.apis import API_VERSIONS
from coordinator.kafka.schema import fields_of, request_schema, response_schema


def written(message) -> bytes:
    """A message's bytes, by kio."""
    out = io.BytesIO()
    entity_writer(type(message))(out, message)
    return out.getvalue()


def made(kind, values: dict[str, Any]):
    """A message of a version: values that the version has no field for are left out."""
    given = {}
    types = {each.name: each for each in fields(kind)}
    for field in fields_of(kind):
        if field.name in values:
            given[field.name] = _value(field, values[field.name])
        elif types[field.name].default is MISSING:
            given[field.name] = _value(field, field.default)
    return kind(**given)


def _value(field, value):
    if value is None:
        return None
    if field.is_array:
        return tuple(_item(field, item) for item in value)
    return _item(field, value)


def _item(field, value):
    if field.message is not None:
        return made(field.message, value)
    if field.kind.startswith("timedelta") and isinstance(value, int):
        return timedelta(milliseconds=value)
    if field.kind == "error_code":
        return ErrorCode(value)
    return value


def header_bytes(api, version, correlation_id=1, client_id="client") -> bytes:
    kind = HeaderV2 if api.is_flexible(version) else HeaderV1
    return written(
        kind(
            request_api_key=api.key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=client_id,
        )
    )


def request(api, version, correlation_id=1, client_id="client", **values) -> bytes:
    """The bytes of a request without its length."""
    body = made(request_schema(api.key, version), values)
    return header_bytes(api, version, correlation_id, client_id) + written(body)


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def answer(api, version, body: bytes):
    """Correlation id and message of an answer without its length; nothing may be left over."""
    (correlation_id,) = struct.unpack_from(">i", body)
    at = 4
    if api.is_flexible(version) and api is not API_VERSIONS:
        assert body[at] == 0
        at += 1
    message, size = entity_reader(response_schema(api.key, version))(body, at)
    assert at + size == len(body)
    return correlation_id, message


# --- Anything that a schema allows ---


def anything(kind, chance: random.Random):
    """A message with a value in every field."""
    return made(kind, {field.name: _any_value(field, chance) for field in fields_of(kind)})


def values_of(message) -> dict[str, Any]:
    """A message as the mapping that `codec.encode` takes."""
    return {
        field.name: _plain(field, getattr(message, field.name))
        for field in fields_of(type(message))
    }


def _plain(field, value):
    if value is None:
        return None
    if field.is_array:
        return tuple(_plain_item(field, item) for item in value)
    return _plain_item(field, value)


def _plain_item(field, value):
    if field.message is not None:
        return values_of(value)
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    return value


def _any_value(field, chance):
    if field.is_nullable and field.kind != "uuid" and chance.random() < 0.3:
        return None
    if field.is_array:
        return [_any_item(field, chance) for _ in range(chance.choice((0, 1, 3)))]
    return _any_item(field, chance)


def _any_item(field, chance):
    if field.message is not None:
        return {each.name: _any_value(each, chance) for each in fields_of(field.message)}
    return _ANY[field.kind](chance)


def _bits(count):
    return lambda chance: chance.getrandbits(count) - 2 ** (count - 1)


_ANY = {
    "bool": lambda chance: chance.random() < 0.5,
    "int8": _bits(8),
    "int16": _bits(16),
    "uint16": lambda chance: chance.getrandbits(16),
    "int32": _bits(32),
    "int64": _bits(64),
    "float64": lambda chance: chance.random(),
    "timedelta_i32": lambda chance: timedelta(milliseconds=chance.getrandbits(31)),
    "timedelta_i64": lambda chance: timedelta(milliseconds=chance.getrandbits(40)),
    "datetime_i64": lambda chance: datetime.fromtimestamp(chance.getrandbits(31), UTC),
    "error_code": lambda chance: chance.choice(list(ErrorCode)),
    "uuid": lambda chance: UUID(int=chance.getrandbits(127) + 1),
    "string": lambda chance: (
        "ab\u00e9\u20ac\U0001f600"[: chance.randrange(6)] * chance.choice((1, 1, 60))
    ),
    "bytes": lambda chance: chance.randbytes(chance.choice((0, 1, 5, 200))),
    "records": lambda chance: chance.randbytes(chance.choice((0, 1, 5, 200))),
}
