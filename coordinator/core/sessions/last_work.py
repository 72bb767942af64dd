"""Times between which holders stopped to work on their partitions.

The table is in `session_values.journal`. A stop is noted when the end of a token is decided, and
forgotten with the next grant of the partition. Stops are soft state: a fail-over forgets them.

Source: ours; the same question as in `core.classic.last_work`.
"""

from __future__ import annotations

from dataclasses import replace

from coordinator.core.ids import NO_OFFSET, NO_TIME, Place
from coordinator.core.session_values.journal import Stop, StoppedBy
from coordinator.core.session_values.records import EndCause
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.holdings import Rest
from coordinator.core.sessions.member import SessionMember

DRAIN_MAX_MS = 60_000
"""Age of a commit above which its partition is taken to have had no rows since, not no holder."""
SILENT = (EndCause.LEASE_EXPIRED, EndCause.EVICTED, EndCause.RESTORED)
"""Ends of members that did not say when they stopped."""


def release(group: SessionGroup, place: Place, now_ms: int, position: int = NO_OFFSET) -> None:
    """Note that a holder has given a partition up: its token counts no more."""
    group.released[place] = group.token(place)
    if position != NO_OFFSET:
        group.positions[place] = position
    _note(group, place, Stop(StoppedBy.RELEASED, _told_ms(group, place, now_ms), now_ms))


def stop_by_force(group: SessionGroup, place: Place, now_ms: int) -> Stop:
    """The stop of a holder whose time is up now."""
    stop = Stop(StoppedBy.FORCED, _told_ms(group, place, now_ms), now_ms)
    return _until_its_commit(group, place, stop)


def force(group: SessionGroup, place: Place, stop: Stop) -> None:
    """Note that a holder's time is up: its token counts no more."""
    group.released[place] = group.token(place)
    _rest(group, place, stop)


def end(group: SessionGroup, member: SessionMember, cause: EndCause, now_ms: int) -> None:
    """Note that a member's session has ended, with all of its tokens."""
    held = [place for place in group.places_of(member.member_id) if place not in group.released]
    if cause in SILENT:
        stop = _silence(member, now_ms)
        for place in held:
            _note(group, place, stop)
        return
    stop = Stop(StoppedBy.LEFT, now_ms, now_ms)
    # A worker that drains ends its partitions one after the other, each with a commit, and leaves
    # after the last. A member that commits all of them at once works until it leaves.
    newest_ms = max((_committed_ms(group, place) for place in held), default=NO_TIME)
    for place in held:
        committed_ms = _committed_ms(group, place)
        is_drained = now_ms - DRAIN_MAX_MS <= committed_ms < newest_ms
        own = replace(stop, earliest_ms=committed_ms) if is_drained else stop
        _rest(group, place, own)


def _silence(member: SessionMember, now_ms: int) -> Stop:
    latest_ms = min(now_ms, member.last_beat_ms + member.lease_ms // 4)
    if member.stream_number < 0:  # It has not attached to this owner of the shard.
        return Stop(StoppedBy.NOT_HEARD, NO_TIME, latest_ms)
    return Stop(StoppedBy.LAST_HEARD, member.last_beat_ms, latest_ms)


def _told_ms(group: SessionGroup, place: Place, now_ms: int) -> int:
    """Time at which a holder was told to stop; without an order, when it was last heard before."""
    handoff = group.handoff(place)
    if handoff is not None:
        line = handoff.line
        ordered = [at_ms for at_ms in (line.drain_at_ms, line.forced_at_ms) if at_ms != NO_TIME]
        if ordered:
            return min(ordered)
    holder = group.members.get(group.holder(place))
    return now_ms if holder is None else min(now_ms, holder.last_beat_ms)


def _note(group: SessionGroup, place: Place, stop: Stop) -> None:
    _rest(group, place, _until_its_commit(group, place, stop))


def _rest(group: SessionGroup, place: Place, stop: Stop) -> None:
    holder = group.members[group.holder(place)]
    group.rests[place] = Rest(holder.member_id, holder.name, stop)


def _until_its_commit(group: SessionGroup, place: Place, stop: Stop) -> Stop:
    """A commit after the earliest time shows that its holder still worked."""
    committed_ms = _committed_ms(group, place)
    if committed_ms <= stop.earliest_ms:
        return stop
    return replace(stop, earliest_ms=min(committed_ms, stop.latest_ms))


def _committed_ms(group: SessionGroup, place: Place) -> int:
    stored = group.offsets.get(place)
    return NO_TIME if stored is None else stored.committed_at_ms
