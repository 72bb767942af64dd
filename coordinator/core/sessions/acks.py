"""Acknowledgements of members: released, ready, refused."""

from __future__ import annotations

from coordinator.core.ids import TopicPartition
from coordinator.core.outcome import Outcome
from coordinator.core.session_values.events import PartitionRefused
from coordinator.core.session_values.records import Phase
from coordinator.core.session_values.requests import AckKind, PartitionAck, SessionAck
from coordinator.core.sessions import last_work
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import phases
from coordinator.core.sessions.member import SessionMember
from coordinator.core.sessions.plan import scheduler
from coordinator.core.sessions.step import Step


def take_in(group: SessionGroup, member: SessionMember, ack: SessionAck, step: Step) -> None:
    """Take in what a member has done, and decide what follows."""
    for each in ack.partitions:
        is_news = {
            AckKind.RELEASED: _released,
            AckKind.READY: _ready,
            AckKind.REFUSED: _refused,
        }[each.kind](group, member, each, step.now_ms)
        if is_news:
            phases.reconcile(group, each.place, step)
            if each.kind is AckKind.RELEASED:
                _forget_row(group, each.place)
            if each.kind is AckKind.REFUSED:
                _tell(group, each.place, step.out)
                scheduler.request_plan_now(group, step)


def _released(group: SessionGroup, member: SessionMember, ack: PartitionAck, now_ms: int) -> bool:
    """A fact about a token: it counts whatever hand-off is open."""
    place = ack.place
    if group.holder(place) != member.member_id or group.token(place) != ack.token:
        return False
    if group.partition_state(place).release is not None:
        return False
    last_work.release(group, place, now_ms, ack.position)
    return True


def _ready(group: SessionGroup, member: SessionMember, ack: PartitionAck, now_ms: int) -> bool:
    handoff = group.handoff(ack.place)
    if (
        handoff is None
        or handoff.handoff_id != ack.handoff_id
        or handoff.successor != member.member_id
        or handoff.phase not in (Phase.PREPARE, Phase.COPY)
    ):
        return False
    handoff.is_ready = True
    _forget_row(group, ack.place)
    return True


def _refused(group: SessionGroup, member: SessionMember, ack: PartitionAck, now_ms: int) -> bool:
    """It will not have the partition: not asked again for a while, longer each time."""
    place = ack.place
    if ack.token:
        if not _released(group, member, ack, now_ms):
            return False
    else:
        handoff = group.handoff(place)
        if (
            handoff is None
            or handoff.handoff_id != ack.handoff_id
            or handoff.successor != member.member_id
        ):
            return False
    group.state_to_change(place).note_refused(member.name, now_ms)
    return True


def _forget_row(group: SessionGroup, place: TopicPartition) -> None:
    if group.partition_state(place).refusals is not None:
        group.partition_states[place].end_row_of_refusals()
        group.drop_if_empty(place)


def _tell(group: SessionGroup, place: TopicPartition, out: Outcome) -> None:
    refusals = group.partition_state(place).refusals
    if refusals is not None and not refusals.in_a_row and refusals.back_off is not None:
        # It was the last of a row.
        out.note(PartitionRefused(group.group_id, *place, refusals.back_off.length_ms))
