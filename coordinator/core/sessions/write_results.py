"""Results of writes about session groups: durable, or refused by the log.

What the log has refused is decided again a second later, from what is true then.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.core.group import Group
from coordinator.core.sessions import lease, policies
from coordinator.core.sessions.arrive import admission
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import phases
from coordinator.core.sessions.leave import ends, leaving, name_takeover
from coordinator.core.sessions.plan import scheduler
from coordinator.core.step import Step
from coordinator.core.values.commands import (
    AnswerAttach,
    ApplyPolicy,
    CloseSession,
    ReviewPartitions,
    WriteRetry,
)
from coordinator.core.values.effects import DeferReservation, DeferRetry
from coordinator.core.values.errors import ErrorCode, session_refused
from coordinator.core.values.ids import TopicPartition
from coordinator.core.values.plan_journal import TriggerCause


def review_partitions(group: SessionGroup, done: ReviewPartitions, step: Step) -> None:
    """Decide anew about partitions whose write is resolved, and plan if one is free."""
    group.note_write_resolved(done.partitions)
    is_refused = done.error is not ErrorCode.NONE
    if done.queued_id:
        group.arriving_names.discard(done.reserved_name)
        _inherited(group, done.queued_id, step)
    for partition in done.partitions:
        phases.write_resolved(group, partition, step, is_refused=is_refused)
    if done.leaver:  # It gets nothing more, and no budget holds back what it hands over.
        phases.reconsider(group, done.leaver, step)
        for partition in list(group.partitions_of(done.leaver)):
            phases.reconcile(group, partition, step)
    if is_refused:
        if done.reserved_name in group.reserved_names:
            step.out.defer(
                DeferReservation(group.group_id, done.reserved_name, step.now_ms + phases.RETRY_MS)
            )
        if done.leaver:
            step.out.defer(DeferRetry(group.group_id, step.now_ms + phases.RETRY_MS))
        scheduler.request_plan(group, step)
    elif done.reserved_name or done.leaver or _is_urgent(group, done.partitions):
        scheduler.request_plan_now(group, step)


def apply_policy(group: SessionGroup, done: ApplyPolicy, step: Step) -> None:
    """Reconcile what is open under a policy whose write is resolved."""
    policies.note_written(group, done, step)
    group.journal.note(TriggerCause.POLICY_CHANGED)
    for partition, _ in list(group.open_handoffs()):
        phases.reconcile(group, partition, step)
    scheduler.arm(group, step)


def write_again(group: SessionGroup, command: WriteRetry, step: Step) -> None:
    """Retry decisions whose records the log refused."""
    phases.retry(group, step)
    failed, group.failed_ends = group.failed_ends, []
    for end in failed:
        member = group.members[end.member_id]
        ends.write_end(group, member, end, step)
    for member in list(group.members.values()):
        leaving.announce_again(group, member, step)


def answer_attach(group: SessionGroup, done: AnswerAttach, step: Step) -> None:
    """Answer an Attach whose admission is resolved, and decide about what it reserved."""
    written = ReviewPartitions(group.group_id, done.partitions, error=done.error)
    review_partitions(group, written, step)
    admission.admitted(group, done, step)
    if not done.is_new:  # It may declare less than it is to get.
        phases.reconsider(group, done.member_id, step)


def refuse_attach(_: Group | None, done: AnswerAttach, step: Step) -> None:
    """Refuse a process that was admitted to a group which is gone, or of the other kind."""
    error = done.error or ErrorCode.UNKNOWN_MEMBER_ID
    step.out.reply(done.command.call_id, done.command.refusal(session_refused(error)))


def close_session(group: SessionGroup, done: CloseSession, step: Step) -> None:
    """Free what an ended session held, or decide its end again if the log has refused it."""
    group.note_write_resolved(done.partitions)
    if ends.is_taken_back(done):
        has_stream = group.members[done.member_id].stream_id in step.streams
        ends.take_back(group, done, step, has_stream=has_stream)
        for partition in done.partitions:
            phases.write_resolved(group, partition, step, is_refused=False)
        scheduler.request_plan(group, step)
        return
    if done.error is not ErrorCode.NONE:
        group.failed_ends.append(done)
        step.out.defer(DeferRetry(group.group_id, step.now_ms + phases.RETRY_MS))
        # Its hand-offs may have gone on by writes of their own, and those of others to its heir
        # were not looked at meanwhile.
        for partition in done.partitions:
            if group.holder(partition) != done.member_id:
                phases.write_resolved(group, partition, step, is_refused=False)
        return
    if done.stream_id in step.streams and done.last is not None:
        step.out.end_stream(done.stream_id, done.last)
    for partition in done.partitions:
        phases.write_resolved(group, partition, step, is_refused=False)
    phases.reconsider(group, done.member_id, step)
    if done.queued_id:
        _inherited(group, done.queued_id, step)
    if done.reserved_name in group.reserved_names:
        leaving.keep(group, done.reserved_name, step)
    if group.members:
        is_free = any(not group.holder(partition) for partition in done.partitions)
        call = scheduler.request_plan_now if is_free else scheduler.request_plan
        call(group, step)


def _inherited(group: SessionGroup, queued_id: str, step: Step) -> None:
    """A queued process became a member: start its lease and notify it."""
    queued = name_takeover.inherit(group, queued_id, step.now_ms)
    if queued is None:
        return
    lease.renew(group, queued, step)
    asked, queued.unanswered = queued.unanswered, None
    if asked is not None and queued.stream_id is not None:
        step.out.reply(asked.call_id, admission.answer(group, queued, asked, step.now_ms))
    step.out.wake(queued.stream_id)


def _is_urgent(group: SessionGroup, partitions: Iterable[TopicPartition]) -> bool:
    """True if a partition is free, or belongs to a member that leaves."""
    for partition in partitions:
        holder = group.holder(partition)
        if holder in group.leavers or (not holder and group.handoff(partition) is None):
            return True
    return False
