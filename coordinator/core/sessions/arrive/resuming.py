"""Resuming a session on another stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from coordinator.core.sessions import claims, restart_backoff, stops
from coordinator.core.sessions.arrive import admission
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import phases
from coordinator.core.sessions.leave import name_takeover
from coordinator.core.sessions.member import SessionMember
from coordinator.core.sessions.plan import scheduler
from coordinator.core.step import Step
from coordinator.core.values.commands import AnswerAttach, NoFollowUp
from coordinator.core.values.errors import ErrorCode, Refused, session_refused
from coordinator.core.values.ids import NO_TIME, TopicPartition
from coordinator.core.values.plan_journal import TriggerCause
from coordinator.core.values.records import PartitionsGranted, Record
from coordinator.core.values.session_messages import Attach

SessionCall = Callable[[SessionGroup, Step], None]
"""Calls for a plan."""


def resume(group: SessionGroup, member: SessionMember, command: Attach, step: Step) -> None:
    """Resume a session on another stream.

    Raises:
        Refused: FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID, INVALID_REQUEST; COORDINATOR_NOT_AVAILABLE:
            it came and went too often.
        MustWait: a record about what it has lost is being written.
    """
    if command.principal != member.record.principal:
        raise Refused(ErrorCode.FENCED_INSTANCE_ID, "the session belongs to another caller")
    if member.is_ended:
        raise session_refused()
    name_takeover.check_stream(member, command)
    restart_backoff.check(
        group.restart_backoffs, restart_backoff.keys_of(member.record)[0], step.now_ms
    )
    if command.topics != member.record.topics:
        admission.check_count(group.declarations.total_with(command.topics), step.config)
    claimed = {(topic, partition): token for topic, partition, token in command.held}
    missing = claims.unclaimed(group, member, claimed)
    if any(group.partition_state(topic_partition).writes_pending for topic_partition in missing):
        raise admission.must_wait(step.now_ms, step.config)
    records = _changed(group, member, command)
    grants, again = claims.granted_anew(group, member, missing, step.now_ms, step.numbers)
    stops.come_back(group, member, again, _last_seen_ms(member, command, step.now_ms), step.now_ms)
    if grants:
        records.append(PartitionsGranted(group.group_id, grants))
    call = _call_of(group, member, command, again)
    if member.is_suspect and (call is not None or grants):
        group.journal.note(TriggerCause.MEMBER_BACK, member.member_id)
    admission.take_stream(group, member, command, step)
    member.is_ready = command.ready
    if not records:
        step.out.reply(command.call_id, admission.answer(group, member, command, step.now_ms))
    else:
        group.note_write_pending(again, member.member_id)
        done = AnswerAttach(group.group_id, command, member.member_id, tuple(again))
        step.out.persist(records, NoFollowUp(group.group_id), follow_up=done)
    for topic_partition in missing:
        if group.partition_state(topic_partition).release is not None:
            phases.reconcile(group, topic_partition, step)
    if call is not None:
        call(group, step)


def _last_seen_ms(member: SessionMember, command: Attach, now_ms: int) -> int:
    """Time at which a member was last seen, by this owner of the shard or by its own word."""
    if member.stream_number >= 0:
        return member.last_beat_ms
    return now_ms - command.silent_ms if command.silent_ms else NO_TIME


def _changed(group: SessionGroup, member: SessionMember, command: Attach) -> list[Record]:
    """The new record of a returning member; empty if it says nothing new about itself.

    A longer lease is durable before it is sent. A shorter one is sent at once, and durable when the
    member is known to have received it.
    """
    before, lease_ms = member.decided, group.policy.lease_ms
    changed = replace(
        before,
        lease_ms=max(member.record.lease_ms, before.lease_ms, lease_ms),
        client_id=command.client_id,
        client_host=command.client_host,
        topics=command.topics,
        capacity=command.capacity,
        max_partitions=command.max_partitions,
        drain_ms=command.drain_ms,
        rack=command.rack,
        revision=command.revision,
        deployment=command.deployment,
    )
    member.notified_lease_ms = lease_ms if lease_ms < changed.lease_ms else 0
    member.shorter_lease_ms = 0
    if changed == before:
        return []
    member.decided = changed
    return [changed]


def _call_of(
    group: SessionGroup, member: SessionMember, command: Attach, again: list[TopicPartition]
) -> SessionCall | None:
    """The plan request that a member's return needs; None: none."""
    record = member.record
    receives = command.ready and not member.is_ready
    if receives or command.capacity > record.capacity:
        return scheduler.request_plan_for_arrival
    missed = member.is_suspect and group.planning.planned_at_ms >= member.suspect_since_ms
    is_other = (record.topics, record.capacity, record.max_partitions) != (
        command.topics,
        command.capacity,
        command.max_partitions,
    )
    is_due = group.planning.requested_at_ms != NO_TIME
    if (
        missed
        or is_other
        or is_due
        or any(group.handoff(partition) is not None for partition in again)
    ):
        return scheduler.request_plan
    return None
