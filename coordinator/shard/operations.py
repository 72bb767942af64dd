"""The delayed operations of a shard's groups: join phases, sync phases and sessions.

Operations change nothing themselves. Each asks the core whether its condition is true, and posts
a command when it completes; the same step handles that command before the next input, so nothing
is re-entered. Those that wait for the log or for entries are in `writes` and `replication`.

Source: Kafka `DelayedJoin`, `InitialDelayedJoin`, `DelayedSync`, `DelayedHeartbeat`.
"""

from __future__ import annotations

from collections.abc import Callable

from coordinator.core.classic import rebalance
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.group import GroupState
from coordinator.core.machine import GroupMachine
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.values.commands import (
    Command,
    CompleteJoinPhase,
    InitialDelayElapsed,
    LeaseExpired,
    LeaveOverdue,
    PhaseOverdue,
    PlanDue,
    ReservationOver,
    SessionExpired,
    SyncPhaseExpired,
    WriteRetry,
)
from coordinator.core.values.effects import (
    Defer,
    DeferHeartbeat,
    DeferInitialJoin,
    DeferJoin,
    DeferLease,
    DeferLeave,
    DeferPhase,
    DeferPlan,
    DeferReservation,
    DeferRetry,
    DeferSync,
    JoinKey,
    MemberKey,
    SyncKey,
    WatchKey,
)
from coordinator.shard.waits import Wait, Waits
from timer.operation import DelayedOperation
from timer.purgatory import Purgatory
from timer.timer import Timer


class _DelayedPhaseEnd(Wait):
    __slots__ = ("_defer", "_timers")

    def __init__(self, defer: DeferJoin | DeferSync, timers: GroupTimers, waits: Waits) -> None:
        super().__init__(waits)
        self._defer = defer
        self._timers = timers


class DelayedJoin(_DelayedPhaseEnd):
    """End of an ordinary join phase: all members have joined, or its time-out."""

    __slots__ = ()

    def try_complete(self) -> bool:
        group = self._timers.machine.groups.get(self._defer.group_id)
        if (
            not isinstance(group, ClassicGroup)
            or group.state is not GroupState.PREPARING_REBALANCE
            or group.generation != self._defer.generation
            or rebalance.join_phase_is_complete(group)
        ):
            return self.force_complete()
        return False

    def on_complete(self) -> None:
        self._timers.post(CompleteJoinPhase(self._defer.group_id, self._defer.generation))


class InitialDelayedJoin(DelayedOperation):
    """End of a slice of the initial delay: by time only, so its wait is not counted."""

    __slots__ = ("_defer", "_timers")

    def __init__(self, defer: DeferInitialJoin, timers: GroupTimers) -> None:
        super().__init__()
        self._defer = defer
        self._timers = timers

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        defer = self._defer
        self._timers.post(
            InitialDelayElapsed(
                defer.group_id, defer.generation, defer.delay_ms, defer.remaining_ms
            )
        )


class DelayedSync(_DelayedPhaseEnd):
    """End of a sync phase: silent if all have synced; on expiry the other members are removed."""

    __slots__ = ()

    def try_complete(self) -> bool:
        group = self._timers.machine.groups.get(self._defer.group_id)
        if not isinstance(group, ClassicGroup) or rebalance.sync_phase_is_complete(
            group, self._defer.generation
        ):
            return self.force_complete()
        return False

    def on_complete(self) -> None:
        pass  # All members have synced: nothing follows.

    def on_expiration(self) -> None:
        super().on_expiration()
        self._timers.post(SyncPhaseExpired(self._defer.group_id, self._defer.generation))


class DelayedHeartbeat(DelayedOperation):
    """Session deadline of a member; heartbeats move it.

    Moving it to a later time is the hot path: the timer only stores the new deadline. There is one
    for every member, so it has few fields.
    """

    __slots__ = ("_group_id", "_member_id", "_timers")

    def __init__(self, group_id: str, member_id: str, timers: GroupTimers) -> None:
        super().__init__()
        self._group_id = group_id
        self._member_id = member_id
        self._timers = timers

    def try_complete(self) -> bool:
        """Checked when a member may have left; heartbeats move the deadline instead."""
        group = self._timers.machine.groups.get(self._group_id)
        member_id = self._member_id
        if not isinstance(group, ClassicGroup) or not (
            member_id in group.members or member_id in group.pending_member_ids
        ):
            return self.force_complete()
        return False

    def on_complete(self) -> None:
        pass  # The member has left: nothing follows.

    def on_expiration(self) -> None:
        self._timers.post(SessionExpired(self._group_id, self._member_id, self.deadline_ms))


class DelayedLease(DelayedOperation):
    """End of a session member's lease; heartbeats move it, as those of classic members do."""

    __slots__ = ("_group_id", "_member_id", "_timers")

    def __init__(self, defer: DeferLease, timers: GroupTimers) -> None:
        super().__init__()
        self._group_id = defer.group_id
        self._member_id = defer.member_id
        self._timers = timers

    def try_complete(self) -> bool:
        group = self._timers.machine.groups.get(self._group_id)
        if not isinstance(group, SessionGroup) or group.is_gone(self._member_id):
            return self.force_complete()
        return False

    def on_complete(self) -> None:
        pass  # The session has ended: nothing follows.

    def on_expiration(self) -> None:
        self._timers.post(LeaseExpired(self._group_id, self._member_id, self.deadline_ms))


