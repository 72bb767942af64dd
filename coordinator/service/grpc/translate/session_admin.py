"""Translation of operators' requests about session groups, and of the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.message import Message

from coordinator.core.sessions.holdings import ranges_of
from coordinator.core.values import replies as o
from coordinator.core.values.ids import CallId
from coordinator.core.values.requests import DescribeSessionGroup, EvictMember, SetGroupPolicy
from coordinator.runtime.slices import PART, Work
from coordinator.service.grpc.translate.projections import message_of, projection
from coordinator.service.grpc.translate.sessions import changes_of, policy_message, settings_message
from coordinator.service.validation.session_messages import check_policy
from coordinator.v1 import admin_pb2 as pb
from coordinator.v1 import session_pb2

INCARNATION_SHOWN = 4
"""Bytes of an incarnation that are shown: enough to tell two, too few to attach as one of them."""
_Response = pb.DescribeSessionGroupResponse


# --- Requests -----------------------------------------------------------------------------------


def _describe(request: pb.DescribeSessionGroupRequest, call_id: CallId, _: str) -> Any:
    return DescribeSessionGroup(call_id=call_id, group_id=request.group_id)


def _set_policy(request: pb.SetGroupPolicyRequest, call_id: CallId, _: str) -> Any:
    check_policy(request.policy)
    return SetGroupPolicy(
        call_id=call_id,
        group_id=request.group_id,
        changes=tuple(changes_of(request.policy).items()),
        defaults=tuple(request.defaults),
    )


def _evict(request: pb.EvictMemberRequest, call_id: CallId, _: str) -> Any:
    return EvictMember(
        call_id=call_id,
        group_id=request.group_id,
        member_id=request.member_id,
        member_name=request.member_name,
        is_gone=request.gone,
        is_dry_run=request.dry_run,
    )


# Any: each function takes the request of its row.
COMMANDS: dict[type[Message], Callable[[Any, CallId, str], Any]] = {
    pb.DescribeSessionGroupRequest: _describe,
    pb.SetGroupPolicyRequest: _set_policy,
    pb.EvictMemberRequest: _evict,
}


# --- Responses ----------------------------------------------------------------------------------


def _described(_: Message, reply: o.SessionGroupReply) -> Work[Message]:
    response = message_of(
        _Response,
        reply,
        *("policy", "members", "topics", "handoffs", "reservations"),
        policy=policy_message(reply.policy),
    )
    for number, row in enumerate(reply.members, 1):
        _add_member(response, row)
        if not number % PART:
            yield
    tokens: dict[str, o.DescribedTopic] = {}
    for topic in reply.topics:
        tokens[topic.topic] = topic
        yield from _add_topic(response, topic)
    by_name = {topic.name: topic for topic in response.topics}
    for free in reply.free:
        yield
        for first, last in free.ranges:
            free_row = by_name[free.topic].free.add(why=free.why)
            free_row.partitions.first, free_row.partitions.last = first, last
    for number, handoff in enumerate(reply.handoffs, 1):
        _add_handoff(response, handoff, tokens[handoff.topic_partition[0]])
        if not number % PART:
            yield
    for reservation in reply.reservations:
        _add_reservation(response, reservation)
        yield
    return response


def _add_member(response: _Response, row: o.SessionMemberState) -> None:
    record, kind = row.record, _Response.Member.DESCRIPTOR
    fields = projection(type(record), kind, "incarnation", "lease_ms")(record)
    fields |= projection(type(row), kind, "differing_wishes")(row)
    response.members.add(
        **fields,
        incarnation=session_pb2.Attach.Incarnation(
            id=bytes.fromhex(record.incarnation)[:INCARNATION_SHOWN],
            started_at_ms=record.started_at_ms,
        ),
        differing_wishes=settings_message(row.differing_wishes) if row.differing_wishes else None,
    )


def _add_topic(response: _Response, topic: o.DescribedTopic) -> Work[None]:
    added = response.topics.add(name=topic.topic, partitions=topic.declared)
    for number, (first, last) in enumerate(_runs(topic), 1):
        holding = added.holdings.add(member_id=topic.holders[first])
        holding.partitions.first, holding.partitions.last = first, last
        holding.partitions.first_token = topic.tokens[first]
        if not number % PART:
            yield


def _runs(topic: o.DescribedTopic) -> Iterator[tuple[int, int]]:
    """Partitions with one holder and consecutive tokens, first and last."""
    holders, tokens = topic.holders, topic.tokens
    first = 0
    for partition in range(1, len(holders) + 1):
        is_end = partition == len(holders)
        if (
            is_end
            or holders[partition] != holders[first]
            or tokens[partition] != tokens[first] + partition - first
        ):
            if holders[first]:
                yield first, partition - 1
            first = partition


def _add_handoff(response: _Response, row: o.HandoffRow, topic: o.DescribedTopic) -> None:
    name, partition = row.topic_partition
    response.handoffs.add(
        **projection(type(row), _Response.Handoff.DESCRIPTOR)(row),
        topic=name,
        partition=partition,
        token=topic.tokens[partition],
    )


def _add_reservation(response: _Response, row: o.ReservationRow) -> None:
    reservation = response.reservations.add(member_name=row.name, until_ms=row.until_ms)
    by_topic: dict[str, list[int]] = {}
    for topic, partition in row.partitions:
        by_topic.setdefault(topic, []).append(partition)
    for topic, partitions in by_topic.items():
        held = reservation.topics.add(name=topic)
        for first, last in ranges_of(partitions):
            held.partitions.add(first=first, last=last)


def _policy_set(_: Message, reply: o.PolicyReply) -> Message:
    return message_of(
        pb.SetGroupPolicyResponse, reply, "policy", policy=policy_message(reply.policy)
    )


# Any: each function takes the request of its row, and its reply.
RESPONSES: dict[type[Message], Callable[[Any, Any], Message | Work[Message]]] = {
    pb.DescribeSessionGroupRequest: _described,
    pb.SetGroupPolicyRequest: _policy_set,
    pb.EvictMemberRequest: lambda _, reply: message_of(pb.EvictMemberResponse, reply),
}
