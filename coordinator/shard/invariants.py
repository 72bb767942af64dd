"""Invariants of a shard, which hold between any two inputs: of its groups, timers and writes."""

from __future__ import annotations

from coordinator.core.classic import invariants as classic
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.machine import GroupMachine
from coordinator.core.sessions import invariants as sessions
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.plan import scheduler
from coordinator.core.values.commands import LeaveOverdue, PhaseOverdue, ReservationOver, WriteRetry
from coordinator.core.values.errors import InvariantViolated
from coordinator.core.values.ids import NO_TIME
from coordinator.shard.operations import GroupTimers
from coordinator.shard.writes import WriteQueue


def check(machine: GroupMachine, timers: GroupTimers, writes: WriteQueue, now_ms: int) -> None:
    """Check all invariants of a shard that serves. Tests call it after every step.

    Raises:
        InvariantViolated: names the invariant that does not hold.
    """
    tokens: set[int] = set()
    for group in machine.groups.values():
        if isinstance(group, ClassicGroup):
            classic.check(group)
            continue
        sessions.check(group, machine.context.config, now_ms)
        _check_timers(group, machine, timers, now_ms)
        _check_ends(group, timers, writes, now_ms)
        _check_writes(group, writes)
        for topic in group.topics.values():
            own = {token for token in topic.tokens if token}
            _expect(group, not own & tokens, "a token is used in two places of the shard")
            _expect(group, max(own, default=0) <= machine.numbers.last_token, "a token to come")
            tokens |= own
    for stream_id, (group_id, member_id) in machine.context.streams.items():
        served = machine.groups.get(group_id)
        holds = isinstance(served, SessionGroup) and any(
            member.stream_id == stream_id and member.member_id == member_id
            for member in (*served.members.values(), *served.waiting.values())
        )
        is_leaving = isinstance(served, SessionGroup) and served.failed_ends
        if not holds and not writes.pending and not is_leaving:  # Its end is being written.
            raise InvariantViolated(f"stream {stream_id} of {member_id!r} is nobody's")


def _check_timers(
    group: SessionGroup, machine: GroupMachine, timers: GroupTimers, now_ms: int
) -> None:
    for member in group.members.values():
        lease = timers.sessions.find(member.member_id)
        needs_none = member.is_ended or member.member_id in group.overdue
        _expect(group, needs_none or lease is not None, "a lease has no timer")
        _expect(
            group,
            lease is None or lease.deadline_ms <= now_ms + 2 * member.lease_ms,
            "the timer of a lease is late",
        )
    due_ms = scheduler.due(group, machine.context.config)
    plan = timers.plans.find(group.group_id)
    if due_ms != NO_TIME:
        _expect(group, plan is not None, "a plan is due, and has no timer")
        _expect(group, plan is not None and plan.deadline_ms <= due_ms, "a plan's timer is late")
    pending = set(timers.pending(group.group_id))
    for partition, handoff in group.open_handoffs():
        overdue = PhaseOverdue(group.group_id, *partition, handoff.handoff_id, handoff.phase.value)
        _expect(
            group,
            handoff.is_overdue
            or overdue in pending
            or group.partition_state(partition).writes_pending > 0,
            f"the phase of {partition} has no timer",
        )


def _check_ends(group: SessionGroup, timers: GroupTimers, writes: WriteQueue, now_ms: int) -> None:
    """Announcements of members end in time, or their end is being written."""
    pending = set(timers.pending(group.group_id))
    if group.refused_writes or group.failed_ends:
        is_armed = WriteRetry(group.group_id) in pending
        _expect(group, is_armed, "what the log has refused is not tried again")
    for name in group.reserved_names:
        is_armed = ReservationOver(group.group_id, name) in pending
        _expect(group, is_armed or writes.pending > 0, "a kept name has no timer")
    for member in group.members.values():
        record = member.record
        if record.leave_ms is not None and not (record.evicted or member.is_ended):
            _expect(
                group,
                LeaveOverdue(group.group_id, member.member_id) in pending
                or member.leaves_at_ms <= now_ms,
                "a leaver's deadline has no timer",
            )


def _check_writes(group: SessionGroup, writes: WriteQueue) -> None:
    if writes.pending:
        return
    _expect(group, not group.written_partitions, "partitions wait for a write that there is not")
    _expect(group, not group.arriving, "an admission waits for a write that there is not")
    _expect(group, not group.overdue, "the log is not asked whether leases may end")
    again = {end.member_id for end in group.failed_ends}
    ended = {member.member_id for member in group.members.values() if member.is_ended} - again
    _expect(group, not ended, f"the end of {ended} is decided, and is not written")


def _expect(group: SessionGroup, condition: bool, message: str) -> None:
    if not condition:
        raise InvariantViolated(f"group {group.group_id!r} in {group.state.value}: {message}")
