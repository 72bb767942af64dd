"""Translation of session messages: those of members to commands, and replies to messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from enum import Enum
from itertools import groupby
from operator import itemgetter
from typing import Any

from coordinator.core.sessions.holdings import ranges_of
from coordinator.core.values import session_messages as q
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.ids import NO_OFFSET, NO_TIME, CallId, TopicPartition
from coordinator.core.values.policy import Mode, OnStall, Policy
from coordinator.core.values.session_messages import (
    HeartbeatAck,
    Order,
    OrderedPartition,
    Orders,
    ToMember,
)
from coordinator.runtime.slices import Work, collected
from coordinator.service.refusals import Malformed, Violation
from coordinator.service.validation import session_messages as checks
from coordinator.service.validation.commands import REASON
from coordinator.v1 import errors_pb2
from coordinator.v1 import session_pb2 as pb

_POLICY = [field.name for field in fields(Policy) if field.name not in ("mode", "on_stall")]
PAGE_BYTES = 64 * 1024
"""Size of the largest page of orders: it takes 15 ms, and others are answered after it."""
RUN = 3_125
"""Partitions in one range: their committed offsets take half a page at most."""
ACKS = 2_000
"""Acknowledged partitions that one step takes: 2 ms if they are of old tokens, 30 ms if not."""
FRAME_BYTES = 5
"""Most that a message takes inside of another one, besides itself: a tag and a length."""


class MemberStream:
    """One stream of a member, without I/O: messages in, commands out, and back.

    The service of gRPC and the coordinator on virtual time are its hosts. A host hands each message
    to `attach` or `receive`, steps the shard with the results, and sends what `answered`,
    `outgoing` and `last_of` return. It is kept as long as the stream.

    Args:
        stream_id: the id that no other call or stream of the process has.
        client_host: the peer's address, `/127.0.0.1`.
    """

    __slots__ = ("_client_host", "_epoch", "_reply", "group_id", "stream_id")

    def __init__(self, stream_id: CallId, client_host: str) -> None:
        self.stream_id = stream_id
        self.group_id = ""
        self._client_host = client_host
        self._reply = q.AttachReply()
        self._epoch = 0

    def attach(self, request: pb.SessionRequest, principal: str) -> Work[q.Attach]:
        """Translate the first message, a part at a time.

        Args:
            principal: name of the authenticated caller; empty without authentication.
        Raises:
            Malformed: it is no Attach, or has invalid fields.
        """
        if request.WhichOneof("message") != "attach":
            raise Malformed([Violation("attach", "must be the first message of a stream")])
        self.group_id = request.attach.group_id
        return (yield from attach_of(request.attach, self.stream_id, principal, self._client_host))

    def receive(self, request: pb.SessionRequest) -> Work[list[q.SessionInput]]:
        """Translate a message after the first, a part at a time.

        Raises:
            Malformed: it is an Attach, or nothing, or has invalid fields.
        """
        return inputs_of(request, self.stream_id, self.group_id, self._epoch)

    def ended(self) -> q.StreamEnded:
        """The command that reports the end of this stream."""
        return q.StreamEnded(stream_id=self.stream_id, group_id=self.group_id)

    def answered(self, reply: q.AttachReply, epoch: int) -> Iterator[pb.SessionResponse]:
        """Messages that answer the Attach without an error."""
        self._reply, self._epoch = replace(reply, orders=None), epoch  # Kept with the stream.
        return attached(reply, epoch)

    def outgoing(self, pending: ToMember, epoch: int) -> Iterator[pb.SessionResponse]:
        """Messages that are pending for the member now."""
        return outgoing(pending, self._reply, epoch)


def refusal(malformed: Malformed) -> q.StreamRefused:
    """The end of a stream on which a malformed message was received."""
    return q.StreamRefused(ErrorCode.INVALID_REQUEST, str(malformed))


# --- Messages of members ---


def attach_of(
    message: pb.Attach, call_id: CallId, principal: str, client_host: str
) -> Work[q.Attach]:
    """Translate an Attach.

    Raises:
        Malformed: with the invalid fields.
    """
    yield from checks.check_attach(message)
    held = yield from collected(_held(message.held))
    return q.Attach(
        call_id=call_id,
        group_id=message.group_id,
        incarnation=message.incarnation.id.hex(),
        started_at_ms=message.incarnation.started_at_ms,
        name=message.member_name,
        session_id=message.session_id,
        stream_number=message.stream_number,
        principal=principal,
        client_id=message.client_id,
        client_host=client_host,
        rack=message.rack,
        topics=tuple((topic.name, topic.partitions) for topic in message.topics),
        capacity=message.capacity if message.HasField("capacity") else 1.0,
        max_partitions=message.max_partitions if message.HasField("max_partitions") else None,
        drain_ms=message.drain_ms if message.HasField("drain_ms") else None,
        revision=message.revision,
        deployment=message.deployment,
        ready=message.ready if message.HasField("ready") else True,
        wishes=policy_of(message.wishes) if message.HasField("wishes") else None,
        wished=tuple(changes_of(message.wishes)),
        held=tuple(held),
        epoch=message.coordinator_epoch,
        silent_ms=max(0, message.silent_ms),
        keep_classic=message.keep_classic,
    )


def policy_of(message: pb.GroupPolicy) -> Policy:
    """Translate a policy; settings that are not set have their defaults."""
    return Policy(**changes_of(message))


# Any: values of the fields of a policy, which have several types.
def changes_of(message: pb.GroupPolicy) -> dict[str, Any]:
    """Settings that are set in a policy."""
    chosen: dict[str, Any] = {
        name: getattr(message, name)
        for name in _POLICY
        if message.HasField(name)  # type: ignore[arg-type]
    }
    if message.HasField("mode"):
        chosen["mode"] = Mode(pb.GroupPolicy.Mode.Name(message.mode).lower())
    if message.HasField("on_stall"):
        chosen["on_stall"] = OnStall(pb.GroupPolicy.OnStall.Name(message.on_stall).lower())
    return chosen


def policy_message(policy: Policy) -> pb.GroupPolicy:
    """A policy with all its settings but those that have no value."""
    return settings_message((field.name, getattr(policy, field.name)) for field in fields(Policy))


def settings_message(settings: Iterable[tuple[str, object]]) -> pb.GroupPolicy:
    """A policy with these settings alone."""
    values = {name: value.name if isinstance(value, Enum) else value for name, value in settings}
    return pb.GroupPolicy(**values)  # type: ignore[arg-type]  # Each setting has its own type.


def inputs_of(
    message: pb.SessionRequest, stream_id: CallId, group_id: str, epoch: int
) -> Work[list[q.SessionInput]]:
    """Translate a message after the first; `epoch`: that of the coordinator.

    Acknowledgements become several commands, so that no step takes long.

    Raises:
        Malformed: it is an Attach, or nothing; or with the invalid fields.
    """
    match message.WhichOneof("message"):
        case "heartbeat":
            return [(yield from _heartbeat(message.heartbeat, stream_id, group_id, epoch))]
        case "ack":
            yield from checks.check_ack(message.ack)
            acks = yield from collected(map(_ack, message.ack.partitions))
            return [
                q.SessionAck(
                    stream_id=stream_id,
                    group_id=group_id,
                    partitions=tuple(acks[first : first + ACKS]),
                )
                for first in range(0, len(acks), ACKS)
            ]
        case "leave":
            leave = message.leave
            checks.check_leave(leave)
            kind = q.LeaveKind(pb.SessionLeave.Kind.Name(leave.kind).lower())
            return [
                q.SessionLeave(
                    stream_id=stream_id,
                    group_id=group_id,
                    kind=kind,
                    within_ms=leave.within_ms,
                    reason=leave.reason[:REASON],
                )
            ]
        case "attach":
            raise Malformed([Violation("attach", "this stream is attached already")])
        case _:
            raise Malformed([Violation("message", "it is missing")])


def _heartbeat(
    beat: pb.SessionHeartbeat, stream_id: CallId, group_id: str, epoch: int
) -> Work[q.SessionHeartbeat]:
    yield from checks.check_heartbeat(beat)
    held = None
    if beat.HasField("held"):
        held = tuple((yield from collected(_held(beat.held.topics))))
    # Versions begin anew with each owner: one of another epoch says nothing about what was told
    # here. A member that does not say the epoch means the one of its stream.
    is_ours = beat.applied_epoch in (0, epoch)
    return q.SessionHeartbeat(
        stream_id=stream_id,
        group_id=group_id,
        number=beat.number,
        applied=beat.applied_version if is_ours else 0,
        whole=beat.whole,
        progress=beat.progress,
        ready=beat.ready if beat.HasField("ready") else True,
        overloaded=beat.overloaded,
        held=held,
        log_ends=tuple(
            (end.topic, end.partition, end.log_end_offset, end.log_begin_offset)
            for end in beat.log_ends
        ),
    )


_ACKS = {
    pb.SessionAck.RELEASED: q.AckKind.RELEASED,
    pb.SessionAck.READY: q.AckKind.READY,
    pb.SessionAck.REFUSED: q.AckKind.REFUSED,
}


def _ack(partition: pb.SessionAck.Partition) -> q.PartitionAck:
    return q.PartitionAck(
        partition.topic,
        partition.partition,
        _ACKS[partition.kind],
        partition.token,
        partition.handoff_id,
        partition.position if partition.HasField("position") else NO_OFFSET,
        partition.reason[:REASON],
    )


def _held(topics: Iterable[pb.HeldTopic]) -> Iterator[tuple[str, int, int]]:
    for topic in topics:
        for span in topic.partitions:
            for partition in range(span.first, span.last + 1):
                yield topic.name, partition, span.first_token + partition - span.first


# --- Messages to members ---


def attached(reply: q.AttachReply, epoch: int) -> Iterator[pb.SessionResponse]:
    """The answer to an Attach, in one message or, for a large state, in several."""
    pages = iter(()) if reply.orders is None else order_pages(reply.orders, epoch)
    waiting = reply.standing is q.Standing.WAITING
    yield pb.SessionResponse(
        attached=pb.Attached(
            session_id=reply.session_id,
            member_id=reply.member_id,
            standing=pb.Attached.WAITING if waiting else pb.Attached.MEMBER,
            retry_after_ms=reply.retry_after_ms,
            why=reply.message,
            coordinator_epoch=epoch,
            lease_ms=reply.lease_ms,
            heartbeat_interval_ms=reply.lease_ms // 4,
            orders=next(pages, None),
        )
    )
    for page in pages:
        yield pb.SessionResponse(orders=page)


def outgoing(pending: ToMember, reply: q.AttachReply, epoch: int) -> Iterator[pb.SessionResponse]:
    """The pending messages, at most one of each kind.

    `reply`: the answer to the stream's Attach.
    """
    if pending.attached:
        member = replace(
            reply, standing=q.Standing.MEMBER, message="", retry_after_ms=0, orders=pending.orders
        )
        yield from attached(member, epoch)
    if pending.ack is not None:
        yield _ack_of(pending.ack, epoch)
    if pending.orders is not None and not pending.attached:
        for page in order_pages(pending.orders, epoch):
            yield pb.SessionResponse(orders=page)


def _ack_of(ack: HeartbeatAck, epoch: int) -> pb.SessionResponse:
    message = pb.SessionHeartbeatAck(number=ack.number, coordinator_epoch=epoch)
    if ack.expiring:
        message.expiring.extend(_topics_of(ack.expiring))
    return pb.SessionResponse(heartbeat_ack=message)


def _topics_of(partitions: Sequence[TopicPartition]) -> Iterator[pb.HeldTopic]:
    for topic, partitions_of_topic in groupby(sorted(partitions), key=itemgetter(0)):
        ranges = ranges_of(partition for _, partition in partitions_of_topic)
        yield pb.HeldTopic(
            name=topic, partitions=[pb.PartitionRange(first=p, last=q) for p, q in ranges]
        )


_ORDERS = {
    Order.ACTIVE: pb.Orders.ACTIVE,
    Order.WARM: pb.Orders.WARM,
    Order.DRAIN: pb.Orders.DRAIN,
    Order.LOST: pb.Orders.LOST,
}


def order_pages(orders: Orders, epoch: int) -> Iterator[pb.Orders]:
    """Orders in pages; consecutive partitions with equal orders are one range."""
    page, size_bytes = _page(orders, epoch)
    for run in _runs(orders.partitions):
        topic, item = run[0].topic, _range(run)
        item_bytes = item.ByteSize() + FRAME_BYTES
        topic_bytes = len(topic.encode()) + 2 * FRAME_BYTES
        is_new = not page.topics or page.topics[-1].name != topic
        if page.topics and size_bytes + item_bytes + is_new * topic_bytes > PAGE_BYTES:
            page.is_part = True
            yield page
            page, size_bytes = _page(orders, epoch)
            is_new = True
        if is_new:
            page.topics.add(name=topic)
        page.topics[-1].ranges.append(item)
        size_bytes += item_bytes + is_new * topic_bytes
    page.is_part = orders.is_part
    yield page


def _page(orders: Orders, epoch: int) -> tuple[pb.Orders, int]:
    """A page without partitions, and the most that it takes."""
    page = pb.Orders(coordinator_epoch=epoch, version=orders.version, why=orders.why)
    if orders.based_on >= 0:
        page.based_on = orders.based_on
    if orders.answers >= 0:
        page.answers = orders.answers
    return page, page.ByteSize() + FRAME_BYTES


def _runs(partitions: Sequence[OrderedPartition]) -> Iterator[list[OrderedPartition]]:
    run: list[OrderedPartition] = []
    for order in partitions:
        if run and (len(run) == RUN or not _follows(run[-1], order)):
            yield run
            run = []
        run.append(order)
    if run:
        yield run


def _follows(before: OrderedPartition, order: OrderedPartition) -> bool:
    return (
        order.topic == before.topic
        and order.partition == before.partition + 1
        and order.order is before.order
        and order.token == (before.token + 1 if before.token else 0)
        and order.handoff_id == before.handoff_id
        and order.remaining_ms == before.remaining_ms
        and order.position == before.position
    )


def _range(run: Sequence[OrderedPartition]) -> pb.Orders.Range:
    first = run[0]
    message = pb.Orders.Range(
        partitions=pb.PartitionRange(
            first=first.partition, last=run[-1].partition, first_token=first.token
        ),
        order=_ORDERS[first.order],
        handoff_id=first.handoff_id,
        remaining_ms=first.remaining_ms,
    )
    if any(order.offset != NO_OFFSET for order in run):
        message.committed_offsets.extend(order.offset for order in run)
    if first.position != NO_OFFSET:
        message.position = first.position
    return message


def last_of(end: q.StreamEnd, host: str = "", port: int = 0) -> pb.SessionResponse:
    """The last message of a stream; `host`, `port`: the group's new node, if it is known."""
    if isinstance(end, q.GoAway):
        reason = pb.GoAway.Reason.Value(end.reason.name)
        return pb.SessionResponse(go_away=pb.GoAway(reason=reason, host=host, port=port))
    retry_ms = 0 if end.retry_after_ms == NO_TIME else end.retry_after_ms
    return pb.SessionResponse(
        refused=pb.SessionRefused(
            error_code=errors_pb2.ErrorCode.ValueType(end.error),
            error_message=end.message,
            retry_after_ms=retry_ms,
        )
    )
