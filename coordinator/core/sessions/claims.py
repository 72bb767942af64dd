"""Claims of a returning member, compared with its holdings.

Nobody can tell a grant that never arrived from one that was given up: what a member holds and does
not claim is granted anew, under a new token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coordinator.core.ids import Place
from coordinator.core.outcome import Outcome
from coordinator.core.session_values.records import Grant, PartitionsGranted
from coordinator.core.session_values.written import SessionWritten
from coordinator.core.sessions import handoff as handoffs
from coordinator.core.sessions import last_work
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.holdings import grants_of
from coordinator.core.sessions.member import SessionMember
from coordinator.core.sessions.numbers import Numbers
from coordinator.core.written import Unawaited

Claims = Iterable[tuple[str, int, int]]
"""Topic, partition, token."""


def compare(
    group: SessionGroup,
    member: SessionMember,
    held: Claims,
    applied: int,
    now_ms: int,
    numbers: Numbers,
    out: Outcome,
) -> None:
    """Compare the held set of a heartbeat, with grants that the member has taken in already."""
    claimed = {(topic, partition): token for topic, partition, token in held if partition >= 0}
    mailbox = member.mailbox
    mailbox.note_applied(applied)
    # It cannot claim a grant that it has not seen yet.
    missing = [place for place in unclaimed(group, member, claimed) if mailbox.has_seen(place)]
    for place, token in claimed.items():
        is_told = mailbox.has_seen(place)
        if is_told and (group.holder(place) != member.member_id or group.token(place) != token):
            mailbox.dirty.add(place)  # It is told LOST, or the token that counts.
    grants, places = granted_anew(group, member, missing, now_ms, numbers)
    if grants:
        group.fly(places, member.member_id)
        record = PartitionsGranted(group.group_id, grants)
        written = SessionWritten(group.group_id, tuple(places))
        out.persist((record,), Unawaited(group.group_id), settled=written)
    for place in missing:
        if place in group.released:
            handoffs.reconcile(group, place, now_ms, numbers, out)


def unclaimed(
    group: SessionGroup, member: SessionMember, claimed: Mapping[Place, int]
) -> list[Place]:
    """Partitions that a member holds and does not claim, and has not released."""
    return sorted(
        place
        for place in group.places_of(member.member_id)
        if place not in claimed and place not in group.released
    )


def granted_anew(
    group: SessionGroup,
    member: SessionMember,
    missing: Iterable[Place],
    now_ms: int,
    numbers: Numbers,
) -> tuple[tuple[Grant, ...], list[Place]]:
    """Grant what a member holds and does not claim; what it was draining counts as released."""
    places: list[Place] = []
    for place in missing:
        handoff = group.handoff(place)
        is_drained = handoff is not None and handoff.phase in handoffs.DRAINING
        if is_drained or place in group.in_flight:
            last_work.release(group, place, now_ms)
        else:
            places.append(place)
            group.released[place] = group.token(place)  # No commit under it counts any more.
    member_id = member.member_id
    return grants_of(member_id, places, numbers.next_tokens, member_id), places
