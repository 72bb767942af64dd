"""The delayed operations of a shard's groups: ends of join and sync phases, and of sessions."""

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
        self.joins: Purgatory[JoinKey] = Purgatory(timer)
        self.syncs: Purgatory[SyncKey] = Purgatory(timer)
        # By member id, which no other member has: with it alone a heartbeat is looked up fastest.
        self.sessions: Purgatory[str] = Purgatory(timer)
        self._timer = timer
        self._context = context
        self._join_waits = join_waits
        self._sync_waits = sync_waits

    def defer(self, defer: Defer) -> None:
        """Arm an operation; a member's session is moved if it has one."""
        match defer:
            case DeferHeartbeat():
                self._defer_heartbeat(defer)
            case DeferJoin():
                self.joins.try_complete_else_watch(
                    DelayedJoin(defer, self._context, self._join_waits),
                    (JoinKey(defer.group_id),),
                    defer.deadline_ms,
                )
            case DeferInitialJoin():
                self.joins.try_complete_else_watch(
                    InitialDelayedJoin(defer, self._context),
                    (JoinKey(defer.group_id),),
                    defer.deadline_ms,
                )
            case DeferSync():
                self.syncs.try_complete_else_watch(
                    DelayedSync(defer, self._context, self._sync_waits),
                    (SyncKey(defer.group_id),),
                    defer.deadline_ms,
                )

    def check(self, key: WatchKey) -> None:
        """Ask the operations that are watched under a key again."""
        match key:
            case JoinKey():
                self.joins.check_and_complete(key)
            case SyncKey():
                self.syncs.check_and_complete(key)
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
