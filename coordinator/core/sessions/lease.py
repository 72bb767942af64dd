"""Leases: heartbeats renew them. The coordinator counts from when it processes a heartbeat."""

from __future__ import annotations

from dataclasses import replace

from coordinator.core import log_ends
from coordinator.core.sessions import claims, stops
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import phases
from coordinator.core.sessions.member import SessionMember
from coordinator.core.sessions.plan import scheduler
from coordinator.core.step import Step
from coordinator.core.values.commands import NoFollowUp
from coordinator.core.values.effects import DeferLease
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.ids import NO_TIME, TopicPartition
from coordinator.core.values.plan_journal import TriggerCause
from coordinator.core.values.policy import OnStall
from coordinator.core.values.session_messages import SessionHeartbeat, StreamRefused

ATTACH_MS = 1.5
"""Time of one Attach when all members of a shard come at once: 10,000 need 15 s."""
LEAST_GRACE_MS = 10

UNREAD = StreamRefused(
    ErrorCode.REQUEST_TIMED_OUT, "nothing was read from the stream for as long as the lease"
)


def renew(group: SessionGroup, member: SessionMember, step: Step) -> None:
    """Count a full lease from `now_ms`."""
    member.last_beat_ms = step.now_ms
    member.grace_ms = 0
    member.was_excused = False
    group.overdue.discard(member.member_id)
    step.out.defer(DeferLease(group.group_id, member.member_id, member.ends_at_ms))


def grace_ms(members: int) -> int:
    """Time beyond its lease that each of so many members gets from a new owner of their shard.

    Less than 10 ms is not worth it: no few members need that long to attach.
    """
    needed_ms = int(ATTACH_MS * members)
    return needed_ms if needed_ms >= LEAST_GRACE_MS else 0


def restore(group: SessionGroup, member: SessionMember, grace: int, step: Step) -> None:
    """Grant a full lease, and the time that all members need to attach, from `now_ms`."""
    member.last_beat_ms = member.suspect_since_ms = member.progress_at_ms = step.now_ms
    member.grace_ms = grace
    step.out.defer(DeferLease(group.group_id, member.member_id, member.ends_at_ms))


def beat(
    group: SessionGroup, member: SessionMember, heartbeat: SessionHeartbeat, now_ms: int
) -> bool:
    """Short path of a heartbeat that renews and says nothing else; False: it does more."""
    mailbox = member.mailbox
    gets_on = heartbeat.progress != member.progress
    if (
        heartbeat.number <= member.number
        or heartbeat.held is not None
        or heartbeat.whole
        or heartbeat.log_ends
        or heartbeat.ready is not member.is_ready
        or heartbeat.overloaded is not member.is_overloaded
        or (group.policy.max_idle_ms and not gets_on)
        or member.is_ended
        or member.is_stalled
        or member.notified_lease_ms
        or member.grace_ms
        or group.overdue
        or mailbox.unread_since_ms != NO_TIME
        or 3 * (now_ms - member.last_beat_ms) >= 2 * member.lease_ms
    ):
        return False
    if gets_on:
        member.got_on_after_ms = member.last_beat_ms
        member.progress, member.progress_at_ms = heartbeat.progress, now_ms
    member.number = mailbox.ack = heartbeat.number
    member.last_beat_ms = mailbox.unread_since_ms = now_ms
    member.was_excused = False
    return True


def heartbeat(
    group: SessionGroup, member: SessionMember, beat: SessionHeartbeat, step: Step
) -> None:
    """Renew a lease, and take in what the heartbeat says besides."""
    mailbox = member.mailbox
    if beat.number <= member.number:
        return  # It went back, or came twice.
    member.number = beat.number
    _note_lease_received(group, member, step)
    seen_ms = member.last_beat_ms
    renew(group, member, step)
    if _is_unread(member, step.now_ms):
        _suspect(member, step)
        return
    mailbox.ack = beat.number
    if beat.whole:
        mailbox.whole, mailbox.answers = True, beat.number
    received = member.receives
    member.is_ready, member.is_overloaded = beat.ready, beat.overloaded
    _watch_progress(group, member, beat, seen_ms, step)
    lost: list[TopicPartition] = []
    if beat.held is not None:
        lost = claims.compare(group, member, beat.held, beat.applied, step)
    stops.come_back(group, member, lost, seen_ms, step.now_ms)
    scheduler.journal_returns(group, step)
    if beat.log_ends:
        # Somebody else reads what it does not hold, and knows better.
        own = (end for end in beat.log_ends if group.holder(end[:2]) == member.member_id)
        log_ends.store(group, own, step.now_ms)
    if member.receives and not received:
        group.journal.note(TriggerCause.MEMBER_BACK, member.member_id)
        scheduler.request_plan_for_arrival(group, step)
    step.out.wake(member.stream_id)


def _note_lease_received(group: SessionGroup, member: SessionMember, step: Step) -> None:
    """A heartbeat on its newest stream shows that a member has received a shorter lease."""
    if not member.notified_lease_ms:
        return
    member.shorter_lease_ms, member.notified_lease_ms = member.notified_lease_ms, 0
    member.decided = replace(member.decided, lease_ms=member.shorter_lease_ms)
    step.out.persist((member.decided,), NoFollowUp(group.group_id))


def _is_unread(member: SessionMember, now_ms: int) -> bool:
    """True if the transport could not write to a member for as long as its lease."""
    mailbox = member.mailbox
    if mailbox.unread_since_ms == NO_TIME:
        mailbox.unread_since_ms = now_ms
    return now_ms - mailbox.unread_since_ms >= member.lease_ms


def _suspect(member: SessionMember, step: Step) -> None:
    assert member.stream_id is not None
    step.out.end_stream(member.stream_id, UNREAD)
    member.lose_stream(step.now_ms)


def _watch_progress(
    group: SessionGroup,
    member: SessionMember,
    beat: SessionHeartbeat,
    seen_ms: int,
    step: Step,
) -> None:
    """Note whether the working side of a member gets on, and do what the policy says if not.

    Args:
        seen_ms: when the member was seen before this heartbeat.
    """
    if beat.progress != member.progress or member.progress_at_ms == NO_TIME:
        member.got_on_after_ms = seen_ms
        member.progress, member.progress_at_ms = beat.progress, step.now_ms
        member.is_stalled = member.must_drain = member.must_stop = False
        return
    longest_ms = group.policy.max_idle_ms
    if not longest_ms or member.is_stalled or step.now_ms - member.progress_at_ms < longest_ms:
        return
    member.is_stalled = True
    member.must_drain = group.policy.on_stall is not OnStall.REPORT
    member.must_stop = group.policy.on_stall is OnStall.RELEASE
    if member.must_drain:
        group.journal.note(TriggerCause.MEMBER_STALLED, member.member_id)
        for partition in list(group.partitions_of(member.member_id)):
            phases.reconcile(group, partition, step)
        scheduler.request_plan_now(group, step)
