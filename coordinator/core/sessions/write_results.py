"""Results of writes about session groups: durable, or refused by the log.

What the log has refused is decided again a second later, from what is true then.
"""

from __future__ import annotations

from coordinator.core.context import ShardContext
from coordinator.core.errors import ErrorCode, session_refused
from coordinator.core.ids import TopicPartition
from coordinator.core.outcome import DeferKeeping, DeferRetry, Outcome
from coordinator.core.session_values.commands import WriteRetry
from coordinator.core.session_values.journal import TriggerCause
from coordinator.core.session_values.written import (
    PolicyWritten,
    SessionAdmitted,
    SessionEnded,
    SessionWritten,
)
from coordinator.core.sessions import lease, policies
from coordinator.core.sessions.arrive import admission
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import phases
from coordinator.core.sessions.leave import ends, heirs, leaving
from coordinator.core.sessions.plan import windows


def session_written(
    group: SessionGroup, done: SessionWritten, now_ms: int, out: Outcome, context: ShardContext
) -> None:
    """Records about partitions are settled."""
    numbers, config = context.numbers, context.config
    group.note_write_settled(done.places)
    is_refused = done.error is not ErrorCode.NONE
    if done.heir_id:
        group.arriving_names.discard(done.kept_name)
        _inherited(group, done.heir_id, now_ms, out)
    for place in done.places:
        phases.settled(group, place, now_ms, numbers, out, is_refused=is_refused)
    if done.leaver:  # It gets nothing more, and no budget holds back what it hands over.
        phases.reconsider(group, done.leaver, now_ms, numbers, out)
        for place in list(group.places_of(done.leaver)):
            phases.reconcile(group, place, now_ms, numbers, out)
    if is_refused:
        if done.kept_name in group.kept_names:
            out.defer(DeferKeeping(group.group_id, done.kept_name, now_ms + phases.RETRY_MS))
        if done.leaver:
            out.defer(DeferRetry(group.group_id, now_ms + phases.RETRY_MS))
        windows.call(group, now_ms, out, config)
    elif done.kept_name or done.leaver or any(_is_urgent(group, p) for p in done.places):
        windows.call_urgently(group, now_ms, out, config)


def policy_written(
    group: SessionGroup, done: PolicyWritten, now_ms: int, out: Outcome, context: ShardContext
) -> None:
    """The record of a policy is settled: what is open may follow another rule from now on."""
    policies.note_written(group, done, out)
    group.journal.note(TriggerCause.POLICY_CHANGED)
    for place, _ in list(group.open_handoffs()):
        phases.reconcile(group, place, now_ms, context.numbers, out)
    windows.arm(group, out, context.config)


def write_again(
    group: SessionGroup, command: WriteRetry, now_ms: int, out: Outcome, context: ShardContext
) -> None:
    """Decide again what the log has refused."""
    phases.retry(group, now_ms, context.numbers, out)
    failed, group.failed_ends = group.failed_ends, []
    for end in failed:
        member = group.members[end.member_id]
        ends.write_end(group, member, end, now_ms, context.numbers, out)
    for member in list(group.members.values()):
        leaving.announce_again(group, member, now_ms, out)


def session_admitted(
    group: SessionGroup, done: SessionAdmitted, now_ms: int, out: Outcome, context: ShardContext
) -> None:
    """The record of a member that attaches is settled."""
    written = SessionWritten(group.group_id, done.places, error=done.error)
    session_written(group, written, now_ms, out, context)
    admission.admitted(group, done, now_ms, out, context.config)
    if not done.is_new:  # It may declare less than it is to get.
        phases.reconsider(group, done.member_id, now_ms, context.numbers, out)


def admitted_too_late(done: SessionAdmitted, out: Outcome) -> None:
    """Refuse a process that was admitted to a group which is gone, or of the other kind."""
    error = done.error or ErrorCode.UNKNOWN_MEMBER_ID
    out.reply(done.command.call_id, done.command.refusal(session_refused(error)))


def session_ended(
    group: SessionGroup, done: SessionEnded, now_ms: int, out: Outcome, context: ShardContext
) -> None:
    """The record that ends a session is settled."""
    numbers, config = context.numbers, context.config
    group.note_write_settled(done.places)
    if ends.is_taken_back(done):
        has_stream = group.members[done.member_id].stream_id in context.streams
        ends.take_back(group, done, now_ms, out, has_stream=has_stream)
        for place in done.places:
            phases.settled(group, place, now_ms, numbers, out, is_refused=False)
        windows.call(group, now_ms, out, config)
        return
    if done.error is not ErrorCode.NONE:
        group.failed_ends.append(done)
        out.defer(DeferRetry(group.group_id, now_ms + phases.RETRY_MS))
        # Its hand-offs may have gone on by writes of their own, and those of others to its heir
        # were not looked at meanwhile.
        for place in done.places:
            if group.holder(place) != done.member_id:
                phases.settled(group, place, now_ms, numbers, out, is_refused=False)
        return
    if done.stream_id in context.streams and done.last is not None:
        out.end_stream(done.stream_id, done.last)
    for place in done.places:
        phases.settled(group, place, now_ms, numbers, out, is_refused=False)
    phases.reconsider(group, done.member_id, now_ms, numbers, out)
    if done.heir_id:
        _inherited(group, done.heir_id, now_ms, out)
    if done.kept_name in group.kept_names:
        leaving.keep(group, done.kept_name, now_ms, out)
    if group.members:
        is_free = any(not group.holder(place) for place in done.places)
        call = windows.call_urgently if is_free else windows.call
        call(group, now_ms, out, config)


def _inherited(group: SessionGroup, heir_id: str, now_ms: int, out: Outcome) -> None:
    """A process that waited is a member: its lease runs, and it is told so."""
    heir = heirs.inherit(group, heir_id, now_ms)
    if heir is None:
        return
    lease.renew(group, heir, now_ms, out)
    asked, heir.unanswered = heir.unanswered, None
    if asked is not None and heir.stream_id is not None:
        out.reply(asked.call_id, admission.answer(group, heir, asked, now_ms))
    out.wake(heir.stream_id)


def _is_urgent(group: SessionGroup, place: TopicPartition) -> bool:
    """True if a partition is free, or belongs to a member that leaves."""
    holder = group.holder(place)
    return holder in group.leavers or (not holder and group.handoff(place) is None)
