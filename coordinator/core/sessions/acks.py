"""Acknowledgements of members: released, ready, refused."""

from __future__ import annotations

from coordinator.core.sessions import stops
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import phases
from coordinator.core.sessions.member import SessionMember
from coordinator.core.sessions.plan import scheduler
from coordinator.core.step import Step
from coordinator.core.values.events import PartitionRefused
from coordinator.core.values.ids import TopicPartition
from coordinator.core.values.records import Phase
from coordinator.core.values.session_messages import AckKind, PartitionAck, SessionAck


def take_in(group: SessionGroup, member: SessionMember, ack: SessionAck, step: Step) -> None:
    """Apply a member's acknowledgement and reconcile its partition."""
    for partition in ack.partitions:
        is_news = {
            AckKind.RELEASED: _released,
            AckKind.READY: _ready,
            AckKind.REFUSED: _refused,
        }[partition.kind](group, member, partition, step.now_ms)
        if is_news:
            phases.reconcile(group, partition.topic_partition, step)
            if partition.kind is AckKind.RELEASED:
                _forget_row(group, partition.topic_partition)
            if partition.kind is AckKind.REFUSED:
                _note_refusals(group, partition.topic_partition, step)
                scheduler.request_plan_now(group, step)


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
