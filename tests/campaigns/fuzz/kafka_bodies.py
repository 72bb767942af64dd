"""Requests over Kafka's wire, of every API in every version. The first two bytes choose.

What is understood is written again by the library and stays what it is, and what we read by hand
says what the library says.
"""

import struct
from datetime import UTC, datetime, timedelta
from uuid import UUID

from coordinator.kafka import codec
from coordinator.kafka.apis import APIS, HEARTBEAT
from coordinator.kafka.errors import Undecodable
from coordinator.kafka.headers import read_header
from coordinator.kafka.heartbeats import read_beat
from coordinator.kafka.schema import fields_of, request_schema
from tests.kit.kafka.messages import written

KINDS = [
    (api, version) for api in APIS.values() for version in range(api.low, api.high + 1)
]  # fmt: skip


def target(data: bytes) -> None:
    if len(data) < 2:
        return
    api, version = KINDS[int.from_bytes(data[:2], "big") % len(KINDS)]
    frame = head(api, version) + data[2:]
    header = read_header(frame, api, version)
    try:
        body = codec.decode(header, frame)
    except Undecodable:
        body = None
    if api is HEARTBEAT:
        assert _beat(frame, version) == body
    if body is None:
        return
    again = head(api, version) + written(body)
    assert codec.decode(header, again) == body


def head(api, version: int) -> bytes:
    head = struct.pack(">hhih", api.key, version, 7, -1)
    return head + b"\0" if api.is_flexible(version) else head


def _beat(frame: bytes, version: int):
    """The heartbeat that is read by hand, as the library would have it."""
    try:
        group_id, member_id, instance_id, generation = read_beat(frame, version)
    except Undecodable:
        return None
    message = request_schema(HEARTBEAT.key, version)
    values = {"group_id": group_id, "member_id": member_id, "generation_id": generation}
    if any(field.name == "group_instance_id" for field in fields_of(message)):
        values["group_instance_id"] = instance_id
    return message(**values)


def seeds():
    for number, (api, version) in enumerate(KINDS):
        for filled in (False, True):
            yield number.to_bytes(2, "big") + written(example_of(api, version, filled=filled))


def example_of(api, version: int, *, filled: bool):
    """A request with two items in each array and something in every field, or with empty arrays."""
    return _example(request_schema(api.key, version), filled)


def _example(message, filled: bool):
    values = {}
    for field in fields_of(message):
        one = _example(field.message, filled) if field.message else VALUES[field.kind]
        values[field.name] = (one, one)[: 2 * filled] if field.is_array else one
    return message(**values)


VALUES = {
    "bool": True,
    **dict.fromkeys(("int8", "int16", "uint16", "int32", "int64"), 1),
    **dict.fromkeys(("timedelta_i32", "timedelta_i64"), timedelta(seconds=10)),
    "datetime_i64": datetime.fromtimestamp(1_700_000_000, UTC),
    "float64": 0.5,
    "uuid": UUID(int=7),
    "string": "orders",
    **dict.fromkeys(("bytes", "records"), b"\0\1\2"),
    "error_code": 0,
}
