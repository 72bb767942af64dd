"""Requests become commands.

A request that no client library would write raises `Malformed`, which becomes
INVALID_ARGUMENT with the fields named. What Kafka answers with an error code (an empty
group id, a session timeout out of bounds, no protocols) is left to the core.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from google.protobuf.message import Message

from coordinator.core import requests as c
from coordinator.core.ids import NO_GENERATION, NO_LEADER_EPOCH, CallId
from coordinator.runtime.slices import Work, at_once
from coordinator.service.grpc.message_limits import REASON, MessageLimits
from coordinator.service.malformed import Malformed, Violation
from coordinator.settings.sections import LimitsConfig
from coordinator.v1 import admin_pb2, group_pb2

NewCallId = Callable[[], CallId]

PART = 50
"""Items between two chances to let others in."""
LEAVING_AT_ONCE = 100
"""Members that leave in one step: some 13 us each, and as much again for the line in the log."""


def commands_of(
    request: Message,
    new_call_id: NewCallId,
    client_host: str,
    limits: MessageLimits | None = None,
) -> list[c.Request]:
    """The commands that a request of GroupCoordinator or GroupAdmin asks for, checked.

    Args:
        new_call_id: gives each command its id.
        client_host: the peer, as groups are to know it.
        limits: what the request may hold; the defaults' if there are none.
    Raises:
        Malformed: with the fields that are wrong.
        KeyError: the message is not such a request.
    """
    (limits or MessageLimits(LimitsConfig())).check(request)
    return at_once(translation(request, new_call_id, client_host))


def translation(
    request: Message, new_call_id: NewCallId, client_host: str
) -> Work[list[c.Request]]:
    """As `commands_of`, for a request that is within its limits, a slice at a time."""
    found = _COMMANDS[type(request)](request, new_call_id, client_host)
    return (yield from found) if isinstance(found, Generator) else found


def _join(
    request: group_pb2.JoinGroupRequest, new_call_id: NewCallId, host: str
) -> list[c.Request]:
    wrong = _bad_ids(request, "group_id", "member_id", "group_instance_id", "client_id")
    wrong += _bad_ids(request, "protocol_type")
    wrong += _empty_instance(request)
    wrong += _negative(request, "session_timeout_ms", "rebalance_timeout_ms")
    seen: set[str] = set()
    for index, protocol in enumerate(request.protocols):
        if not protocol.name:
            wrong.append(Violation(f"protocols[{index}].name", "must not be empty"))
        elif protocol.name in seen:
            wrong.append(Violation(f"protocols[{index}].name", "is listed twice"))
        seen.add(protocol.name)
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
            reason=request.reason[:REASON],
            require_known_member_id=_flag(request, "require_known_member_id"),
            supports_skip_assignment=_flag(request, "supports_skip_assignment"),
        )
    ]


def _sync(
    request: group_pb2.SyncGroupRequest, new_call_id: NewCallId, _: str
) -> Work[list[c.Request]]:
    wrong = _bad_ids(request, "group_id", "member_id", "group_instance_id")
    wrong += _empty_instance(request)
    assignments: dict[str, bytes] = {}
    for index, assignment in enumerate(request.assignments):
        if index % PART == PART - 1:
            yield
        member_id = assignment.member_id
        if member_id in assignments:
            field = f"assignments[{index}].member_id"
            wrong.append(Violation(field, "has an assignment already"))
        assignments[member_id] = assignment.assignment
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
            assignments=tuple(assignments.items()),
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
) -> Work[list[c.Request]]:
    commands: list[c.Request] = []
    for index, heartbeat in enumerate(request.heartbeats):
        if index % PART == PART - 1:
            yield
        commands.append(heartbeat_command(heartbeat, new_call_id(), f"heartbeats[{index}]."))
    return commands


def _leave(
    request: group_pb2.LeaveGroupRequest, new_call_id: NewCallId, _: str
) -> Work[list[c.Request]]:
    """A command for every so many members: the first that goes starts the rebalance for all."""
    wrong = _bad_ids(request, "group_id")
    for index, member in enumerate(request.members):
        wrong += _empty_instance(member, f"members[{index}].")
    _refuse(wrong)
    commands: list[c.Request] = []
    for first in range(0, len(request.members), LEAVING_AT_ONCE) or (0,):
        members = tuple(
            c.LeavingMember(
                member.member_id,
                _optional(member, "group_instance_id"),
                member.reason[:REASON],
            )
            for member in request.members[first : first + LEAVING_AT_ONCE]
        )
        call_id = new_call_id()
        commands.append(c.LeaveGroup(call_id=call_id, group_id=request.group_id, members=members))
        yield
    return commands


def _commit(
    request: group_pb2.OffsetCommitRequest, new_call_id: NewCallId, _: str
) -> Work[list[c.Request]]:
    wrong = _bad_ids(request, "group_id", "member_id", "group_instance_id")
    wrong += _empty_instance(request)
    seen: set[tuple[str, int]] = set()
    partitions = []
    for t, topic in enumerate(request.topics):
        name = topic.name
        yield
        for p, partition in enumerate(topic.partitions):
            if p % PART == PART - 1:
                yield
            key = (name, partition.partition_index)
            place = f"topics[{t}].partitions[{p}]"
            if partition.partition_index < 0 or key in seen:
                what = "must not be negative" if key[1] < 0 else "is committed twice"
                wrong.append(Violation(f"{place}.partition_index", what))
            seen.add(key)
            if partition.committed_offset < 0:
                wrong.append(Violation(f"{place}.committed_offset", "must not be negative"))
            epoch = _optional(partition, "committed_leader_epoch")
            partitions.append(
                c.PartitionCommit(
                    name,
                    key[1],
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
        # A group that is named twice is described once: a caller could ask for gigabytes else.
        for group_id in dict.fromkeys(request.groups)
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
_Commands = list[c.Request] | Work[list[c.Request]]
_COMMANDS: dict[type[Message], Callable[[Any, NewCallId, str], _Commands]] = {
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
