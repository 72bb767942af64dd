"""The bounds of every repeated field and every text of every message of the contract.

`LIMITS` is plain data, by the field's full name. `MessageLimits.check` walks a message, in time
linear in it, and stops at the counts if they are too large; `wire_counts` finds the same counts in
the bytes, before anything is parsed. What the bounds of groups' requests are, `service/bounds.py`
says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from coordinator.service.bounds import (
    CLIENT_ID,
    FILTER,
    GROUP_ID,
    GROUPS,
    INSTANCE_ID,
    MEMBER_ID,
    MEMBERS,
    PART_OF_ID,
    PARTITIONS,
    PROTOCOL,
    PROTOCOLS,
    REASON,
    STATE,
    TOPIC,
    TYPE,
    Items,
    Text,
    too_long,
)
from coordinator.service.refusals import Malformed, Violation
from coordinator.settings.sections import LimitsConfig

_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A text or bytes whose limit the handler keeps: a setting or a number, and its answer."""

    limit: str
    answer: str


Limit: TypeAlias = Items | Text | Elsewhere

_REASON = Elsewhere(str(REASON), "is cut there, as Kafka's clients do")

_WORD = 255
"""Characters of the names of services and their like."""
_V1 = "coordinator.v1."
_REFLECTION = "grpc.reflection.v1alpha."
LIMITS: dict[str, tuple[Limit, ...]] = {
    f"{_V1}FindCoordinatorRequest.group_id": (GROUP_ID,),
    f"{_V1}JoinGroupRequest.group_id": (GROUP_ID,),
    f"{_V1}JoinGroupRequest.member_id": (MEMBER_ID,),
    f"{_V1}JoinGroupRequest.group_instance_id": (INSTANCE_ID,),
    f"{_V1}JoinGroupRequest.protocol_type": (PROTOCOL,),
    f"{_V1}JoinGroupRequest.protocols": (PROTOCOLS,),
    f"{_V1}JoinGroupRequest.Protocol.name": (PROTOCOL,),
    f"{_V1}JoinGroupRequest.Protocol.metadata": (
        Elsewhere("max_member_metadata_bytes", "RESOURCE_EXHAUSTED"),
    ),
    f"{_V1}JoinGroupRequest.reason": (_REASON,),
    f"{_V1}JoinGroupRequest.client_id": (CLIENT_ID,),
    f"{_V1}SyncGroupRequest.group_id": (GROUP_ID,),
    f"{_V1}SyncGroupRequest.member_id": (MEMBER_ID,),
    f"{_V1}SyncGroupRequest.group_instance_id": (INSTANCE_ID,),
    f"{_V1}SyncGroupRequest.protocol_type": (PROTOCOL,),
    f"{_V1}SyncGroupRequest.protocol_name": (PROTOCOL,),
    f"{_V1}SyncGroupRequest.assignments": (MEMBERS,),
    f"{_V1}SyncGroupRequest.Assignment.member_id": (MEMBER_ID,),
    f"{_V1}SyncGroupRequest.Assignment.assignment": (
        Elsewhere("max_assignment_bytes", "RESOURCE_EXHAUSTED"),
    ),
    f"{_V1}HeartbeatRequest.group_id": (GROUP_ID,),
    f"{_V1}HeartbeatRequest.member_id": (MEMBER_ID,),
    f"{_V1}HeartbeatRequest.group_instance_id": (INSTANCE_ID,),
    f"{_V1}HeartbeatBatchRequest.heartbeats": (MEMBERS,),
    f"{_V1}LeaveGroupRequest.group_id": (GROUP_ID,),
    f"{_V1}LeaveGroupRequest.members": (MEMBERS,),
    f"{_V1}LeaveGroupRequest.MemberIdentity.member_id": (MEMBER_ID,),
    f"{_V1}LeaveGroupRequest.MemberIdentity.group_instance_id": (INSTANCE_ID,),
    f"{_V1}LeaveGroupRequest.MemberIdentity.reason": (_REASON,),
    f"{_V1}OffsetCommitRequest.group_id": (GROUP_ID,),
    f"{_V1}OffsetCommitRequest.member_id": (MEMBER_ID,),
    f"{_V1}OffsetCommitRequest.group_instance_id": (INSTANCE_ID,),
    f"{_V1}OffsetCommitRequest.topics": (PARTITIONS,),
    f"{_V1}OffsetCommitRequest.Topic.name": (TOPIC,),
    f"{_V1}OffsetCommitRequest.Topic.partitions": (PARTITIONS,),
    f"{_V1}OffsetCommitRequest.Partition.committed_metadata": (
        Elsewhere("offset_metadata_max_bytes", "OFFSET_METADATA_TOO_LARGE, for the partition"),
    ),
    f"{_V1}OffsetCommitRequest.manifest": (
        Elsewhere("offset_manifest_max_bytes", "INVALID_REQUEST"),
    ),
    f"{_V1}OffsetFetchRequest.group_id": (GROUP_ID,),
    f"{_V1}OffsetFetchRequest.topics": (PARTITIONS,),
    f"{_V1}OffsetFetchRequest.Topic.name": (TOPIC,),
    f"{_V1}OffsetFetchRequest.Topic.partition_indexes": (PARTITIONS,),
    f"{_V1}ReportLogEndsRequest.group_id": (GROUP_ID,),
    f"{_V1}ReportLogEndsRequest.member_id": (MEMBER_ID,),
    f"{_V1}ReportLogEndsRequest.group_instance_id": (INSTANCE_ID,),
    f"{_V1}ReportLogEndsRequest.topics": (PARTITIONS,),
    f"{_V1}ReportLogEndsRequest.Topic.name": (TOPIC,),
    f"{_V1}ReportLogEndsRequest.Topic.partitions": (PARTITIONS,),
    f"{_V1}ListGroupsRequest.states_filter": (FILTER, STATE),
    f"{_V1}ListGroupsRequest.types_filter": (FILTER, TYPE),
    f"{_V1}ListGroupsRequest.group_id_contains": (PART_OF_ID,),
    f"{_V1}DescribeGroupsRequest.groups": (GROUPS, GROUP_ID),
    f"{_V1}DeleteGroupsRequest.groups_names": (GROUPS, GROUP_ID),
    f"{_V1}OffsetDeleteRequest.group_id": (GROUP_ID,),
    f"{_V1}OffsetDeleteRequest.topics": (PARTITIONS,),
    f"{_V1}OffsetDeleteRequest.Topic.name": (TOPIC,),
    f"{_V1}OffsetDeleteRequest.Topic.partitions": (PARTITIONS,),
    f"{_V1}ListLogEndsRequest.group_id": (GROUP_ID,),
    f"{_V1}ListRebalancesRequest.group_id": (GROUP_ID,),
    f"{_V1}DescribePhaseRequest.group_id": (GROUP_ID,),
    f"{_V1}WatchRebalancesRequest.group_ids": (GROUPS, GROUP_ID),
    f"{_V1}ElectLeadersRequest.shards": (Items(1_024, "there are no more shards"),),
    f"{_V1}MoveShardRequest.replicas": (Items(64, "a shard has at most 16 replicas"),),
    "grpc.health.v1.HealthCheckRequest.service": (Text(_WORD, "the name of a service"),),
    f"{_REFLECTION}ServerReflectionRequest.host": (Text(_WORD, "the name of a host"),),
    f"{_REFLECTION}ServerReflectionRequest.file_by_filename": (Text(_WORD, "a file's name"),),
    f"{_REFLECTION}ServerReflectionRequest.file_containing_symbol": (Text(_WORD, "a symbol"),),
    f"{_REFLECTION}ServerReflectionRequest.all_extension_numbers_of_type": (
        Text(_WORD, "the name of a type"),
    ),
    f"{_REFLECTION}ServerReflectionRequest.list_services": (Text(_WORD, "is not looked at"),),
    f"{_REFLECTION}ExtensionRequest.containing_type": (Text(_WORD, "the name of a type"),),
}
"""What each field may hold. A repeated text has two limits: how many there are, and how long."""

