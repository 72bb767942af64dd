"""Acknowledgements of members: released, ready, refused."""

from __future__ import annotations

from coordinator.core.config import GroupConfig
from coordinator.core.ids import Place
from coordinator.core.numbers import Numbers
from coordinator.core.outcome import Outcome
from coordinator.core.session_values.events import PartitionRefused
from coordinator.core.session_values.records import Phase
from coordinator.core.session_values.requests import AckKind, PartitionAck, SessionAck
from coordinator.core.sessions import handoff as handoffs
from coordinator.core.sessions import last_work, windows
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.member import SessionMember

BACK_OFF_MS, MAX_BACK_OFF_MS = 10_000, 600_000
REFUSALS_IN_A_ROW = 3


def take_in(
    group: SessionGroup,
    member: SessionMember,
    ack: SessionAck,
    now_ms: int,
    numbers: Numbers,
    out: Outcome,
    config: GroupConfig,
) -> None:
    """Take in what a member has done, and decide what follows."""
    for each in ack.partitions:
        is_news = {
            AckKind.RELEASED: _released,
            AckKind.READY: _ready,
            AckKind.REFUSED: _refused,
        }[each.kind](group, member, each, now_ms)
        if is_news:
            handoffs.reconcile(group, each.place, now_ms, numbers, out)
            if each.kind is AckKind.RELEASED:
                group.refusals.pop(each.place, None)
            if each.kind is AckKind.REFUSED:
                _tell(group, each.place, out)
                windows.call_urgently(group, now_ms, out, config)


def _released(group: SessionGroup, member: SessionMember, ack: PartitionAck, now_ms: int) -> bool:
    """A fact about a token: it counts whatever hand-off is open."""
    place = ack.place
    if group.holder(place) != member.member_id or group.token(place) != ack.token:
        return False
    if place in group.released:
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
    group.refusals.pop(ack.place, None)
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
    _, length_ms = group.back_offs.get((place, member.name), (0, BACK_OFF_MS // 2))
    length_ms = min(2 * length_ms, MAX_BACK_OFF_MS)
    group.back_offs[(place, member.name)] = now_ms + length_ms, length_ms
    _count(group, place, now_ms)
    return True


def _tell(group: SessionGroup, place: Place, out: Outcome) -> None:
    if group.refusals[place] == 0:  # It was the last of a row.
        _, wait_ms = group.backed_off[place]
        out.note(PartitionRefused(group.group_id, *place, wait_ms))


def _count(group: SessionGroup, place: Place, now_ms: int) -> None:
    group.refusals[place] = group.refusals.get(place, 0) + 1
    if group.refusals[place] >= REFUSALS_IN_A_ROW:
        _, length_ms = group.backed_off.get(place, (0, BACK_OFF_MS // 2))
        length_ms = min(2 * length_ms, MAX_BACK_OFF_MS)
        group.backed_off[place] = now_ms + length_ms, length_ms
        group.refusals[place] = 0