class DelayedCommand(DelayedOperation):
    """A command with a deadline: end of a phase, next plan, end of a reservation.

    The rule that gets it looks whether it still has something to do.
    """

    __slots__ = ("_timers", "command")

    def __init__(self, command: Command, timers: GroupTimers) -> None:
        super().__init__()
        self.command = command
        self._timers = timers

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        self._timers.post(self.command)


class GroupTimers:
    """A purgatory for each kind of operation.

    Args:
        machine: the groups that operations ask about.
        post: puts a command on the shard's inner queue.
        join_waits, sync_waits: count how long phases last.
    """

    def __init__(
        self,
        timer: Timer,
        machine: GroupMachine,
        post: Callable[[Command], None],
        *,
        join_waits: Waits,
        sync_waits: Waits,
    ) -> None:
        self.machine = machine
        self.post = post
        self.joins: Purgatory[str] = Purgatory(timer)
        self.syncs: Purgatory[str] = Purgatory(timer)
        # Keyed by member id alone, which is unique: the fastest look-up for a heartbeat.
        self.sessions: Purgatory[str] = Purgatory(timer)
        self.handoffs: Purgatory[str] = Purgatory(timer)
        self.plans: Purgatory[str] = Purgatory(timer)
        self._timer = timer
        self._join_waits = join_waits
        self._sync_waits = sync_waits

    def defer(self, defer: Defer) -> None:
        """Arm an operation. A member has one session: its deadline is moved."""
        match defer:
            case DeferHeartbeat():
                self._defer_heartbeat(defer)
            case DeferJoin():
                join = DelayedJoin(defer, self, self._join_waits)
                self.joins.try_complete_else_watch(join, (defer.group_id,), defer.deadline_ms)
            case DeferInitialJoin():
                delay = InitialDelayedJoin(defer, self)
                self.joins.try_complete_else_watch(delay, (defer.group_id,), defer.deadline_ms)
            case DeferLease():
                self._defer_lease(defer)
            case DeferPlan():
                self._defer_plan(defer)
            case DeferPhase():
                overdue = PhaseOverdue(
                    defer.group_id, defer.topic, defer.partition, defer.handoff_id, defer.phase
                )
                self._defer_command(overdue, defer.deadline_ms)
            case DeferReservation():
                self._defer_command(ReservationOver(defer.group_id, defer.name), defer.deadline_ms)
            case DeferRetry():
                self._defer_command(WriteRetry(defer.group_id), defer.deadline_ms)
            case DeferLeave():
                self._defer_command(
                    LeaveOverdue(defer.group_id, defer.member_id), defer.deadline_ms
                )
            case DeferSync():
                sync = DelayedSync(defer, self, self._sync_waits)
                self.syncs.try_complete_else_watch(sync, (defer.group_id,), defer.deadline_ms)

    def check(self, key: WatchKey) -> None:
        """Try to complete the operations watched under `key`."""
        match key:
            case JoinKey():
                self.joins.check_and_complete(key.group_id)
            case SyncKey():
                self.syncs.check_and_complete(key.group_id)
            case MemberKey():
                self.sessions.check_and_complete(key.member_id)

    def pending(self, group_id: str) -> list[Command]:
        """Pending commands of a session group, without plans and leases."""
        operations = self.handoffs.waiting(group_id)
        return [
            operation.command for operation in operations if isinstance(operation, DelayedCommand)
        ]

    def _defer_heartbeat(self, defer: DeferHeartbeat) -> None:
        member_id = defer.member_id
        operation = self.sessions.find(member_id)
        if operation is None:
            operation = DelayedHeartbeat(defer.group_id, member_id, self)
            self.sessions.try_complete_else_watch(operation, (member_id,), defer.deadline_ms)
        else:
            self._timer.rearm(operation, defer.deadline_ms)

    def _defer_lease(self, defer: DeferLease) -> None:
        operation = self.sessions.find(defer.member_id)
        if operation is None:
            operation = DelayedLease(defer, self)
            self.sessions.try_complete_else_watch(operation, (defer.member_id,), defer.deadline_ms)
        else:
            self._timer.rearm(operation, defer.deadline_ms)

    def _defer_plan(self, defer: DeferPlan) -> None:
        operation = self.plans.find(defer.group_id)
        if operation is None:
            operation = DelayedCommand(PlanDue(defer.group_id), self)
            self.plans.try_complete_else_watch(operation, (defer.group_id,), defer.deadline_ms)
        else:
            self._timer.rearm(operation, defer.deadline_ms)

    def _defer_command(
        self, command: PhaseOverdue | ReservationOver | LeaveOverdue | WriteRetry, deadline_ms: int
    ) -> None:
        operation = DelayedCommand(command, self)
        self.handoffs.try_complete_else_watch(operation, (command.group_id,), deadline_ms)
