"""Attach: a process joins a session group, resumes its session, or is refused.

One session for each incarnation of a process: an Attach whose incarnation has a session resumes it,
with or without a session id, since the first answer may have been lost. Admission is durable before
it is answered. Two Attaches of one process, or of one name, are decided one after the other: the
second waits for the record of the first.
"""

from __future__ import annotations

import math

from coordinator.core.sessions import restart_backoff
from coordinator.core.sessions.arrive import admission, resuming
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import phases
from coordinator.core.sessions.leave import ends, name_takeover
from coordinator.core.sessions.member import SessionMember
from coordinator.core.step import Numbers, Step
from coordinator.core.values.commands import AnswerAttach, NoFollowUp
from coordinator.core.values.errors import ErrorCode, Refused, session_refused
from coordinator.core.values.policy import MAX_LEASE_MS
from coordinator.core.values.records import EndCause, SessionMemberStored
from coordinator.core.values.session_messages import Attach


def check(_: None, attach: Attach, step: Step) -> None:
    """Check what does not depend on the group.

    Raises:
        Refused: INVALID_REQUEST.
    """
    if not attach.incarnation:
        raise _invalid("incarnation is empty")
    if not math.isfinite(attach.capacity) or attach.capacity < 0:
        raise _invalid(f"capacity is {attach.capacity}; it may be 0 or more")
    if attach.max_partitions is not None and attach.max_partitions < 0:
        raise _invalid(f"max_partitions is {attach.max_partitions}; it may be 0 or more")
    if attach.drain_ms is not None and attach.drain_ms < 0:
        raise _invalid(f"drain_ms is {attach.drain_ms}; it may be 0 or more")
    names = [name for name, _ in attach.topics]
    counts = [count for _, count in attach.topics]
    if len(set(names)) < len(names) or any(count < 0 for count in counts):
        raise _invalid("each topic once, with 0 partitions or more")
    admission.check_count(sum(counts), step.config)
    if any(partition < 0 for _, partition, _ in attach.held):
        raise _invalid("a held partition is negative")


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, message)


def attach(group: SessionGroup, command: Attach, step: Step) -> None:
    """Admit, resume, or refuse a process.

    Raises:
        Refused: FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID, UNKNOWN_MEMBER_ID,
            GROUP_MAX_SIZE_REACHED, INVALID_REQUEST; COORDINATOR_NOT_AVAILABLE: it came and went too
            often, or the log has refused the end of its name's member.
        MustWait: the end of its name's member, or an Attach of this process or name, or the end of
            the group is being written.
    """
    check(None, command, step)
    if command.incarnation in group.arriving or command.name in group.arriving_names:
        raise admission.must_wait(step.now_ms, step.config)
    known = group.of_incarnation(command.incarnation)
    if known is not None and not command.is_ahead:
        resuming.resume(group, known, command, step)
        return
    if known is not None and known.is_ended:
        raise session_refused()
    restart_backoff.check(group.restart_backoffs, restart_backoff.keys_of(command)[-1], step.now_ms)
    if command.is_ahead:
        _hold_grants_back(group, command, step.numbers)
    old = known or (group.members.get(group.names.get(command.name, "")) if command.name else None)
    if old is not None and old.is_ended:
        if any(end.member_id == old.member_id for end in group.failed_ends):
            # There is no write to wait for: the next is made when the last was refused for a while.
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, retry_after_ms=phases.RETRY_MS)
        raise admission.must_wait(step.now_ms, step.config)
    if old is None and _waits_without_a_member(group, command, step.now_ms):
        _wait_on(group, command, step)
    elif old is None:
        admission.admit_new(group, command, step)
    else:
        _follow(group, old, command, step)


def _follow(group: SessionGroup, old: SessionMember, command: Attach, step: Step) -> None:
    """Start a session that replaces a live one of the same name or process."""
    record = admission.record_of(group, command, step.ids, group.policy)
    if old.record.incarnation == command.incarnation:
        name_takeover.check_stream(old, command)
        _restored(group, old, record, command, step)
        return
    queued = name_takeover.wait(group, old.ends_at_ms, record, command, step)
    message = f"{command.name} is {old.member_id}, which may be alive"
    reply = name_takeover.wait_reply(queued, message, old.ends_at_ms, step.now_ms)
    step.out.reply(command.call_id, reply)


def _hold_grants_back(group: SessionGroup, command: Attach, numbers: Numbers) -> None:
    """Suspend grants until the leases that a restored store has forgotten are over.

    Nobody was renewed by an earlier owner since this one serves. A caller can invent an epoch, so
    the time does not count from its Attach: once it has passed, nothing is held back any more.
    """
    leases = [group.policy.lease_ms, *(member.record.lease_ms for member in group.members.values())]
    if command.wishes is not None and not group.is_policy_stored:
        leases.append(min(command.wishes.lease_ms, MAX_LEASE_MS))
    group.grants_from_ms = max(group.grants_from_ms, numbers.began_at_ms + max(leases))


def _waits_without_a_member(group: SessionGroup, command: Attach, now_ms: int) -> bool:
    """True if the name is free but reserved for a queued process."""
    queued = group.waiting.get(command.name)
    if queued is None:
        return False
    is_same = queued.record.incarnation == command.incarnation
    return is_same or _is_delayed(group, command.name, now_ms)


def _is_delayed(group: SessionGroup, name: str, now_ms: int) -> bool:
    """True while `handover_delay_ms` runs for what is reserved for a name."""
    reserved = group.reserved_for(name)
    return any(group.partition_state(partition).not_before_ms > now_ms for partition in reserved)


def _wait_on(group: SessionGroup, command: Attach, step: Step) -> None:
    until_ms = group.reserved_until_ms.get(command.name, step.now_ms)
    record = admission.record_of(group, command, step.ids, group.policy)
    queued = name_takeover.wait(group, until_ms, record, command, step)
    if not _is_delayed(group, command.name, step.now_ms):
        queued.unanswered = command
        admission.admit_queued(group, queued, step)
        return
    message = f"what {command.name} held may be worked on still"
    step.out.reply(
        command.call_id, name_takeover.wait_reply(queued, message, until_ms, step.now_ms)
    )


def _restored(
    group: SessionGroup,
    old: SessionMember,
    record: SessionMemberStored,
    command: Attach,
    step: Step,
) -> None:
    """End a session that the store has forgotten, and admit its process anew.

    What it held waits for the end of its lease: the process works on until it learns of this.
    The record of the end proves the fence: if another node has the shard, the append is refused.
    """
    ends.end(group, old, EndCause.RESTORED, step, name_takeover.SUPERSEDED)
    if command.name in group.waiting:  # Which has the name from now on.
        step.out.reply(command.call_id, command.refusal(session_refused()))
        return
    group.arrives(command)
    admitted = AnswerAttach(group.group_id, command, record.member_id, is_new=True)
    step.out.persist((record,), NoFollowUp(group.group_id), follow_up=admitted)
