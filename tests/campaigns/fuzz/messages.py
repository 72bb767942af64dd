"""Hypothesis strategies for any protobuf message, from its descriptor alone.

Names that mean something to the group under attack come up often, so that what is sent is not
refused at the door each time.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

GROUP = "a group"
MEMBERS = ("member-0", "member-1")
"""Stand for a group and members there are; whoever sends a message puts their ids in place."""
GROUPS = (GROUP, "another", "")

_NAMES = {
    "group_id": GROUPS,
    "groups": GROUPS,
    "groups_names": GROUPS,
    "group_ids": GROUPS,
    "member_id": (*MEMBERS, "", "stranger"),
    "group_instance_id": ("i", ""),
    "protocol_type": ("consumer", ""),
    "protocol_name": ("range", "sticky"),
    "name": ("range", "sticky", "t"),
    "states_filter": ("Stable", "empty"),
}
_NUMBERS = (0, 1, 2, 3, 5, 50, 1_000, 10_000, -1, -2, 2**31 - 1, -(2**31))
_LARGE = (2**63 - 1, -(2**63), 2**53)
_TEXT = st.text(max_size=20) | st.sampled_from(["x" * 5_000, "\0", "\ud7ff\U0001f600", "\r\n"])
_INT = {FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SFIXED32}


def messages(descriptor: Descriptor, depth: int = 3) -> st.SearchStrategy[Message]:
    """Messages of a kind, with any of their fields set to anything of the right type."""
    kind = message_factory.GetMessageClass(descriptor)
    fields = {field.name: _values(field, depth) for field in descriptor.fields}
    return st.fixed_dictionaries({}, optional=fields).map(lambda values: kind(**values))


def _values(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    value = _value(field, depth)
    return st.lists(value, max_size=3) if field.is_repeated else value


def _value(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    match field.type:
        case FieldDescriptor.TYPE_MESSAGE:
            return messages(field.message_type, depth - 1)
        case FieldDescriptor.TYPE_STRING:
            names = _NAMES.get(field.name, ())
            return st.sampled_from(names) | _TEXT if names else _TEXT
        case FieldDescriptor.TYPE_BYTES:
            return st.binary(max_size=50) | st.just(b"\xff" * 70_000)
        case FieldDescriptor.TYPE_BOOL:
            return st.booleans()
        case FieldDescriptor.TYPE_DOUBLE:
            return st.sampled_from([0.0, 1.0, 2.5]) | st.floats()
        case FieldDescriptor.TYPE_ENUM:
            return st.sampled_from([value.number for value in field.enum_type.values])
        case FieldDescriptor.TYPE_INT64:
            return st.sampled_from(_NUMBERS + _LARGE) | st.integers(-(2**63), 2**63 - 1)
        case kind if kind in _INT:
            return st.sampled_from(_NUMBERS) | st.integers(-(2**31), 2**31 - 1)
    raise AssertionError(f"{field.full_name} is of a type that no strategy is for")


def with_ids(message: Message, ids: dict[str, str]) -> Message:
    """The message with the ids of what there is for their stand-ins, wherever they are."""
    for field, value in message.ListFields():
        parts = value if field.is_repeated else [value]
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for part in parts:
                with_ids(part, ids)
        elif field.type == FieldDescriptor.TYPE_STRING:
            known = [ids.get(part, part) for part in parts]
            if field.is_repeated:
                value[:] = known
            else:
                setattr(message, field.name, known[0])
    return message
