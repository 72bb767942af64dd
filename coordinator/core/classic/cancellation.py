"""A client that has gone takes its parked call along.

Source: ours. Kafka answers into the void and waits for the session to end.
"""

from __future__ import annotations

from coordinator.core.classic import rebalance
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.member import Member
from coordinator.core.classic.membership import evict, reset_session
from coordinator.core.commands import CallCancelled
from coordinator.core.events import EvictionCause, RebalanceCause
from coordinator.core.outcome import Outcome


def cancel_call(
    group: ClassicGroup, member: Member, command: CallCancelled, now_ms: int, out: Outcome
) -> None:
    """Take a parked call back.

    A member that never was in a generation goes with its call. One that was stays,
    with a deadline: a fresh one if the old one was spent while it was parked.
    """
    if member.parked_sync == command.call_id:
        group.unpark_sync(member)
        reset_session(group, member, now_ms, out)
        return
    group.unpark_join(member)
    if member.is_new:
        evict(group, member, EvictionCause.CALL_CANCELLED, out)
        rebalance.request(group, RebalanceCause.CALL_CANCELLED, now_ms, out, member=member)
    elif member.last_heard_ms + member.session_timeout_ms <= now_ms:
        reset_session(group, member, now_ms, out)
