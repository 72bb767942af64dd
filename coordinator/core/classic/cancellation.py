"""Cancellation of parked calls whose client has disconnected.

Source: ours. Kafka keeps such calls and waits for the session to expire.
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
    """Remove a parked call without an answer.

    A new member is evicted. A member of a generation stays, with a new session deadline if the old
    one has passed while its call was parked.
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
