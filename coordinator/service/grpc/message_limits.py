"""Limits of every repeated field and every text of every message of the contract.

`LIMITS` is plain data, with the values of `service/bounds.py`. `MessageLimits.counts` counts the
items of a parsed message; `wire_counts` counts them in the bytes, before anything is parsed. How
long texts are is checked by the pipeline, but for those of health and reflection, which it does not
see.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from coordinator.service import bounds
from coordinator.service.bounds import Items, Text
from coordinator.service.refusals import Malformed, Violation
from coordinator.settings.sections import LimitsConfig

_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Limit that is checked elsewhere: the setting or number, and the answer beyond it."""

    limit: str
    answer: str


Limit: TypeAlias = Items | Text | Elsewhere

_WORD = 255
"""Characters of names of services, files and symbols."""
_OURS = "coordinator.v1"
LIMITS: dict[str, tuple[Limit, ...]] = {
    "group_id": (bounds.GROUP_ID,),
    "member_id": (bounds.MEMBER_ID,),
    "group_instance_id": (bounds.INSTANCE_ID,),
    "client_id": (bounds.CLIENT_ID,),
    "reason": (Elsewhere(str(bounds.REASON), "is cut there, as Kafka's clients do"),),
    "protocol_type": (bounds.PROTOCOL,),
    "protocol_name": (bounds.PROTOCOL,),
    "protocols": (bounds.PROTOCOLS,),
    "Protocol.name": (bounds.PROTOCOL,),
    "Protocol.metadata": (Elsewhere("max_member_metadata_bytes", "RESOURCE_EXHAUSTED"),),
    "assignments": (bounds.MEMBERS,),
    "assignment": (Elsewhere("max_assignment_bytes", "RESOURCE_EXHAUSTED"),),
    "heartbeats": (bounds.MEMBERS,),
    "members": (bounds.MEMBERS,),
    "topics": (bounds.PARTITIONS,),
    "Topic.name": (bounds.TOPIC,),
    "partitions": (bounds.PARTITIONS,),
    "partition_indexes": (bounds.PARTITIONS,),
    "committed_metadata": (
        Elsewhere("offset_metadata_max_bytes", "OFFSET_METADATA_TOO_LARGE, for the partition"),
    ),
    "manifest": (Elsewhere("offset_manifest_max_bytes", "INVALID_REQUEST"),),
    "states_filter": (bounds.FILTER, bounds.STATE),
    "types_filter": (bounds.FILTER, bounds.TYPE),
    "group_id_contains": (bounds.PART_OF_ID,),
    "groups": (bounds.GROUPS, bounds.GROUP_ID),
    "groups_names": (bounds.GROUPS, bounds.GROUP_ID),
    "group_ids": (bounds.GROUPS, bounds.GROUP_ID),
    "topic": (Elsewhere(str(bounds.TOPIC.most), "INVALID_TOPIC_EXCEPTION"),),
    "shards": (Items(1_024, "there are no more shards"),),
    "replicas": (Items(64, "a shard has at most 16 replicas"),),
    # Sessions.
    "member_name": (bounds.INSTANCE_ID,),
    "defaults": (bounds.SETTINGS, bounds.SETTING),
    "session_id": (bounds.MEMBER_ID,),
    "Incarnation.id": (bounds.INCARNATION,),
    "rack": (bounds.LABEL,),
    "revision": (bounds.LABEL,),
    "deployment": (bounds.LABEL,),
    "pod_uid": (bounds.PLACE,),
    "container": (bounds.PLACE,),
    "held": (bounds.PARTITIONS,),
    "loads": (bounds.PARTITIONS,),
    "log_ends": (bounds.PARTITIONS,),
    "HeldTopic.name": (bounds.TOPIC,),
    "HeldTopic.partitions": (bounds.HELD,),
    "SessionAck.partitions": (bounds.HELD,),
    "Load.topic": (bounds.TOPIC,),
    "LogEnd.topic": (bounds.TOPIC,),
    "Partition.topic": (bounds.TOPIC,),
    "Partition.reason": (Elsewhere(str(bounds.REASON), "is cut there, as Kafka's clients do"),),
    # Health and reflection.
    "service": (Text(_WORD, "the name of a service"),),
    "host": (Text(_WORD, "the name of a host"),),
    "file_by_filename": (Text(_WORD, "a file's name"),),
    "file_containing_symbol": (Text(_WORD, "a symbol"),),
    "all_extension_numbers_of_type": (Text(_WORD, "the name of a type"),),
    "list_services": (Text(_WORD, "is not looked at"),),
    "containing_type": (Text(_WORD, "the name of a type"),),
}
"""Limits of fields, by the field's name, or the names of its message and itself. A repeated text
has two: the number of items and the length of each."""


def limits_of(field: FieldDescriptor) -> tuple[Limit, ...]:
    """Limits of a repeated field or a text of a request.

    Raises:
        KeyError: the field has no line in `LIMITS`.
    """
    own = ".".join(field.full_name.split(".")[-2:])
    return LIMITS[own if own in LIMITS else field.name]


