"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: requests to commands, and replies to answers.

Every version means the same command; what differs between versions stands at its place here, with
the version from which on it holds.

Source: Kafka's `KafkaApis` and `GroupCoordinatorService`.
"""

from __future__ import annotations

from datetime import timedelta
from sys import intern
from typing import Any

from coordinator.core.values import requests as c
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.ids import CallId
from coordinator.core.values.replies import JoinReply, LeaveReply, SyncReply
from coordinator.kafka.codec import Answer, Body
from coordinator.kafka.schema import MILLISECOND
from coordinator.runtime.slices import PART, Work
from coordinator.service.kafka.calls import NewKafkaCallId
from coordinator.service.kafka.requests import KafkaRequest, reply_to

NAMED_MEMBER_FROM = 4
"""JoinGroup: a member has to come back with the id that it was given (KIP-394)."""
NULL_PROTOCOL_FROM = 7
"""JoinGroup: an answer with an error has no protocol name; an empty one before."""
SKIPS_FROM = 9
"""JoinGroup: a leader can be told not to assign (KIP-814)."""
NAMED_PROTOCOL_FROM = 5
"""SyncGroup: a member has to say the type and the name of its protocol (KIP-559)."""
BATCH_FROM = 3
"""LeaveGroup: several members leave, each with an error of its own (KIP-345)."""


# --- JoinGroup ---


async def join_group(request: KafkaRequest) -> Answer:
    reply = await reply_to(request, _join)
    assert isinstance(reply, JoinReply)
    name = reply.protocol_name
    return {
        "error_code": request.code(reply.error),
        "generation_id": reply.generation,
        "protocol_type": reply.protocol_type,
        "protocol_name": _protocol_name(name, request.version),
        "leader": reply.leader,
        "skip_assignment": reply.skip_assignment,
        "member_id": reply.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "metadata": member.metadata,
            }
            for member in reply.members
        ],
    }


def refuse_join(request: KafkaRequest, code: int) -> Answer:
    return {
        "error_code": code,
        "protocol_name": _protocol_name(None, request.version),
        "member_id": request.body.member_id,
    }


def _protocol_name(name: str | None, version: int) -> str | None:
    return name if name is not None or version >= NULL_PROTOCOL_FROM else ""


def _join(request: KafkaRequest, call_id: CallId) -> Work[list[c.Request]]:
    body, version = request.body, request.version
    # One below 0 is out of bounds, as 0 is, and gets the code that says so.
    session_ms = max(_milliseconds(body.session_timeout), 0)
    # Version 0 has none; nor has a client that says 0 or less.
    rebalance_ms = _milliseconds(getattr(body, "rebalance_timeout", timedelta()))
    protocols: dict[str, bytes] = {}
    for protocol in body.protocols:
        protocols.setdefault(protocol.name, protocol.metadata)  # Kafka takes the first of one name.
    yield
    return [
        c.JoinGroup(
            call_id=call_id,
            group_id=body.group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms if rebalance_ms > 0 else session_ms,
            member_id=body.member_id,
            protocol_type=body.protocol_type,
            protocols=tuple(protocols.items()),
            instance_id=getattr(body, "group_instance_id", None),
            client_id=request.header.client_id,
            client_host=request.call.caller.host,
            client_software=intern(str(request.software)),
            reason=getattr(body, "reason", None) or "",
            require_known_member_id=version >= NAMED_MEMBER_FROM,
            supports_skip_assignment=version >= SKIPS_FROM,
        )
    ]


# --- SyncGroup ---


async def sync_group(request: KafkaRequest) -> Answer:
    if not _names_protocol(request):
        # As in Kafka, nothing else is looked at: not even the group has to exist.
        await request.context.pipeline.answer(request.call, _no_commands)
        return refuse(request, request.code(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    reply = await reply_to(request, _sync)
    assert isinstance(reply, SyncReply)
    return {
        "error_code": request.code(reply.error),
        "protocol_type": reply.protocol_type,
        "protocol_name": reply.protocol_name,
        "assignment": reply.assignment,
    }


def refuse(_: KafkaRequest, code: int) -> Answer:
    """Answer with an error, where an answer has one field for it."""
    return {"error_code": code}


def _names_protocol(request: KafkaRequest) -> bool:
    body = request.body
    if request.version < NAMED_PROTOCOL_FROM:
        return True
    return body.protocol_type is not None and body.protocol_name is not None


def _no_commands(_: NewKafkaCallId) -> Work[list[c.Request]]:
    yield
    return []


def _sync(request: KafkaRequest, call_id: CallId) -> Work[list[c.Request]]:
    body = request.body
    assignments: dict[str, bytes] = {}  # Kafka takes the last of a member's assignments.
    for number, assignment in enumerate(body.assignments, 1):
        assignments[assignment.member_id] = assignment.assignment
        if not number % PART:
            yield
    return [
        c.SyncGroup(
            call_id=call_id,
            group_id=body.group_id,
            generation=body.generation_id,
            member_id=body.member_id,
            instance_id=getattr(body, "group_instance_id", None),
            protocol_type=getattr(body, "protocol_type", None),
            protocol_name=getattr(body, "protocol_name", None),
            assignments=tuple(assignments.items()),
        )
    ]


# --- Heartbeat, where the connection has not answered it by itself ---


async def heartbeat(request: KafkaRequest) -> Answer:
    pipeline, body = request.context.pipeline, request.body
    await pipeline.admit(request.call)
    instance_id = getattr(body, "group_instance_id", None)
    reply = pipeline.beat(body.group_id, body.member_id, instance_id, body.generation_id)
    return {"error_code": request.code(reply.error)}


# --- LeaveGroup ---


async def leave_group(request: KafkaRequest) -> Answer:
    reply = await reply_to(request, _leave)
    assert isinstance(reply, LeaveReply)
    error = reply.error
    if request.version < BATCH_FROM and error is ErrorCode.NONE:
        error = next((result.error for result in reply.members), error)
    return {
        "error_code": request.code(error),
        "members": [
            {
                "member_id": result.member_id,
                "group_instance_id": result.instance_id,
                "error_code": request.code(result.error),
            }
            for result in reply.members
        ],
    }


def _leave(request: KafkaRequest, call_id: CallId) -> Work[list[c.Request]]:
    body = request.body
    leaving: Any = body.members if request.version >= BATCH_FROM else (body,)
    members = []
    for number, leaver in enumerate(leaving, 1):
        instance_id = getattr(leaver, "group_instance_id", None)
        reason = getattr(leaver, "reason", None) or ""
        members.append(c.LeavingMember(leaver.member_id, instance_id, reason))
        if not number % PART:
            yield
    return [c.LeaveGroup(call_id=call_id, group_id=body.group_id, members=tuple(members))]


# --- Of all ---


def groups_of(body: Body) -> tuple[str | None, ...]:
    """The group that a request is about."""
    return (body.group_id,)


def _milliseconds(duration: timedelta) -> int:
    return duration // MILLISECOND
