"""Messages to a member: its orders, in full or as changes, and acknowledgements.

It is made of holdings at the time at which the transport asks. So a slow reader gets the newest
state, and nothing is kept for it but the set of partitions that have changed.

A large state is sent a part at a time, so that others are served in between. Each part is made when
it is sent: what has changed since the first is in the next difference as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff.phases import DRAINING, remaining_ms
from coordinator.core.sessions.member import SessionMember, Unsent
from coordinator.core.step import Step
from coordinator.core.values.ids import NO_OFFSET, NO_TIME, NO_TOKEN, TopicPartition
from coordinator.core.values.records import Phase
from coordinator.core.values.session_messages import (
    HeartbeatAck,
    Order,
    OrderedPartition,
    Orders,
    ToMember,
)

WINDOW = "window"
"""Reason for which a member has nothing until the next plan."""
PART = 10_000
"""Partitions that are sent at a time, in 40 ms."""


def take(group: SessionGroup, member: SessionMember, now_ms: int) -> ToMember | None:
    """Take the pending message out of a member's mailbox; None: nothing is pending."""
    mailbox = member.mailbox
    mailbox.unread_since_ms = NO_TIME
    if mailbox.is_empty:
        return None
    ack = None
    if mailbox.ack >= 0:
        ack = HeartbeatAck(mailbox.ack, tuple(sorted(member.forced)))
        mailbox.ack = -1
    orders = None
    if mailbox.unsent is not None:
        orders = _part(group, member, mailbox.unsent, now_ms)
    elif mailbox.whole:
        orders = whole(group, member, now_ms)
    elif mailbox.dirty:
        based_on, mailbox.version = mailbox.version, mailbox.version + 1
        dirty, mailbox.dirty = mailbox.dirty, set()
        member_id = member.member_id
        mailbox.sent |= {p: mailbox.version for p in dirty if group.holder(p) == member_id}
        rest = Unsent(mailbox.version, based_on, -1, _last_first(dirty))
        orders = _part(group, member, rest, now_ms)
    attached, mailbox.attached = mailbox.attached, False
    return ToMember(ack, orders, attached)


def whole(
    group: SessionGroup, member: SessionMember, now_ms: int, claimed: Iterable[TopicPartition] = ()
) -> Orders:
    """All orders, or the first part of them.

    `claimed`: what the member believes to hold, and may have lost.
    """
    mailbox = member.mailbox
    mailbox.version += 1
    mailbox.dirty.clear()
    answers, mailbox.answers, mailbox.whole = mailbox.answers, -1, False
    mailbox.sent = dict.fromkeys(group.partitions_of(member.member_id), mailbox.version)
    preparing = group.preparing.get(member.member_id, ())
    partitions = _last_first(chain(mailbox.sent, claimed, preparing))
    return _part(group, member, Unsent(mailbox.version, -1, answers, partitions), now_ms)


def _part(group: SessionGroup, member: SessionMember, rest: Unsent, now_ms: int) -> Orders:
    """The next part of orders that are sent in parts."""
    partitions = rest.partitions[: -PART - 1 : -1]
    del rest.partitions[-PART:]
    member.mailbox.unsent = rest if rest.partitions else None
    orders = tuple(_ordered(group, member, partition, now_ms) for partition in partitions)
    why, is_part = why_empty(group, member), bool(rest.partitions)
    if why == WINDOW:
        group.planning.without_partitions.add(member.member_id)
    return Orders(rest.version, rest.based_on, orders, rest.answers, why, is_part)


def _last_first(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Partitions, once each, in descending order; sorting pairs would take four times as long."""
    by_topic: dict[str, set[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, set()).add(partition)
    return [
        (topic, partition)
        for topic in sorted(by_topic, reverse=True)
        for partition in sorted(by_topic[topic], reverse=True)
    ]


def why_empty(group: SessionGroup, member: SessionMember) -> str:
    """Reason for which a member has nothing; empty if it has something."""
    member_id = member.member_id
    if group.count_held_by(member_id) or group.preparing.get(member_id):
        return ""
    if not member.is_ready:
        return "not ready"
    if member.record.capacity <= 0:
        return "capacity"
    planning = group.planning
    return WINDOW if planning.requested_at_ms >= 0 or planning.is_busy else "nothing free"


def notify_waiting(group: SessionGroup, step: Step) -> None:
    """Send empty orders to waiting members for which the plan had nothing."""
    planning = group.planning
    is_planned = planning.requested_at_ms == NO_TIME and not planning.is_busy
    if not planning.without_partitions or not is_planned or group.written_partitions:
        return
    for member_id in planning.without_partitions:
        member = group.members.get(member_id)
        if member is not None and not member.mailbox.dirty and why_empty(group, member):
            member.mailbox.whole = True
            step.out.wake(member.stream_id)
    planning.without_partitions.clear()


def _ordered(
    group: SessionGroup, member: SessionMember, partition: TopicPartition, now_ms: int
) -> OrderedPartition:
    member_id = member.member_id
    handoff = group.handoff(partition)
    stored = group.offsets.get(partition)
    offset = NO_OFFSET if stored is None else stored.offset
    if group.holder(partition) == member_id:
        token = group.token(partition)
        if handoff is None or handoff.phase not in DRAINING:
            return OrderedPartition(*partition, Order.ACTIVE, token, offset=offset)
        order = Order.LOST if handoff.phase is Phase.FORCED else Order.DRAIN
        left_ms = remaining_ms(handoff, now_ms)
        return OrderedPartition(*partition, order, token, handoff.handoff_id, left_ms)
    if handoff is not None and handoff.successor == member_id and handoff.is_prepared_for:
        return OrderedPartition(
            *partition,
            Order.WARM,
            NO_TOKEN,
            handoff.handoff_id,
            remaining_ms(handoff, now_ms),
            offset,
            handoff.position,
        )
    return OrderedPartition(*partition, Order.LOST)
