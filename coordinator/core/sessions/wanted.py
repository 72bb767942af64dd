"""Messages to a member: its wanted state, whole or as changes, and acknowledgements.

It is made of holdings at the time at which the transport asks. So a slow reader gets the newest
state, and nothing is kept for it but the set of partitions that have changed.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.core.ids import NO_OFFSET, NO_TIME, NO_TOKEN, Place
from coordinator.core.session_values.messages import (
    HeartbeatAck,
    Order,
    OrderedPartition,
    ToMember,
    Wanted,
)
from coordinator.core.session_values.records import Phase
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import DRAINING, remaining_ms
from coordinator.core.sessions.member import SessionMember


def take(group: SessionGroup, member: SessionMember, now_ms: int) -> ToMember | None:
    """Take what there is to say out of a member's mailbox; None: nothing."""
    mailbox = member.mailbox
    mailbox.unread_since_ms = NO_TIME
    if mailbox.is_empty:
        return None
    ack = None
    if mailbox.ack >= 0:
        ack = HeartbeatAck(mailbox.ack, tuple(sorted(member.forced)))
        mailbox.ack = -1
    wanted = None
    if mailbox.whole:
        wanted = whole(group, member, now_ms)
    elif mailbox.dirty:
        based_on, mailbox.version = mailbox.version, mailbox.version + 1
        dirty = sorted(mailbox.dirty)
        mailbox.dirty.clear()
        member_id = member.member_id
        mailbox.told |= {p: mailbox.version for p in dirty if group.holder(p) == member_id}
        orders = tuple(_ordered(group, member, place, now_ms) for place in dirty)
        wanted = Wanted(mailbox.version, based_on, orders, why=why_empty(group, member))
    attached, mailbox.attached = mailbox.attached, False
    return ToMember(ack, wanted, attached)


def whole(
    group: SessionGroup, member: SessionMember, now_ms: int, claimed: Iterable[Place] = ()
) -> Wanted:
    """The whole wanted state; `claimed`: what the member believes to hold, and may have lost."""
    mailbox = member.mailbox
    mailbox.version += 1
    mailbox.dirty.clear()
    answers, mailbox.answers, mailbox.whole = mailbox.answers, -1, False
    held = set(group.places_of(member.member_id))
    mailbox.told = dict.fromkeys(held, mailbox.version)
    places = held.union(claimed)
    places |= group.preparing.get(member.member_id, set())
    orders = tuple(_ordered(group, member, place, now_ms) for place in sorted(places))
    return Wanted(mailbox.version, -1, orders, answers, why_empty(group, member))


def why_empty(group: SessionGroup, member: SessionMember) -> str:
    """Reason for which a member has nothing; empty if it has something."""
    member_id = member.member_id
    if group.count_held_by(member_id) or group.preparing.get(member_id):
        return ""
    if not member.is_ready:
        return "not ready"
    if member.record.capacity <= 0:
        return "capacity"
    return "window" if group.call_at_ms >= 0 else "nothing free"


def _ordered(
    group: SessionGroup, member: SessionMember, place: Place, now_ms: int
) -> OrderedPartition:
    member_id = member.member_id
    handoff = group.handoff(place)
    stored = group.offsets.get(place)
    offset = NO_OFFSET if stored is None else stored.offset
    if group.holder(place) == member_id:
        token = group.token(place)
        if handoff is None or handoff.phase not in DRAINING:
            return OrderedPartition(*place, Order.ACTIVE, token, offset=offset)
        order = Order.LOST if handoff.phase is Phase.FORCED else Order.DRAIN
        left_ms = remaining_ms(handoff, now_ms)
        return OrderedPartition(*place, order, token, handoff.handoff_id, left_ms)
    if handoff is not None and handoff.successor == member_id and handoff.is_prepared_for:
        return OrderedPartition(
            *place,
            Order.WARM,
            NO_TOKEN,
            handoff.handoff_id,
            remaining_ms(handoff, now_ms),
            offset,
            handoff.position,
        )
    return OrderedPartition(*place, Order.LOST)
