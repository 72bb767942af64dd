"""Requests become commands.

A request that no client library would write raises `Malformed`, which becomes
INVALID_ARGUMENT with the fields named. What Kafka answers with an error code (an empty
group id, a session timeout out of bounds, no protocols) is left to the core.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from coordinator.core import commands as c
from coordinator.core.ids import NO_GENERATION, NO_LEADER_EPOCH, CallId
from coordinator.v1 import admin_pb2, group_pb2

MAX_ID_LENGTH = 4_096
MAX_PROTOCOLS = 100
MAX_REASON_LENGTH = 255  # Longer ones are cut, as Kafka's clients do.

NewCallId = Callable[[], CallId]


@dataclass(frozen=True, slots=True)
class Violation:
    """A field that cannot be right, by its path in the request, and what is wrong with it."""

    field: str
    description: str


class Malformed(Exception):
    """A request that no state of any group could make sense of."""

    def __init__(self, violations: Sequence[Violation]) -> None:
        super().__init__("; ".join(f"{v.field}: {v.description}" for v in violations))
        self.violations = tuple(violations)


def commands_of(request: Message, new_call_id: NewCallId, client_host: str) -> list[c.Request]:
    """The commands that a request of GroupCoordinator or GroupAdmin asks for.

    Args:
        new_call_id: gives each command its id.
        client_host: the peer, as groups are to know it.
    Raises:
        Malformed: with every field that is wrong.
        KeyError: the message is not such a request.
    """
    return _COMMANDS[type(request)](request, new_call_id, client_host)


def _join(
    request: group_pb2.JoinGroupRequest, new_call_id: NewCallId, host: str
) -> list[c.Request]:
    wrong = _bad_ids(request, "group_id", "member_id", "group_instance_id", "client_id")
    wrong += _bad_ids(request, "protocol_type")
    wrong += _empty_instance(request)
    wrong += _negative(request, "session_timeout_ms", "rebalance_timeout_ms")
    if len(request.protocols) > MAX_PROTOCOLS:
        wrong.append(Violation("protocols", f"at most {MAX_PROTOCOLS} may be listed"))
    names = [protocol.name for protocol in request.protocols]
    for index, name in enumerate(names):
        if not name:
            wrong.append(Violation(f"protocols[{index}].name", "must not be empty"))
        elif name in names[:index]:
            wrong.append(Violation(f"protocols[{index}].name", f"{name!r} is listed twice"))
    _refuse(wrong)
    return [
        c.JoinGroup(
            call_id=new_call_id(),
            group_id=request.group_id,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms or request.session_timeout_ms,
            member_id=request.member_id,
            protocol_type=request.protocol_type,
            protocols=tuple((p.name, p.metadata) for p in request.protocols),
            instance_id=_optional(request, "group_instance_id"),
            client_id=request.client_id,
            client_host=host,
            reason=request.reason[:MAX_REASON_LENGTH],
            require_known_member_id=_flag(request, "require_known_member_id"),
            supports_skip_assignment=_flag(request, "supports_skip_assignment"),
        )
    ]


def _sync(request: group_pb2.SyncGroupRequest, new_call_id: NewCallId, _: str) -> list[c.Request]:
    wrong = _bad_ids(request, "group_id", "member_id", "group_instance_id")
    wrong += _empty_instance(request)
    seen: set[str] = set()
    for index, assignment in enumerate(request.assignments):
        if assignment.member_id in seen:
            wrong.append(
                Violation(
                    f"assignments[{index}].member_id",
                    f"{assignment.member_id!r} has an assignment already",
                )
            )
        seen.add(assignment.member_id)
    _refuse(wrong)
    return [
        c.SyncGroup(
            call_id=new_call_id(),
            group_id=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=_optional(request, "group_instance_id"),
            protocol_type=_optional(request, "protocol_type"),
            protocol_name=_optional(request, "protocol_name"),
            assignments=tuple((a.member_id, a.assignment) for a in request.assignments),
        )
    ]


def heartbeat_command(
    request: group_pb2.HeartbeatRequest, call_id: CallId, place: str = ""
) -> c.Heartbeat:
    """The hot path: no list, and no checks that the core does not make anyway, but one.

    Args:
        place: of the heartbeat in its request, before the names of its fields.
    """
    instance_id = None
    if request.HasField("group_instance_id"):
        instance_id = request.group_instance_id
        if not instance_id:
            raise Malformed(_empty_instance(request, place))
    return c.Heartbeat(
        call_id=call_id,
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=instance_id,
    )


def _heartbeat(
    request: group_pb2.HeartbeatRequest, new_call_id: NewCallId, _: str
) -> list[c.Request]:
    return [heartbeat_command(request, new_call_id())]


def _heartbeat_batch(
    request: group_pb2.HeartbeatBatchRequest, new_call_id: NewCallId, _: str
) -> list[c.Request]:
    return [
        heartbeat_command(heartbeat, new_call_id(), f"heartbeats[{index}].")
        for index, heartbeat in enumerate(request.heartbeats)
    ]


def _leave(request: group_pb2.LeaveGroupRequest, new_call_id: NewCallId, _: str) -> list[c.Request]:
    wrong = _bad_ids(request, "group_id")
    for index, member in enumerate(request.members):
        wrong += _empty_instance(member, f"members[{index}].")
    _refuse(wrong)
    members = tuple(
        c.LeavingMember(
            member.member_id,
            _optional(member, "group_instance_id"),
            member.reason[:MAX_REASON_LENGTH],
        )
        for member in request.members
    )
    return [c.LeaveGroup(call_id=new_call_id(), group_id=request.group_id, members=members)]


def _commit(
    request: group_pb2.OffsetCommitRequest, new_call_id: NewCallId, _: str
) -> list[c.Request]:
    wrong = _bad_ids(request, "group_id", "member_id", "group_instance_id")
    wrong += _empty_instance(request)
    seen: set[tuple[str, int]] = set()
    partitions = []
    for t, topic in enumerate(request.topics):
        for p, partition in enumerate(topic.partitions):
            place = f"topics[{t}].partitions[{p}]"
            field = f"{place}.partition_index"
            key = (topic.name, partition.partition_index)
            if partition.partition_index < 0:
                wrong.append(Violation(field, "must not be negative"))
            if key in seen:
                wrong.append(Violation(field, "is committed twice"))
            seen.add(key)
            if partition.committed_offset < 0:
                wrong.append(Violation(f"{place}.committed_offset", "must not be negative"))
            epoch = _optional(partition, "committed_leader_epoch")
            partitions.append(
                c.PartitionCommit(
                    topic.name,
                    partition.partition_index,
                    partition.committed_offset,
                    NO_LEADER_EPOCH if epoch is None else epoch,
                    partition.committed_metadata,
                    _optional(partition, "expected_committed_offset"),
                )
            )
    _refuse(wrong)
    generation = _optional(request, "generation_id")
    return [
        c.CommitOffsets(
            call_id=new_call_id(),
            group_id=request.group_id,
            generation=NO_GENERATION if generation is None else generation,
            member_id=request.member_id,
            instance_id=_optional(request, "group_instance_id"),
            partitions=tuple(partitions),
            atomic=request.atomic,
            manifest=request.manifest,
        )
    ]


def _fetch(
    request: group_pb2.OffsetFetchRequest, new_call_id: NewCallId, _: str
) -> list[c.Request]:
    partitions = tuple((t.name, p) for t in request.topics for p in t.partition_indexes)
    return [
        c.FetchOffsets(
            call_id=new_call_id(),
            group_id=request.group_id,
            partitions=partitions if request.topics else None,
            require_stable=request.require_stable,
        )
    ]


def _report_log_ends(
    request: group_pb2.ReportLogEndsRequest, new_call_id: NewCallId, _: str
) -> list[c.Request]:
    wrong = _bad_ids(request, "group_id", "member_id", "group_instance_id")
    _refuse(wrong + _empty_instance(request))
    return [
        c.ReportLogEnds(
            call_id=new_call_id(),
            group_id=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=_optional(request, "group_instance_id"),
            ends=tuple(
                (t.name, p.partition_index, p.log_end_offset)
                for t in request.topics
                for p in t.partitions
            ),
        )
    ]


def _list_log_ends(
    request: admin_pb2.ListLogEndsRequest, new_call_id: NewCallId, _: str
) -> list[c.Request]:
    return [c.ListLogEnds(call_id=new_call_id(), group_id=request.group_id)]


def _list(request: admin_pb2.ListGroupsRequest, new_call_id: NewCallId, _: str) -> list[c.Request]:
    return [
        c.ListGroups(
            call_id=new_call_id(),
            states=tuple(request.states_filter),
            types=tuple(request.types_filter),
            contains=request.group_id_contains,
            limit=max(0, request.limit),
        )
    ]


def _describe(
    request: admin_pb2.DescribeGroupsRequest, new_call_id: NewCallId, _: str
) -> list[c.Request]:
    return [
        c.DescribeGroup(
            call_id=new_call_id(),
            group_id=group_id,
            report_unknown=request.report_unknown_groups,
        )
        for group_id in request.groups
    ]


def _delete(
    request: admin_pb2.DeleteGroupsRequest, new_call_id: NewCallId, _: str
) -> list[c.Request]:
    # A group that is named twice is deleted, and answered, once.
    group_ids = dict.fromkeys(request.groups_names)
    return [c.DeleteGroup(call_id=new_call_id(), group_id=group_id) for group_id in group_ids]


def _delete_offsets(
    request: admin_pb2.OffsetDeleteRequest, new_call_id: NewCallId, _: str
) -> list[c.Request]:
    partitions = tuple((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    return [
        c.DeleteOffsets(call_id=new_call_id(), group_id=request.group_id, partitions=partitions)
    ]


def _list_rebalances(
    request: admin_pb2.ListRebalancesRequest, new_call_id: NewCallId, _: str
) -> list[c.Request]:
    _refuse(_negative(request, "limit"))
    return [c.ListRebalances(call_id=new_call_id(), group_id=request.group_id)]


def _describe_phase(
    request: admin_pb2.DescribePhaseRequest, new_call_id: NewCallId, _: str
) -> list[c.Request]:
    return [c.DescribePhase(call_id=new_call_id(), group_id=request.group_id)]


def _none(request: Message, new_call_id: NewCallId, _: str) -> list[c.Request]:
    return []


# Any: each function takes the request of its row.
_COMMANDS: dict[type[Message], Callable[[Any, NewCallId, str], list[c.Request]]] = {
    group_pb2.FindCoordinatorRequest: _none,
    group_pb2.JoinGroupRequest: _join,
    group_pb2.SyncGroupRequest: _sync,
    group_pb2.HeartbeatRequest: _heartbeat,
    group_pb2.HeartbeatBatchRequest: _heartbeat_batch,
    group_pb2.LeaveGroupRequest: _leave,
    group_pb2.OffsetCommitRequest: _commit,
    group_pb2.OffsetFetchRequest: _fetch,
    group_pb2.ReportLogEndsRequest: _report_log_ends,
    admin_pb2.ListLogEndsRequest: _list_log_ends,
    admin_pb2.ListGroupsRequest: _list,
    admin_pb2.DescribeGroupsRequest: _describe,
    admin_pb2.DeleteGroupsRequest: _delete,
    admin_pb2.OffsetDeleteRequest: _delete_offsets,
    admin_pb2.ListRebalancesRequest: _list_rebalances,
    admin_pb2.DescribePhaseRequest: _describe_phase,
}


# --- Small things -------------------------------------------------------------------------------


def _optional(message: Any, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None


def _flag(message: Any, field: str) -> bool:
    """An optional flag; unset means the newest behaviour, which is true."""
    return getattr(message, field) if message.HasField(field) else True


def _bad_ids(message: Any, *fields: str) -> list[Violation]:
    wrong = []
    for field in fields:
        value: str = getattr(message, field)
        if len(value) > MAX_ID_LENGTH:
            wrong.append(Violation(field, f"must not be longer than {MAX_ID_LENGTH}"))
        if "\0" in value:
            wrong.append(Violation(field, "must not contain NUL"))
    return wrong


def _empty_instance(message: Any, place: str = "") -> list[Violation]:
    """A static member has a name; a member without one leaves the field out."""
    if message.HasField("group_instance_id") and not message.group_instance_id:
        return [Violation(f"{place}group_instance_id", "must not be empty: leave it out")]
    return []


def _negative(message: Any, *fields: str) -> list[Violation]:
    return [
        Violation(field, "must not be negative") for field in fields if getattr(message, field) < 0
    ]


def _refuse(violations: list[Violation]) -> None:
    if violations:
        raise Malformed(violations)
