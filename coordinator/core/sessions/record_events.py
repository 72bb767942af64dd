"""Events of session groups, derived from records that became durable.

Asked before a record is applied, since the end of a member removes what is reported of it.
"""

from __future__ import annotations

from dataclasses import fields

from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.member import SessionMember
from coordinator.core.values import events as e
from coordinator.core.values import records as r
from coordinator.core.values.events import Event, HandoffJournaled, PlanJournaled
from coordinator.core.values.ids import NO_TIME
from coordinator.core.values.plan_journal import PlanRecord
from coordinator.core.values.policy import Policy
from coordinator.core.values.records import Record


def event_of(group: SessionGroup | None, record: Record) -> Event | None:
    """The event of a record that is about to be applied; None: it has none.

    Args:
        group: None: the record makes it.
    """
    match record:
        case r.SessionMemberStored():
            return _stored(group, record)
        case r.SessionMemberEnded():
            return _ended(group, record)
        case r.PolicyStored():
            return _policy(record)
        case PlanRecord():
            return PlanJournaled(record)
        case r.PartitionSwitched() | r.PhaseEntered(phase=r.Phase.HELD):
            return _handoff(group, record)
    return None


def _stored(group: SessionGroup | None, record: r.SessionMemberStored) -> e.SessionEvent | None:
    if group is not None and record.member_id in group.members:
        return None
    return e.SessionMemberJoined(
        record.group_id,
        record.member_id,
        record.name,
        record.client_id,
        record.client_host,
        record.lease_ms,
    )


def _ended(group: SessionGroup | None, record: r.SessionMemberEnded) -> e.SessionEvent | None:
    member = None if group is None else group.members.get(record.member_id)
    if group is None or member is None:
        return None
    stored = member.record
    # A new owner counts leases from when it began to serve, and has received nothing by then.
    seen_ms = member.last_beat_ms if member.stream_number >= 0 else NO_TIME
    return e.SessionMemberRemoved(
        record.group_id,
        record.member_id,
        stored.name,
        stored.client_id,
        stored.client_host,
        record.cause,
        group.count_held_by(record.member_id),
        seen_ms,
    )


def _handoff(
    group: SessionGroup | None, record: r.PartitionSwitched | r.PhaseEntered
) -> Event | None:
    """Journal event of a hand-off; None: its grant has ended before the record."""
    if group is None or record.line is None:
        return None
    token = record.ended_token if isinstance(record, r.PartitionSwitched) else record.token
    if group.token((record.topic, record.partition)) != token:
        return None
    full_record = group.with_start(record) if isinstance(record, r.PartitionSwitched) else record
    return HandoffJournaled(record.group_id, full_record)


def _policy(record: r.PolicyStored) -> e.SessionEvent:
    chosen = " ".join(
        f"{field.name}={getattr(value, 'value', value)}"
        for field in fields(Policy)
        if (value := getattr(record.policy, field.name)) != field.default
    )
    return e.SessionPolicyChanged(record.group_id, chosen)


def suspect(group: SessionGroup, member: SessionMember) -> e.SessionMemberSuspect:
    """The event of a member whose stream has ended."""
    record = member.record
    return e.SessionMemberSuspect(
        record.group_id,
        record.member_id,
        record.name,
        record.client_id,
        record.client_host,
        group.count_held_by(record.member_id),
    )
