"""Streams of members: who uses one, its messages in, and its pending messages out.

Messages on another stream than the newest of a member are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.core.group import Group
from coordinator.core.sessions import lease, orders, record_events, restart_backoff, stops
from coordinator.core.sessions.arrive import admission
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import phases
from coordinator.core.sessions.leave import ends, leaving, name_takeover
from coordinator.core.sessions.member import SessionMember
from coordinator.core.sessions.plan import scheduler
from coordinator.core.step import Step
from coordinator.core.values.events import PartitionRefused
from coordinator.core.values.ids import CallId, TopicPartition
from coordinator.core.values.records import Phase
from coordinator.core.values.session_messages import (
    AckKind,
    PartitionAck,
    SessionAck,
    SessionHeartbeat,
    SessionLeave,
    StreamEnded,
    ToMember,
)

Streams = Mapping[CallId, tuple[str, str]]
"""Group and member of each open stream."""


def take(
    streams: Streams, groups: Mapping[str, Group], stream_id: CallId, now_ms: int
) -> ToMember | None:
    """Take the pending message of a stream; None: nothing is pending."""
    group = groups.get(streams.get(stream_id, ("", ""))[0])
    if not isinstance(group, SessionGroup):
        return None
    member = _member(group, stream_id, streams)
    return None if member is None else orders.take(group, member, now_ms)


def beat(
    streams: Streams, groups: Mapping[str, Group], heartbeat: SessionHeartbeat, now_ms: int
) -> SessionMember | None:
    """Fast path of a heartbeat: returns the renewed member; None: nothing was done."""
    group_id, member_id = streams.get(heartbeat.stream_id, ("", ""))
    group = groups.get(group_id)
    if not isinstance(group, SessionGroup):
        return None
    member = group.members.get(member_id)
    if member is None or member.stream_id != heartbeat.stream_id:
        return None
    return member if lease.beat(group, member, heartbeat, now_ms) else None


def heartbeat(group: SessionGroup, command: SessionHeartbeat, step: Step) -> None:
    """Renew the lease of a member; a process that waits for a name has none, and is answered."""
    member = _speaker(group, command.stream_id, step, step.streams)
    if member is not None and member.member_id not in group.members:
        member.mailbox.ack = command.number
        if command.whole:
            member.mailbox.whole, member.mailbox.answers = True, command.number
        member.last_beat_ms = step.now_ms
        step.out.wake(member.stream_id)
        if name_takeover.is_forgotten(group, member):
            admission.admit_queued(group, member, step)
    elif member is not None:
        lease.heartbeat(group, member, command, step)


def ack(group: SessionGroup, command: SessionAck, step: Step) -> None:
    """Apply what a member acknowledges, and reconcile its partitions."""
    member = _speaker(group, command.stream_id, step, step.streams)
    if member is None:
        return
    for partition in command.partitions:
        if not _ACKS[partition.kind](group, member, partition, step.now_ms):
            continue
        phases.reconcile(group, partition.topic_partition, step)
        if partition.kind is AckKind.RELEASED:
            _forget_row(group, partition.topic_partition)
        if partition.kind is AckKind.REFUSED:
            _note_refusals(group, partition.topic_partition, step)
            scheduler.request_plan_now(group, step)


def leave_group(group: SessionGroup, command: SessionLeave, step: Step) -> None:
    """A member leaves, or a queued process gives up."""
    member = _speaker(group, command.stream_id, step, step.streams)
    if member is None:
        return
    if member.member_id in group.members:
        leaving.take_in(group, member, command, step)
    elif member.unanswered is None:  # It waits for a name, and has nothing.
        del group.waiting[member.record.name]
        step.out.end_stream(command.stream_id, leaving.LEFT)


def stream_ended(group: SessionGroup, command: StreamEnded, step: Step) -> None:
    """A member's newest stream has ended: it is suspect; a queued process is dropped."""
    member = _member(group, command.stream_id, step.streams)
    step.streams.pop(command.stream_id, None)
    if member is None:
        for incarnation, attach in group.arriving.items():
            if attach is not None and attach.call_id == command.stream_id:
                group.arriving[incarnation] = None
        return
    member.lose_stream(step.now_ms)
    restart_backoff.note(group.restart_backoffs, member, step)
    if member.member_id in group.members:
        step.out.note(record_events.suspect(group, member))
    old = group.members.get(group.names.get(member.record.name, ""))
    if group.waiting.get(member.record.name) is member and not (old and old.is_ended):
        del group.waiting[member.record.name]


def _member(group: SessionGroup, stream_id: CallId, streams: Streams) -> SessionMember | None:
    """The member whose newest stream this is."""
    _, member_id = streams.get(stream_id, ("", ""))
    member = group.members.get(member_id) or group.waiting_as(member_id)
    return member if member is not None and member.stream_id == stream_id else None


def _speaker(
    group: SessionGroup, stream_id: CallId, step: Step, streams: Streams
) -> SessionMember | None:
    """The member whose newest stream this is, unless the end of its session is decided."""
    member = _member(group, stream_id, streams)
    if member is None or not member.is_ended:
        return member
    if not member.goes_away:
        step.out.end_stream(stream_id, ends.GONE)  # Whether or not its record is durable.
    return None


# --- Acknowledgements: each returns whether it changes anything ---


def _released(group: SessionGroup, member: SessionMember, ack: PartitionAck, now_ms: int) -> bool:
    """A release ends its token, whichever hand-off is open."""
    partition = ack.topic_partition
    if group.holder(partition) != member.member_id or group.token(partition) != ack.token:
        return False
    if group.partition_state(partition).release is not None:
        return False
    stops.release(group, partition, now_ms, ack.position)
    return True


def _ready(group: SessionGroup, member: SessionMember, ack: PartitionAck, now_ms: int) -> bool:
    handoff = group.handoff(ack.topic_partition)
    if (
        handoff is None
        or handoff.handoff_id != ack.handoff_id
        or handoff.successor != member.member_id
        or handoff.phase not in (Phase.PREPARE, Phase.COPY)
    ):
        return False
    handoff.is_ready = True
    _forget_row(group, ack.topic_partition)
    return True


def _refused(group: SessionGroup, member: SessionMember, ack: PartitionAck, now_ms: int) -> bool:
    """The successor refused the partition: it is not asked again until a growing back-off ends."""
    partition = ack.topic_partition
    if ack.token:
        if not _released(group, member, ack, now_ms):
            return False
    else:
        handoff = group.handoff(partition)
        if (
            handoff is None
            or handoff.handoff_id != ack.handoff_id
            or handoff.successor != member.member_id
        ):
            return False
    group.state_to_change(partition).note_refused(member.name, now_ms)
    return True


def _forget_row(group: SessionGroup, partition: TopicPartition) -> None:
    if group.partition_state(partition).refusals is not None:
        group.partition_states[partition].end_row_of_refusals()
        group.drop_if_empty(partition)


def _note_refusals(group: SessionGroup, partition: TopicPartition, step: Step) -> None:
    refusals = group.partition_state(partition).refusals
    if refusals is not None and not refusals.in_a_row and refusals.back_off is not None:
        # It was the last of a row.
        step.out.note(PartitionRefused(group.group_id, *partition, refusals.back_off.length_ms))


_ACKS = {AckKind.RELEASED: _released, AckKind.READY: _ready, AckKind.REFUSED: _refused}
