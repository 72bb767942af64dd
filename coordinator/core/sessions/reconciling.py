"""Consequences that every command about a session group has.

After every command but a heartbeat that changes nothing, members are notified of what has changed,
hand-offs are opened for which there is room again, and the sessions end of leavers that have handed
everything over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator.core.sessions import lease, orders, pruning
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.leave import leaving
from coordinator.core.sessions.plan import scheduler
from coordinator.core.step import Step
from coordinator.core.values.session_messages import SessionHeartbeat

# Any: one command of session groups.
SessionHandler = Callable[[SessionGroup, Any, Step], None]


def handle(handler: SessionHandler, group: SessionGroup, command: Any, step: Step) -> None:
    """Handle one command, reconcile its group, and note streams that open and end."""
    out, called_ms = step.out, group.planning.requested_at_ms
    opened, ended = len(out.opened), len(out.ended)
    handler(group, command, step)
    is_heartbeat = type(command) is SessionHeartbeat
    if not is_heartbeat or out.writes or group.planning.requested_at_ms != called_ms:
        reconcile(group, step)
    for stream_id, group_id, member_id in out.opened[opened:]:
        step.streams[stream_id] = group_id, member_id
    for stream_id, _ in out.ended[ended:]:
        step.streams.pop(stream_id, None)


def reconcile(group: SessionGroup, step: Step) -> None:
    """Carry out the consequences of a change: notify members, open hand-offs, end leavers."""
    for member_id in group.newcomers:
        if member_id in group.members:
            # The lease runs from now, even if the member has not been notified.
            lease.renew(group, group.members[member_id], step)
    group.newcomers.clear()
    for member_id, partitions in group.changed_since_sent.items():
        member = group.members.get(member_id)
        if member is not None and partitions:
            member.mailbox.dirty |= partitions
            step.out.wake(member.stream_id)
    group.changed_since_sent.clear()
    group.choices = 0
    scheduler.journal_returns(group, step)
    scheduler.open_next(group, step)
    orders.notify_waiting(group, step)
    for member_id in list(group.leavers):
        member = group.members.get(member_id)
        if member is not None and leaving.has_drained(group, member):
            leaving.finish(group, member, step)
    if group.declarations.shrunk and not group.written_partitions and not group.arriving:
        pruning.give_back(group)
    if not group.members:
        scheduler.forget(group)
    state = group.current_state()
    if state is not group.state:
        group.state, group.state_changed_at_ms = state, step.now_ms