@dataclass(frozen=True, slots=True)
class Repeated:
    """A repeated field of a message. `inside`: the plan of its items, if they are messages."""

    name: str
    number: int
    most: int
    words: str
    is_packable: bool
    inside: Plan | None


@dataclass(frozen=True, slots=True)
class Single:
    """A single message inside another one, with repeated fields in it."""

    name: str
    number: int
    inside: Plan


@dataclass(frozen=True, slots=True)
class Plan:
    """Limits of one kind of message. `texts`: those that the pipeline does not check.

    singles: single messages with repeated fields inside, such as the parts of a oneof.
    """

    texts: tuple[tuple[str, Text], ...]
    parts: tuple[tuple[str, Plan], ...]
    repeated: tuple[Repeated, ...]
    singles: tuple[Single, ...]
    free_bytes: int
    """A message of so many bytes cannot hold too many items."""

    @property
    def has_texts(self) -> bool:
        """True if the message, or one inside it, has such texts."""
        return bool(self.texts or self.parts)

    @property
    def has_items(self) -> bool:
        """True if the message, or one inside it, has repeated fields."""
        return bool(self.repeated or self.singles)


class MessageLimits:
    """Limits with the values of the settings."""

    def __init__(self, config: LimitsConfig) -> None:
        self._config = config
        self._plans: dict[str, Plan] = {}

    def plan(self, kind: Any) -> Plan:  # Any: a Descriptor; its stubs have two.
        """Limits of a kind of message.

        Raises:
            KeyError: a field of it has no line in `LIMITS`.
        """
        found = self._plans.get(kind.full_name)
        if found is None:
            found = self._plans[kind.full_name] = self._plan_of(kind)
        return found

    def counts(self, message: Any) -> list[Violation]:
        """Violations by repeated fields that have too many items. Items of nested repeated fields
        are counted over the whole message."""
        return _too_many(message, self.plan(message.DESCRIPTOR), "")

    def check_texts(self, message: Message) -> None:
        """Refuse a message of health or reflection with a text that is too long.

        Raises:
            Malformed: with the fields.
        """
        plan = self.plan(message.DESCRIPTOR)
        if plan.has_texts and (wrong := list(_long_texts(message, plan, ""))):
            raise Malformed(wrong)

    # --- Inside ---

    def _plan_of(self, kind: Any) -> Plan:
        texts, parts, repeated, singles = [], [], [], []
        for field in kind.fields:
            if field.is_repeated:
                repeated.append(self._repeated(field))
            elif field.type == FieldDescriptor.TYPE_MESSAGE:
                part = self.plan(field.message_type)
                if part.has_texts:
                    parts.append((field.name, part))
                if part.has_items:
                    singles.append(Single(field.name, field.number, part))
            elif field.type in _TEXTS:
                (limit,) = limits_of(field)
                if isinstance(limit, Text) and kind.file.package != _OURS:
                    texts.append((field.name, limit))
        # An item is two bytes or more, but for packed numbers, and texts are checked elsewhere.
        most = [each.most for each in repeated]
        most += [
            each.inside.free_bytes for each in repeated if each.inside and each.inside.has_items
        ]
        most += [each.inside.free_bytes for each in singles]
        free_bytes = min(most, default=sys.maxsize)
        return Plan(tuple(texts), tuple(parts), tuple(repeated), tuple(singles), free_bytes)

    def _repeated(self, field: FieldDescriptor) -> Repeated:
        (limit,) = (x for x in limits_of(field) if isinstance(x, Items))
        is_message = field.type == FieldDescriptor.TYPE_MESSAGE
        return Repeated(
            field.name,
            field.number,
            limit.within(self._config),
            limit.words(self._config),
            is_packable=not is_message and field.type not in _TEXTS,
            inside=self.plan(field.message_type) if is_message else None,
        )


def _too_many(message: Any, plan: Plan, path: str) -> list[Violation]:
    wrong = [
        Violation(path + each.name, each.words)
        for each in plan.repeated
        if len(getattr(message, each.name)) > each.most
    ]
    if wrong:
        return wrong
    for each in plan.repeated:
        for inner in each.inside.repeated if each.inside is not None else ():
            total = sum(len(getattr(item, inner.name)) for item in getattr(message, each.name))
            if total > inner.most:
                wrong.append(Violation(f"{path}{each.name}.{inner.name}", inner.words))
    for single in plan.singles:
        if message.HasField(single.name):
            part = getattr(message, single.name)
            wrong += _too_many(part, single.inside, f"{path}{single.name}.")
    return wrong


def _long_texts(message: Any, plan: Plan, path: str) -> Iterator[Violation]:
    for name, text in plan.texts:
        if len(getattr(message, name)) > text.most:
            yield Violation(path + name, text.words)
    for name, part in plan.parts:
        if message.HasField(name):
            yield from _long_texts(getattr(message, name), part, f"{path}{name}.")