UNCHECKED_INSIDE = frozenset({f"{_V1}HeartbeatBatchRequest.heartbeats"})
"""Fields whose items are checked one by one, by who handles them: nearly all heartbeats are of
members there are, whose ids are right, and a look at each costs a quarter of answering it."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """A repeated field of a message. `inside`: the plan of its items, if they are messages."""

    name: str
    number: int
    most: int
    words: str
    is_packable: bool
    text_most: int | None
    inside: Plan | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The limits of one kind of message. `texts` holds (field, characters)."""

    texts: tuple[tuple[str, int], ...]
    parts: tuple[tuple[str, Plan], ...]
    repeated: tuple[Repeated, ...]
    free_bytes: int
    """A message that is no longer cannot break any of its limits."""

    @property
    def nested(self) -> bool:
        """True if items of a repeated field have repeated fields."""
        return any(each.inside is not None and each.inside.repeated for each in self.repeated)


class MessageLimits:
    """The limits in force."""

    def __init__(self, config: LimitsConfig) -> None:
        self._config = config
        self._plans: dict[str, Plan] = {}

    def plan(self, kind: Any) -> Plan:  # Any: a Descriptor; its stubs have two.
        """The limits of a kind of message.

        Raises:
            KeyError: a field of it has no line in `LIMITS`.
        """
        found = self._plans.get(kind.full_name)
        if found is None:
            found = self._plans[kind.full_name] = self._plan_of(kind)
        return found

    def counts(self, message: Message) -> list[Violation]:
        """Repeated fields of a message that have too many items."""
        return _counts(message, self.plan(message.DESCRIPTOR), "")

    def texts(self, message: Message) -> list[Violation]:
        """Texts of a message that are too long; its counts are right."""
        return list(_texts(message, self.plan(message.DESCRIPTOR), ""))

    def check(self, message: Message) -> None:
        """Refuse a message that holds too much.

        Raises:
            Malformed: with the fields.
        """
        if wrong := self.counts(message) or self.texts(message):
            raise Malformed(wrong)

    # --- Inside ---

    def _plan_of(self, kind: Any) -> Plan:
        texts, parts, repeated = [], [], []
        for field in kind.fields:
            if field.is_repeated:
                repeated.append(self._repeated(field))
            elif field.type == FieldDescriptor.TYPE_MESSAGE:
                parts.append((field.name, self.plan(field.message_type)))
            elif field.type in _TEXTS and (most := _text_most(field)) is not None:
                texts.append((field.name, most))
        return Plan(
            tuple(texts),
            tuple(parts),
            tuple(repeated),
            # A character is a byte or more; an item is two, but for packed numbers.
            min(
                [
                    *(most for _, most in texts),
                    *(plan.free_bytes for _, plan in parts),
                    *(min(r.most, r.text_most or r.most) for r in repeated),
                    *(r.inside.free_bytes for r in repeated if r.inside is not None),
                ],
                default=0,
            ),
        )

    def _repeated(self, field: FieldDescriptor) -> Repeated:
        (limit,) = (x for x in LIMITS[field.full_name] if isinstance(x, Items))
        is_message = field.type == FieldDescriptor.TYPE_MESSAGE
        return Repeated(
            field.name,
            field.number,
            limit.within(self._config),
            limit.words(self._config),
            is_packable=not is_message and field.type not in _TEXTS,
            text_most=_text_most(field) if field.type in _TEXTS else None,
            inside=self._inside(field) if is_message else None,
        )

    def _inside(self, field: FieldDescriptor) -> Plan | None:
        return None if field.full_name in UNCHECKED_INSIDE else self.plan(field.message_type)


