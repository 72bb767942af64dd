"""Processes that wait for a name: a new incarnation of a member that may still be alive.

One waits for a name, the one started last. It inherits what the old one holds, under new tokens and
without a move, when the old one has ended: by its own word, or with its lease.
"""

from __future__ import annotations

from dataclasses import replace

from coordinator.core.sessions import restart_backoff, stops
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import phases
from coordinator.core.sessions.handoff.phases import DRAINING
from coordinator.core.sessions.holdings import grants_of
from coordinator.core.sessions.member import SessionMember
from coordinator.core.step import Numbers, Step
from coordinator.core.values.errors import ErrorCode, Refused
from coordinator.core.values.ids import TopicPartition
from coordinator.core.values.records import (
    PartitionsGranted,
    Phase,
    PhaseEntered,
    Record,
    SessionMemberStored,
)
from coordinator.core.values.session_messages import (
    Attach,
    AttachReply,
    GoAway,
    GoAwayReason,
    Orders,
    Standing,
)

SUPERSEDED = GoAway(GoAwayReason.SUPERSEDED)
"""The end of a stream whose member has a newer one, or whose name another process has."""


def wait(
    group: SessionGroup, until_ms: int, record: SessionMemberStored, command: Attach, step: Step
) -> SessionMember:
    """Queue a process for a name, or move a queued one to a new stream.

    Raises:
        Refused: UNRELEASED_INSTANCE_ID: a process that was started later waits already;
            FENCED_INSTANCE_ID: an old stream.
    """
    queued = group.waiting.get(command.name)
    left_ms = max(0, until_ms - step.now_ms)
    if queued is not None and queued.record.incarnation == command.incarnation:
        check_stream(queued, command)
    elif queued is not None and queued.record.started_at_ms > command.started_at_ms:
        raise Refused(ErrorCode.UNRELEASED_INSTANCE_ID, retry_after_ms=max(1, left_ms))
    if queued is not None and queued.stream_id is not None:
        step.out.end_stream(queued.stream_id, SUPERSEDED)
        restart_backoff.note(group.restart_backoffs, queued, step)
    if queued is None or queued.record.incarnation != command.incarnation:
        queued = group.waiting[command.name] = SessionMember(record)
    else:  # It may declare something else now.
        known = queued.record
        record = replace(record, member_id=known.member_id, session_id=known.session_id)
        queued.record = queued.decided = record
    queued.stream_id, queued.stream_number = command.call_id, command.stream_number
    queued.stream_since_ms = queued.last_beat_ms = step.now_ms
    queued.is_ready = command.ready
    step.out.open_stream(command.call_id, group.group_id, queued.member_id)
    return queued


def check_stream(member: SessionMember, command: Attach) -> None:
    """Refuse an old stream, a clone, and another caller.

    Raises:
        Refused: FENCED_INSTANCE_ID.
    """
    if command.principal != member.record.principal:
        raise Refused(ErrorCode.FENCED_INSTANCE_ID, "the session belongs to another caller")
    if command.stream_number <= member.stream_number:
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"stream {command.stream_number} is not above the session's newest, "
            f"{member.stream_number}",
        )


def wait_reply(queued: SessionMember, message: str, until_ms: int, now_ms: int) -> AttachReply:
    """The reply to a queued process."""
    queued.mailbox.version += 1
    return AttachReply(
        standing=Standing.WAITING,
        message=message,
        session_id=queued.record.session_id,
        member_id=queued.member_id,
        lease_ms=queued.record.lease_ms,
        retry_after_ms=max(0, until_ms - now_ms),
        orders=Orders(queued.mailbox.version, -1, (), why="another process has the name"),
    )


def queued_and_alive(
    group: SessionGroup, member: SessionMember, now_ms: int
) -> SessionMember | None:
    """The process queued for a member's name, if its own lease has not expired."""
    queued = group.waiting.get(member.record.name)
    if queued is None or queued.stream_id is None or queued.ends_at_ms <= now_ms:
        return None
    return queued


def is_forgotten(group: SessionGroup, queued: SessionMember) -> bool:
    """True if the name that a process waits for has nobody: it was not seen when the member of
    that name ended, and is seen again."""
    name = queued.record.name
    has_owner = name in group.names or name in group.reserved_names or name in group.arriving_names
    return not has_owner and group.waiting.get(name) is queued


def records(
    group: SessionGroup, member: SessionMember, queued: SessionMember, now_ms: int, numbers: Numbers
) -> tuple[list[Record], list[TopicPartition]]:
    """Admission of the queued process, and what it inherits; with the partitions concerned.

    It gets what is held or in PREPARE; what is being drained goes to its successor. What the old
    one was to get is ordered anew.
    """
    mine = [
        partition
        for partition in group.partitions_of(member.member_id)
        if not _goes_on(group, partition)
    ]
    records: list[Record] = [queued.record]
    if mine:
        grants = grants_of(queued.member_id, mine, numbers.next_tokens, member.member_id)
        stops.resume(group, queued.member_id, mine, now_ms)
        records.append(PartitionsGranted(group.group_id, grants))
    for partition, handoff in group.open_handoffs():
        if handoff.successor != member.member_id or group.partition_state(partition).writes_pending:
            continue
        is_new = handoff.phase in (Phase.PREPARE, Phase.COPY)
        mine.append(partition)
        records.append(
            PhaseEntered(
                group.group_id,
                *partition,
                handoff.phase,
                numbers.next_handoff() if is_new else handoff.handoff_id,
                queued.member_id,
                phases.remaining_ms(handoff, now_ms) if is_new else handoff.length_ms,
                handoff.position,
                group.token(partition),
                handoff.line,
            )
        )
    return records, mine


def _goes_on(group: SessionGroup, partition: TopicPartition) -> bool:
    handoff = group.handoff(partition)
    is_drained = handoff is not None and handoff.phase in DRAINING
    return is_drained or group.partition_state(partition).release is not None


def inherit(group: SessionGroup, queued_id: str, now_ms: int) -> SessionMember | None:
    """The records are durable: make the queued process the member of its name."""
    member = group.members.get(queued_id)
    if member is None:
        return None
    queued = group.waiting.get(member.record.name)
    if queued is None or queued.member_id != queued_id:
        return member  # Its stream has ended meanwhile.
    del group.waiting[member.record.name]
    queued.record = queued.decided = member.record
    queued.declaration = member.declaration
    queued.forced = member.forced
    queued.progress_at_ms = now_ms
    group.members[queued_id] = queued
    queued.mailbox.attached = queued.mailbox.whole = queued.unanswered is None
    return queued
