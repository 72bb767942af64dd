"""Heartbeats, session time-outs, and calls whose client has disconnected.

A member has one deadline. It moves with every heartbeat and when a parked call is answered. It
does not move when a JoinGroup arrives: a deadline that passes while the member waits in JoinGroup
or SyncGroup has no effect, and the answer arms a new one. So every path that answers a parked call
and keeps the member has to call `reset_session`.

Pauses of the node itself extend sessions by their length (`core/pauses.py`).

Source: KIP-62; Kafka `GroupCoordinator.completeAndScheduleNextHeartbeatExpiration`,
`MemberMetadata.hasSatisfiedHeartbeat`.
"""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.core.classic import rebalance
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.member import SILENCE_MIN_MS, ClassicMember
from coordinator.core.classic.membership import (
    check_generation,
    evict,
    identify,
    note_seen,
    reset_session,
)
from coordinator.core.group import GroupState
from coordinator.core.pauses import Pause, paused_since
from coordinator.core.step import Step
from coordinator.core.values.commands import CallCancelled, SessionExpired
from coordinator.core.values.effects import DeferHeartbeat, JoinKey
from coordinator.core.values.errors import ErrorCode, advice
from coordinator.core.values.events import EvictionCause, RebalanceCause, RebalanceNotified
from coordinator.core.values.ids import NO_TIME
from coordinator.core.values.replies import HeartbeatReply
from coordinator.core.values.requests import Heartbeat

_ALIVE = HeartbeatReply()
_REBALANCE = HeartbeatReply(
    ErrorCode.REBALANCE_IN_PROGRESS, advice(ErrorCode.REBALANCE_IN_PROGRESS)
)


def heartbeat(group: ClassicGroup, command: Heartbeat, step: Step) -> None:
    """Extend the session, and answer whether a rebalance is in progress.

    Raises:
        Refused: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
            COORDINATOR_NOT_AVAILABLE.
    """
    group.check_alive()
    member = identify(group, command.member_id, command.instance_id)
    check_generation(group, command.generation)
    note_seen(group, member, step, beats=True)
    member.beat(step.now_ms)
    reset_session(group, member, step)
    preparing = group.state is GroupState.PREPARING_REBALANCE
    if preparing:
        step.out.note(RebalanceNotified(group.group_id, member.member_id))
    step.out.reply(command.call_id, _REBALANCE if preparing else _ALIVE)


def beat(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int, now_ms: int
) -> int:
    """Fast path of `heartbeat` for a Stable group, without a command or a reply.

    Returns:
        The new deadline, epoch milliseconds; `NO_TIME`, without any change, if the answer is not
        plain success and `heartbeat` has to give it.
    """
    member = group.members.get(member_id)
    if (
        member is None
        or group.state is not GroupState.STABLE
        or group.generation != generation
        or member.last_beat_ms == NO_TIME
        or (instance_id is not None and group.static_members.get(instance_id) != member_id)
        or member.unseen_signs
    ):
        return NO_TIME
    last_ms, before_ms = member.last_beat_ms, member.beat_before_ms
    if now_ms - last_ms >= SILENCE_MIN_MS + last_ms - before_ms and before_ms != NO_TIME:
        return NO_TIME  # It may have been silent, of which `heartbeat` emits an event.
    member.beat_before_ms = last_ms
    member.last_beat_ms = now_ms
    return now_ms + member.session_timeout_ms


def is_alive(member: ClassicMember, deadline_ms: int, pauses: Sequence[Pause] = ()) -> bool:
    """True if a member stays although its deadline has passed."""
    if member.parked_join is not None:
        return not member.is_new
    if member.parked_sync is not None:
        return True
    return _session_end_ms(member, pauses) > deadline_ms


def expire_session(group: ClassicGroup, command: SessionExpired, step: Step) -> None:
    """Handle a passed deadline: drop a pending id, evict a silent member, or arm it again."""
    member_id = command.member_id
    if member_id in group.pending_member_ids:
        group.pending_member_ids.pop(member_id, None)
        step.out.check(JoinKey(group.group_id))
        return
    member = group.members.get(member_id)
    if member is None:
        return
    if is_alive(member, command.deadline_ms, step.pauses):
        if member.parked_join is None and member.parked_sync is None:
            # It was seen since the deadline was set, or the node paused: arm a later one.
            deadline_ms = _session_end_ms(member, step.pauses)
            step.out.defer(DeferHeartbeat(group.group_id, member_id, deadline_ms))
        return
    new = member.is_new and member.parked_join is not None
    cause = EvictionCause.NEW_MEMBER_TIMED_OUT if new else EvictionCause.SESSION_EXPIRED
    evict(group, member, cause, step)
    rebalance.request(group, RebalanceCause.SESSION_EXPIRED, step, member=member)


def cancel_call(
    group: ClassicGroup, member: ClassicMember, command: CallCancelled, step: Step
) -> None:
    """Remove a parked call whose client has disconnected, without an answer.

    A new member is evicted. A member of a generation stays, with a new session deadline if the old
    one has passed while its call was parked.

    Source: ours. Kafka keeps such calls and waits for the session to expire.
    """
    if member.parked_sync == command.call_id:
        group.unpark_sync(member)
        reset_session(group, member, step)
        return
    group.unpark_join(member)
    if member.is_new:
        evict(group, member, EvictionCause.CALL_CANCELLED, step)
        rebalance.request(group, RebalanceCause.CALL_CANCELLED, step, member=member)
    elif member.session_began_ms + member.session_timeout_ms <= step.now_ms:
        reset_session(group, member, step)


def _session_end_ms(member: ClassicMember, pauses: Sequence[Pause]) -> int:
    paused_ms = paused_since(pauses, member.session_began_ms)
    return member.session_began_ms + member.session_timeout_ms + paused_ms