def _text_most(field: FieldDescriptor) -> int | None:
    """Characters of a text; None if somebody else keeps its limit."""
    return next((x.most for x in LIMITS[field.full_name] if isinstance(x, Text)), None)


def _counts(message: Any, plan: Plan, path: str) -> list[Violation]:
    """Repeated fields with too many items, those inside of others counted over the message."""
    wrong = [
        Violation(path + each.name, each.words)
        for each in plan.repeated
        if len(getattr(message, each.name)) > each.most
    ]
    if wrong or not plan.nested:
        return wrong
    for each in plan.repeated:
        for inner in each.inside.repeated if each.inside is not None else ():
            total = sum(len(getattr(item, inner.name)) for item in getattr(message, each.name))
            if total > inner.most:
                wrong.append(Violation(f"{path}{each.name}.{inner.name}", inner.words))
    return wrong


def _texts(message: Any, plan: Plan, path: str) -> Iterator[Violation]:
    """Texts that are too long, wherever they are."""
    for name, most in plan.texts:
        if len(getattr(message, name)) > most:
            yield Violation(path + name, too_long(most))
    for name, part in plan.parts:
        if message.HasField(name):
            yield from _texts(getattr(message, name), part, f"{path}{name}.")
    for each in plan.repeated:
        if each.text_most is not None:
            for index, text in enumerate(getattr(message, each.name)):
                if len(text) > each.text_most:
                    yield Violation(f"{path}{each.name}[{index}]", too_long(each.text_most))
        elif each.inside is not None and (each.inside.texts or each.inside.repeated):
            for index, item in enumerate(getattr(message, each.name)):
                yield from _texts(item, each.inside, f"{path}{each.name}[{index}].")
