"""How much one message may hold: a limit for every repeated field and every text of every request.

`LIMITS` is plain data, by the field's full name in the contract. It knows nothing of gRPC: a
transport with messages of its own asks `MessageLimits.most` by the same names. For protobuf
messages `MessageLimits.check` walks one, in time linear in it, and stops at the counts if they
are too large; `wire_counts` finds the same counts in the bytes, before anything is parsed.

The defaults are such that a message at its limits costs the event loop less than 100 ms of CPU,
also where its work cannot be done in slices; `poe bench messages` measures it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from coordinator.service.malformed import Malformed, Violation
from coordinator.settings.sections import LimitsConfig

_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)

ID = 4_096
"""Characters of group and member ids. Kafka has no limit of its own."""
TOPIC = 249
"""Characters of topics and instance ids, as in Kafka (`Topic.MAX_NAME_LENGTH`)."""
CLIENT = 1_024
"""Characters of a client id, with which member ids begin."""
WORD = 255
"""Characters of the names of protocols and their types, of filters and services."""
REASON = 255
"""Characters that are kept of a reason, as Kafka's clients do."""


@dataclass(frozen=True, slots=True)
class Items:
    """A repeated field. `most` counts all of a message, also where the field is inside another.

    setting: takes the place of `most`, where users may need more.
    """

    most: int
    why: str
    setting: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """A text of `most` characters; longer ones are refused."""

    most: int
    why: str


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A text or bytes whose limit the handler keeps: a setting or a number, and its answer."""

    limit: str
    answer: str


Limit: TypeAlias = Items | Text | Elsewhere

_GROUP = Text(ID, "the id of a group")
_MEMBER = Text(ID, "the id of a member")
_INSTANCE = Text(TOPIC, "as in Kafka")
_TOPIC = Text(TOPIC, "as in Kafka")
_PROTOCOL = Text(WORD, "the name of a protocol or of its type")
_REASON = Elsewhere(str(REASON), "is cut there, as Kafka's clients do")
_MEMBERS = Items(20_000, "members of one process or one group", "max_members_per_call")
_PARTITIONS = Items(10_000, "one step of a shard takes them all", "max_partitions_per_call")
_GROUPS = Items(1_000, "each is a question to a shard", "max_groups_per_call")
_GROUP_OF_MANY = Text(ID, "the id of a group")
_FILTER = Items(100, "there are fewer states and types")

_V1 = "coordinator.v1."
_REFLECTION = "grpc.reflection.v1alpha."
LIMITS: dict[str, tuple[Limit, ...]] = {
    f"{_V1}FindCoordinatorRequest.group_id": (_GROUP,),
    f"{_V1}JoinGroupRequest.group_id": (_GROUP,),
    f"{_V1}JoinGroupRequest.member_id": (_MEMBER,),
    f"{_V1}JoinGroupRequest.group_instance_id": (_INSTANCE,),
    f"{_V1}JoinGroupRequest.protocol_type": (_PROTOCOL,),
    f"{_V1}JoinGroupRequest.protocols": (Items(100, "a client has a handful of assignors"),),
    f"{_V1}JoinGroupRequest.Protocol.name": (_PROTOCOL,),
    f"{_V1}JoinGroupRequest.Protocol.metadata": (
        Elsewhere("max_member_metadata_bytes", "RESOURCE_EXHAUSTED"),
    ),
    f"{_V1}JoinGroupRequest.reason": (_REASON,),
    f"{_V1}JoinGroupRequest.client_id": (Text(CLIENT, "member ids begin with it"),),
    f"{_V1}SyncGroupRequest.group_id": (_GROUP,),
    f"{_V1}SyncGroupRequest.member_id": (_MEMBER,),
    f"{_V1}SyncGroupRequest.group_instance_id": (_INSTANCE,),
    f"{_V1}SyncGroupRequest.protocol_type": (_PROTOCOL,),
    f"{_V1}SyncGroupRequest.protocol_name": (_PROTOCOL,),
    f"{_V1}SyncGroupRequest.assignments": (_MEMBERS,),
    f"{_V1}SyncGroupRequest.Assignment.member_id": (_MEMBER,),
    f"{_V1}SyncGroupRequest.Assignment.assignment": (
        Elsewhere("max_assignment_bytes", "RESOURCE_EXHAUSTED"),
    ),
    f"{_V1}HeartbeatRequest.group_id": (_GROUP,),
    f"{_V1}HeartbeatRequest.member_id": (_MEMBER,),
    f"{_V1}HeartbeatRequest.group_instance_id": (_INSTANCE,),
    f"{_V1}HeartbeatBatchRequest.heartbeats": (_MEMBERS,),
    f"{_V1}LeaveGroupRequest.group_id": (_GROUP,),
    f"{_V1}LeaveGroupRequest.members": (_MEMBERS,),
    f"{_V1}LeaveGroupRequest.MemberIdentity.member_id": (_MEMBER,),
    f"{_V1}LeaveGroupRequest.MemberIdentity.group_instance_id": (_INSTANCE,),
    f"{_V1}LeaveGroupRequest.MemberIdentity.reason": (_REASON,),
    f"{_V1}OffsetCommitRequest.group_id": (_GROUP,),
    f"{_V1}OffsetCommitRequest.member_id": (_MEMBER,),
    f"{_V1}OffsetCommitRequest.group_instance_id": (_INSTANCE,),
    f"{_V1}OffsetCommitRequest.topics": (_PARTITIONS,),
    f"{_V1}OffsetCommitRequest.Topic.name": (_TOPIC,),
    f"{_V1}OffsetCommitRequest.Topic.partitions": (_PARTITIONS,),
    f"{_V1}OffsetCommitRequest.Partition.committed_metadata": (
        Elsewhere("offset_metadata_max_bytes", "OFFSET_METADATA_TOO_LARGE, for the partition"),
    ),
    f"{_V1}OffsetCommitRequest.manifest": (
        Elsewhere("offset_manifest_max_bytes", "INVALID_REQUEST"),
    ),
    f"{_V1}OffsetFetchRequest.group_id": (_GROUP,),
    f"{_V1}OffsetFetchRequest.topics": (_PARTITIONS,),
    f"{_V1}OffsetFetchRequest.Topic.name": (_TOPIC,),
    f"{_V1}OffsetFetchRequest.Topic.partition_indexes": (_PARTITIONS,),
    f"{_V1}ReportLogEndsRequest.group_id": (_GROUP,),
    f"{_V1}ReportLogEndsRequest.member_id": (_MEMBER,),
    f"{_V1}ReportLogEndsRequest.group_instance_id": (_INSTANCE,),
    f"{_V1}ReportLogEndsRequest.topics": (_PARTITIONS,),
    f"{_V1}ReportLogEndsRequest.Topic.name": (_TOPIC,),
    f"{_V1}ReportLogEndsRequest.Topic.partitions": (_PARTITIONS,),
    f"{_V1}ListGroupsRequest.states_filter": (_FILTER, Text(WORD, "the name of a state")),
    f"{_V1}ListGroupsRequest.types_filter": (_FILTER, Text(WORD, "the name of a type")),
    f"{_V1}ListGroupsRequest.group_id_contains": (Text(ID, "a part of a group's id"),),
    f"{_V1}DescribeGroupsRequest.groups": (_GROUPS, _GROUP_OF_MANY),
    f"{_V1}DeleteGroupsRequest.groups_names": (_GROUPS, _GROUP_OF_MANY),
    f"{_V1}OffsetDeleteRequest.group_id": (_GROUP,),
    f"{_V1}OffsetDeleteRequest.topics": (_PARTITIONS,),
    f"{_V1}OffsetDeleteRequest.Topic.name": (_TOPIC,),
    f"{_V1}OffsetDeleteRequest.Topic.partitions": (_PARTITIONS,),
    f"{_V1}ListLogEndsRequest.group_id": (_GROUP,),
    f"{_V1}ListRebalancesRequest.group_id": (_GROUP,),
    f"{_V1}DescribePhaseRequest.group_id": (_GROUP,),
    f"{_V1}WatchRebalancesRequest.group_ids": (_GROUPS, _GROUP_OF_MANY),
    f"{_V1}ElectLeadersRequest.shards": (Items(1_024, "there are no more shards"),),
    f"{_V1}MoveShardRequest.replicas": (Items(64, "a shard has at most 16 replicas"),),
    "grpc.health.v1.HealthCheckRequest.service": (Text(WORD, "the name of a service"),),
    f"{_REFLECTION}ServerReflectionRequest.host": (Text(WORD, "the name of a host"),),
    f"{_REFLECTION}ServerReflectionRequest.file_by_filename": (Text(WORD, "a file's name"),),
    f"{_REFLECTION}ServerReflectionRequest.file_containing_symbol": (Text(WORD, "a symbol"),),
    f"{_REFLECTION}ServerReflectionRequest.all_extension_numbers_of_type": (
        Text(WORD, "the name of a type"),
    ),
    f"{_REFLECTION}ServerReflectionRequest.list_services": (Text(WORD, "is not looked at"),),
    f"{_REFLECTION}ExtensionRequest.containing_type": (Text(WORD, "the name of a type"),),
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

    def most(self, field: str) -> int:
        """Items that a repeated field may have.

        Args:
            field: its full name, or without `coordinator.v1.` in front.
        Raises:
            KeyError: there is no such field, or it is not repeated.
        """
        for limit in LIMITS.get(field) or LIMITS[_V1 + field]:
            if isinstance(limit, Items):
                return self._most(limit)
        raise KeyError(field)

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

    def _most(self, limit: Items) -> int:
        return int(getattr(self._config, limit.setting)) if limit.setting else limit.most

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
        most = self._most(limit)
        hint = f" ({limit.setting})" if limit.setting else ""
        is_message = field.type == FieldDescriptor.TYPE_MESSAGE
        return Repeated(
            field.name,
            field.number,
            most,
            f"at most {most} may be listed in one call{hint}",
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
            yield Violation(path + name, _too_long(most))
    for name, part in plan.parts:
        if message.HasField(name):
            yield from _texts(getattr(message, name), part, f"{path}{name}.")
    for each in plan.repeated:
        if each.text_most is not None:
            for index, text in enumerate(getattr(message, each.name)):
                if len(text) > each.text_most:
                    yield Violation(f"{path}{each.name}[{index}]", _too_long(each.text_most))
        elif each.inside is not None and (each.inside.texts or each.inside.repeated):
            for index, item in enumerate(getattr(message, each.name)):
                yield from _texts(item, each.inside, f"{path}{each.name}[{index}].")


def _too_long(most: int) -> str:
    return f"must not be longer than {most} characters"
