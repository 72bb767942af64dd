"""Purgatories of a shard's groups: join phases, sync phases and sessions."""

from __future__ import annotations

from coordinator.core.outcome import (
    Defer,
    DeferHeartbeat,
    DeferInitialJoin,
    DeferJoin,
    DeferSync,
    JoinKey,
    MemberKey,
    SyncKey,
    WatchKey,
)
from coordinator.shard.operations import (
    DelayedHeartbeat,
    DelayedJoin,
    DelayedSync,
    InitialDelayedJoin,
    OperationContext,
)
from coordinator.shard.waits import Waits
from timer.purgatory import Purgatory
from timer.timer import Timer


class GroupTimers:
    """A purgatory for each kind of operation.

    Args:
        join_waits, sync_waits: count how long phases last.
    """

    def __init__(
        self, timer: Timer, context: OperationContext, *, join_waits: Waits, sync_waits: Waits
    ) -> None:
        self.joins: Purgatory[str] = Purgatory(timer)
        self.syncs: Purgatory[str] = Purgatory(timer)
        # Keyed by member id alone, which is unique: the fastest look-up for a heartbeat.
        self.sessions: Purgatory[str] = Purgatory(timer)
        self._timer = timer
        self._context = context
        self._join_waits = join_waits
        self._sync_waits = sync_waits

    def defer(self, defer: Defer) -> None:
        """Arm an operation. A member has one session: its deadline is moved."""
        match defer:
            case DeferHeartbeat():
                self._defer_heartbeat(defer)
            case DeferJoin():
                join = DelayedJoin(defer, self._context, self._join_waits)
                self.joins.try_complete_else_watch(join, (defer.group_id,), defer.deadline_ms)
            case DeferInitialJoin():
                delay = InitialDelayedJoin(defer, self._context)
                self.joins.try_complete_else_watch(delay, (defer.group_id,), defer.deadline_ms)
            case DeferSync():
                sync = DelayedSync(defer, self._context, self._sync_waits)
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

    def _defer_heartbeat(self, defer: DeferHeartbeat) -> None:
        member_id = defer.member_id
        operation = self.sessions.find(member_id)
        if operation is None:
            operation = DelayedHeartbeat(defer.group_id, member_id, self._context)
            self.sessions.try_complete_else_watch(operation, (member_id,), defer.deadline_ms)
        else:
            self._timer.rearm(operation, defer.deadline_ms)
