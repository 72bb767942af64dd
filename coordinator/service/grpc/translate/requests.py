"""Translation of requests to commands; the pipeline validates these (`validation.commands`)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from google.protobuf.message import Message

from coordinator.core import limits
from coordinator.core.values import requests as c
from coordinator.core.values.ids import NO_GENERATION, NO_LEADER_EPOCH, CallId
from coordinator.core.values.rebalance_journal import StoppedPartition
from coordinator.runtime.slices import PART, Work, at_once
from coordinator.service.grpc.translate import session_admin
from coordinator.service.parts import parts_of
from coordinator.service.refusals import Malformed, Violation, too_long
from coordinator.service.validation.commands import CommandValidator, check_heartbeat
from coordinator.service.validation.messages import MessageLimits
from coordinator.settings.sections import LimitsConfig
from coordinator.v1 import admin_pb2, group_pb2

NewCallId = Callable[[], CallId]
DEFAULTS = LimitsConfig()
_ORDERS = {order.value: f"ORDER_{order.name}" for order in c.ListOrder}


def commands_of(
    request: Message,
    new_call_id: NewCallId,
    client_host: str,
    config: LimitsConfig = DEFAULTS,
) -> Sequence[c.Request]:
    """Translate a request of GroupCoordinator or GroupAdmin to commands, and validate them.

    Args:
        new_call_id: returns an id for each command.
        client_host: the peer's address, `/127.0.0.1`.
        config: limits of the request.
    Raises:
        Malformed: with the invalid fields.
        KeyError: the message is no request of these services.
    """
    if wrong := MessageLimits(config).counts(request):
        raise Malformed(wrong)
    commands: Sequence[c.Request] = at_once(translation(request, new_call_id, client_host))
    if isinstance(request, group_pb2.HeartbeatBatchRequest):
        for index, command in enumerate(commands):
            assert isinstance(command, c.Heartbeat)
            try:
                check_heartbeat(command)
            except Malformed as malformed:
                raise malformed.within(f"heartbeats[{index}].") from None
    else:
        commands = at_once(CommandValidator(config).check(commands))
    return parts_of(commands, new_call_id)


def translation(
    request: Message, new_call_id: NewCallId, client_host: str
) -> Work[list[c.Request]]:
    """Translate a request like `commands_of`, without validation, a slice at a time.

    Raises:
        Malformed: a field is invalid that no command has.
    """
    if (translate := _COMMANDS.get(type(request))) is not None:
        command = translate(request, new_call_id(), client_host)
        return [(yield from command) if isinstance(command, Generator) else command]
    match request:
        case group_pb2.FindCoordinatorRequest():
            return []
        case group_pb2.HeartbeatBatchRequest():
            return [
                _heartbeat(heartbeat, new_call_id(), client_host)
                for heartbeat in request.heartbeats
            ]
        case admin_pb2.DescribeGroupsRequest():
            report = request.report_unknown_groups
            return [
                c.DescribeGroup(call_id=new_call_id(), group_id=group, report_unknown=report)
                for group in request.groups
            ]
        case admin_pb2.DeleteGroupsRequest():
            return [
                c.DeleteGroup(call_id=new_call_id(), group_id=group)
                for group in request.groups_names
            ]
        case _:
            raise KeyError(type(request).__name__)


def _join(request: group_pb2.JoinGroupRequest, call_id: CallId, host: str) -> c.Request:
    _check_names(request.stopped, "stopped")
    return c.JoinGroup(
        call_id=call_id,
        group_id=request.group_id,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms or request.session_timeout_ms,
        member_id=request.member_id,
        protocol_type=request.protocol_type,
        protocols=tuple((p.name, p.metadata) for p in request.protocols),
        instance_id=_optional(request, "group_instance_id"),
        client_id=request.client_id,
        client_host=host,
        reason=request.reason,
        require_known_member_id=_flag(request, "require_known_member_id"),
        supports_skip_assignment=_flag(request, "supports_skip_assignment"),
        stopped=tuple(
            StoppedPartition(topic.name, partition.partition_index, partition.stopped_ms_ago)
            for topic in request.stopped
            for partition in topic.partitions
        ),
    )


def _sync(request: group_pb2.SyncGroupRequest, call_id: CallId, _: str) -> Work[c.Request]:
    assignments = []
    for index, assignment in enumerate(request.assignments):
        if index % PART == PART - 1:
            yield
        assignments.append((assignment.member_id, assignment.assignment))
    return c.SyncGroup(
        call_id=call_id,
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=_optional(request, "group_instance_id"),
        protocol_type=_optional(request, "protocol_type"),
        protocol_name=_optional(request, "protocol_name"),
        assignments=tuple(assignments),
    )


def _heartbeat(request: group_pb2.HeartbeatRequest, call_id: CallId, _: str) -> c.Request:
    return c.Heartbeat(
        call_id=call_id,
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=_optional(request, "group_instance_id"),
    )


# Any: LeaveGroupRequest or RemoveMembersRequest.
def _leave(request: Any, call_id: CallId, _: str) -> Work[c.Request]:
    by_operator = isinstance(request, admin_pb2.RemoveMembersRequest)
    members = []
    for index, member in enumerate(request.members):
        if index % PART == PART - 1:
            yield
        instance_id = _optional(member, "group_instance_id")
        reason = request.reason if by_operator else member.reason
        members.append(c.LeavingMember(member.member_id, instance_id, reason))
    return c.LeaveGroup(
        call_id=call_id,
        group_id=request.group_id,
        members=tuple(members),
        by_operator=by_operator,
    )


def _commit(request: group_pb2.OffsetCommitRequest, call_id: CallId, _: str) -> Work[c.Request]:
    _check_names(request.topics)
    partitions = []
    for topic in request.topics:
        name = topic.name
        yield
        for p, partition in enumerate(topic.partitions):
            if p % PART == PART - 1:
                yield
            epoch = _optional(partition, "committed_leader_epoch")
            partitions.append(
                c.PartitionCommit(
                    name,
                    partition.partition_index,
                    partition.committed_offset,
                    NO_LEADER_EPOCH if epoch is None else epoch,
                    partition.committed_metadata,
                    _optional(partition, "expected_committed_offset"),
                    _optional(partition, "token"),
                    partition.waited_ms,
                )
            )
    generation = _optional(request, "generation_id")
    return c.CommitOffsets(
        call_id=call_id,
        group_id=request.group_id,
        generation=NO_GENERATION if generation is None else generation,
        member_id=request.member_id,
        instance_id=_optional(request, "group_instance_id"),
        partitions=tuple(partitions),
        atomic=request.atomic,
        manifest=request.manifest,
        requires_empty=request.requires_empty_group,
    )


def _fetch(request: group_pb2.OffsetFetchRequest, call_id: CallId, _: str) -> c.Request:
    _check_names(request.topics)
    partitions = tuple((t.name, p) for t in request.topics for p in t.partition_indexes)
    return c.FetchOffsets(
        call_id=call_id,
        group_id=request.group_id,
        partitions=partitions if request.topics else None,
        require_stable=request.require_stable,
    )


def _put_documents(request: group_pb2.PutDocumentsRequest, call_id: CallId, _: str) -> c.Request:
    documents = tuple(
        c.PutDocument(document.name, document.content, document.version)
        for document in request.documents
    )
    return c.PutDocuments(call_id=call_id, group_id=request.group_id, documents=documents)


def _fetch_documents(
    request: group_pb2.FetchDocumentsRequest, call_id: CallId, _: str
) -> c.Request:
    return c.FetchDocuments(
        call_id=call_id,
        group_id=request.group_id,
        prefix=request.prefix,
        after_version=request.after_version,
    )


def _report_log_ends(request: group_pb2.ReportLogEndsRequest, call_id: CallId, _: str) -> c.Request:
    _check_names(request.topics)
    return c.ReportLogEnds(
        call_id=call_id,
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=_optional(request, "group_instance_id"),
        ends=tuple(
            (t.name, p.partition_index, p.log_end_offset, p.log_begin_offset)
            for t in request.topics
            for p in t.partitions
        ),
    )


def _list_log_ends(request: admin_pb2.ListLogEndsRequest, call_id: CallId, _: str) -> c.Request:
    return c.ListLogEnds(call_id=call_id, group_id=request.group_id)


def _list(request: admin_pb2.ListGroupsRequest, call_id: CallId, _: str) -> c.Request:
    if request.order not in _ORDERS:
        raise Malformed([Violation("order", f"must be one of {', '.join(_ORDERS.values())}")])
    return c.ListGroups(
        call_id=call_id,
        states=tuple(request.states_filter),
        types=tuple(request.types_filter),
        contains=request.group_id_contains,
        limit=max(0, request.limit),
        order=c.ListOrder(request.order),
        skip=max(0, request.skip),
        with_lag=request.with_lag,
    )


def _delete_offsets(request: admin_pb2.OffsetDeleteRequest, call_id: CallId, _: str) -> c.Request:
    _check_names(request.topics)
    partitions = tuple((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    return c.DeleteOffsets(call_id=call_id, group_id=request.group_id, partitions=partitions)


def _list_rebalances(
    request: admin_pb2.ListRebalancesRequest, call_id: CallId, _: str
) -> c.Request:
    if request.limit < 0:
        raise Malformed([Violation("limit", "must not be negative")])
    return c.ListRebalances(call_id=call_id, group_id=request.group_id)


def _describe_phase(request: admin_pb2.DescribePhaseRequest, call_id: CallId, _: str) -> c.Request:
    return c.DescribePhase(call_id=call_id, group_id=request.group_id)


# Any: each function takes the request of its row.
_COMMANDS: dict[type[Message], Callable[[Any, CallId, str], c.Request | Work[c.Request]]] = {
    group_pb2.JoinGroupRequest: _join,
    group_pb2.SyncGroupRequest: _sync,
    group_pb2.HeartbeatRequest: _heartbeat,
    group_pb2.LeaveGroupRequest: _leave,
    group_pb2.OffsetCommitRequest: _commit,
    group_pb2.OffsetFetchRequest: _fetch,
    group_pb2.PutDocumentsRequest: _put_documents,
    group_pb2.FetchDocumentsRequest: _fetch_documents,
    group_pb2.ReportLogEndsRequest: _report_log_ends,
    admin_pb2.ListLogEndsRequest: _list_log_ends,
    admin_pb2.ListGroupsRequest: _list,
    admin_pb2.OffsetDeleteRequest: _delete_offsets,
    admin_pb2.RemoveMembersRequest: _leave,
    admin_pb2.ListRebalancesRequest: _list_rebalances,
    admin_pb2.DescribePhaseRequest: _describe_phase,
    **session_admin.COMMANDS,
}


def _check_names(topics: Sequence[Any], field: str = "topics") -> None:
    """Refuse long names of topics; commands do not contain topics without partitions."""
    wrong = (
        too_long(f"{field}[{n}].name", topic.name, limits.TOPIC) for n, topic in enumerate(topics)
    )
    if violations := [violation for violation in wrong if violation is not None]:
        raise Malformed(violations)


def _optional(message: Any, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None


def _flag(message: Any, field: str) -> bool:
    """Return an optional flag; true, the newest behaviour, if it is not set."""
    return getattr(message, field) if message.HasField(field) else True
