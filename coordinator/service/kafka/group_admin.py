"""ListGroups, DescribeGroups, DeleteGroups: requests to commands, and replies to answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coordinator.core import limits
from coordinator.core.values import requests as c
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.ids import TOPICS_GROUP, CallId
from coordinator.core.values.replies import DeleteReply, DescribeReply, ListReply, Reply
from coordinator.kafka import errors
from coordinator.kafka.codec import Answer
from coordinator.runtime.payloads import assignment_of
from coordinator.runtime.slices import PART, Slices, Work, in_slices
from coordinator.security.rules import Operation
from coordinator.service.kafka.batches import check_groups
from coordinator.service.kafka.calls import NewKafkaCallId
from coordinator.service.kafka.requests import KafkaRequest, reply_to
from coordinator.service.refusals import Denied, too_long

UNKNOWN_FROM = 6
"""DescribeGroups: a group that does not exist is an error; before, it is Dead (KIP-1043)."""
DEAD = "Dead"
NOT_ASKED = -(2**31)
"""Authorised operations that were not asked for (KIP-430)."""
OPERATIONS = {
    Operation.JOIN: 1 << 3,
    Operation.COMMIT: 1 << 3,
    Operation.ADMIN: 1 << 6,
    Operation.READ: 1 << 8,
}
"""Our operations as bits of Kafka's: READ is to join and to commit, DELETE, DESCRIBE."""


# --- ListGroups ---


async def list_groups(request: KafkaRequest) -> Answer:
    """Answer a ListGroups: of this node's shards, as Kafka's tools expect."""
    reply = await reply_to(request, _list)
    assert isinstance(reply, ListReply)
    return {
        "error_code": request.code(reply.error),
        "groups": await in_slices(_listed(reply)),
    }


def _list(request: KafkaRequest, call_id: CallId) -> Work[list[c.Request]]:
    body = request.body
    yield
    return [
        c.ListGroups(
            call_id=call_id,
            states=tuple(getattr(body, "states_filter", ())),
            types=tuple(getattr(body, "types_filter", ())),
        )
    ]


def _listed(reply: ListReply) -> Work[list[Answer]]:
    groups: list[Answer] = []
    for number, group in enumerate(reply.groups, 1):
        groups.append(
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type,
                "group_state": group.state,
                "group_type": group.group_type,
            }
        )
        if not number % PART:
            yield
    return groups


# --- DescribeGroups ---


async def describe_groups(request: KafkaRequest) -> Answer:
    """Answer a DescribeGroups, group by group; a group named twice has one result: it may have
    many megabytes of members."""
    groups = tuple(dict.fromkeys(request.body.groups))
    replies, codes = await _of_each(request, groups, c.DescribeGroup)
    described = [
        {"error_code": codes[group], "group_id": group, "group_state": ""}
        if group in codes
        else await in_slices(_described(request, replies[group]))
        for group in groups
    ]
    return {"groups": described}


def _described(request: KafkaRequest, reply: Reply) -> Work[Answer]:
    assert isinstance(reply, DescribeReply)
    error = reply.error
    is_unknown = error is ErrorCode.GROUP_ID_NOT_FOUND
    if is_unknown and request.version < UNKNOWN_FROM:
        operations = _operations(request, reply.group_id)
        return {
            "group_id": reply.group_id,
            "group_state": DEAD,
            "authorized_operations": operations,
        }
    members: list[Answer] = []
    for number, member in enumerate(reply.members, 1):
        members.append(
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": assignment_of(member),
            }
        )
        if not number % PART:
            yield
    return {
        "error_code": request.code(error),
        "error_message": reply.message or None,
        "group_id": reply.group_id,
        "group_state": DEAD if is_unknown else reply.state,
        "protocol_type": reply.protocol_type,
        "protocol_data": reply.protocol_name,
        "members": members,
        "authorized_operations": _operations(request, reply.group_id),
    }


def _operations(request: KafkaRequest, group_id: str) -> int:
    """Bits of what the caller may do with a group, if it asks."""
    if not getattr(request.body, "include_authorized_operations", False):
        return NOT_ASKED
    may, call = request.context.pipeline.may, request.call
    bits = 0
    for operation, bit in OPERATIONS.items():
        if may(call, operation, group_id):
            bits |= bit
    return bits


def refuse_describe(request: KafkaRequest, code: int) -> Answer:
    return {"groups": [{"error_code": code, "group_id": group} for group in request.body.groups]}


# --- DeleteGroups ---


async def delete_groups(request: KafkaRequest) -> Answer:
    """Answer a DeleteGroups, group by group; a group named twice has one result, as in Kafka."""
    groups = tuple(dict.fromkeys(request.body.groups_names))
    replies, codes = await _of_each(request, groups, c.DeleteGroup)
    for group, reply in replies.items():
        assert isinstance(reply, DeleteReply)
        codes[group] = request.code(reply.error)
    return {"results": [{"group_id": group, "error_code": codes[group]} for group in groups]}


def refuse_delete(request: KafkaRequest, code: int) -> Answer:
    groups = request.body.groups_names
    return {"results": [{"error_code": code, "group_id": group} for group in groups]}


# --- Inside ---


async def _of_each(
    request: KafkaRequest,
    groups: Sequence[str],
    command: type[c.DescribeGroup] | type[c.DeleteGroup],
) -> tuple[Mapping[str, Reply], dict[str, int]]:
    """Ask for each group that the caller may ask for.

    Returns:
        The replies, and the codes of the other groups.
    Raises:
        Malformed: there are more groups than a call may name.
    """
    check_groups(request, groups)
    pipeline = request.context.pipeline
    codes: dict[str, int] = {}
    allowed: list[str] = []
    slices = Slices()
    for group in dict.fromkeys(groups):
        await slices.pause()
        if too_long("group", group, limits.GROUP_ID) is not None or group == TOPICS_GROUP:
            codes[group] = errors.INVALID_REQUEST
        elif await _is_denied(request, group):
            codes[group] = errors.GROUP_AUTHORIZATION_FAILED
        else:
            allowed.append(group)

    def translate(new_call_id: NewKafkaCallId) -> Work[list[c.Request]]:
        yield
        options: dict[str, Any] = {}
        if command is c.DescribeGroup:
            options["report_unknown"] = True
        return [command(call_id=new_call_id(), group_id=group, **options) for group in allowed]

    replies = await pipeline.answer(request.call.about(*allowed), translate)
    return {getattr(reply, "group_id", ""): reply for reply in replies}, codes


async def _is_denied(request: KafkaRequest, group: str) -> bool:
    """True if the caller may not ask for a group, of several."""
    pipeline = request.context.pipeline
    if pipeline.admits_all or len(request.call.groups) == 1:
        return False  # The call itself is refused.
    try:
        await pipeline.admit(request.call.question(group))
    except Denied:
        return True
    return False
