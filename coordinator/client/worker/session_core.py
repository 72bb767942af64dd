"""Decisions of a worker in a session group, beside those of `core.py`.

| here | because |
|---|---|
| a stop drains by order, partition by partition | the next holder may have to prepare first |
| after half of the time it hands over by itself | nobody may ask, with the coordinator away |
| a lost holding is given back too, once nothing of it runs | the coordinator waits for that |
| a partition is prepared before it is held | modes warm and copy |
| nothing begins in doubt, nothing stalls while suspended | the lease says until when |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from coordinator.assignors import TopicPartition
from coordinator.client.member.ledger import Holding
from coordinator.client.worker.actions import ERROR, Ready
from coordinator.client.worker.core import WorkerCore
from coordinator.client.worker.handlers import Handlers
from coordinator.client.worker.policy import Limits
from coordinator.client.worker.scope import Run, RunKind, Scope, Stage, named

LEAVE_EARLY_MS = 1_000
"""Time before the end of a stop at which the worker leaves by itself."""
WARMING_ENDS = "it is only being prepared, and belongs to another member still"


class SessionCore(WorkerCore):
    """Scopes of a worker in a session group.

    Args:
        may_begin: True if new work of a holding may be begun now, by its lease.
    """

    def __init__(
        self, handlers: Handlers, limits: Limits, may_begin: Callable[[Holding], bool]
    ) -> None:
        super().__init__(handlers, limits)
        self._may_begin = may_begin
        self._owed: dict[Scope, str] = {}
        """Scopes that have ended, and are given back when nothing of them runs; why refused."""

    # --- The member ---

    def assigned(self, key: TopicPartition, holding: Holding, now_ms: int) -> None:
        """A holding begins; what has been prepared for it counts."""
        prepared = self.warming.pop(key, None)
        if prepared is not None:
            self._leave_over(prepared, now_ms)
        super().assigned(key, holding, now_ms)
        scope = self.scopes.get(key)
        if prepared is not None and scope is not None:
            scope.is_warm = prepared.is_warm

    def warm(
        self, key: TopicPartition, handoff_id: int, offset: int, position: int, now_ms: int
    ) -> None:
        """A partition will be this process's: prepare it.

        Args:
            offset: committed; -1: none. position: where its holder has stopped; -1: unknown.
        """
        self.drop(key, now_ms)
        holding = Holding(key, -1)
        scope = Scope(key, 0, self._handlers.of(key.topic), holding, now_ms)
        scope.handoff_id = handoff_id
        scope.stored, scope.committed = offset, max(offset, position)
        scope.ends_ms, scope.ended_because = 0, WARMING_ENDS
        scope.enter(Stage.WARMING, now_ms)
        self.warming[key] = scope
        if self.stopping_because is not None:
            self._refuse_warming(scope, "the worker stops", now_ms)
        elif self._call_hook(scope, RunKind.WARM, now_ms) is None:
            scope.is_warm = True
            self._actions.append(Ready(scope))

    def drop(self, key: TopicPartition, now_ms: int) -> None:
        """A partition that is being prepared will not be this process's."""
        scope = self.warming.pop(key, None)
        if scope is not None:
            self._leave_over(scope, now_ms)
            for run in [run for run in self.left_over if run.scope is scope]:
                self._cancel(run, now_ms)

    def suspended(self, key: TopicPartition) -> None:
        """The lease of a holding is over, until it is confirmed."""
        scope = self.scopes.get(key)
        if scope is not None:
            scope.is_suspended = True

    def resumed(self, key: TopicPartition, now_ms: int) -> None:
        """A holding goes on. The time meanwhile counts for no stall."""
        scope = self.scopes.get(key)
        if scope is None:
            return
        scope.is_suspended = False
        scope.progress_ms = now_ms
        for run in scope.runs:
            if run.kind is RunKind.HANDLER:
                self._watch(run, now_ms)

    def lost(self, keys: Iterable[TopicPartition], reason: str, now_ms: int) -> None:
        """Holdings have ended: given back when nothing of them runs any more."""
        scopes = [self.scopes[key] for key in keys if key in self.scopes]
        super().lost([scope.key for scope in scopes], reason, now_ms)
        for scope in scopes:
            self._give_back(scope)

    # --- The owner ---

    def hand_over(self, now_ms: int) -> None:
        """Give everything back by itself: nobody will ask for it."""
        self.revoking(list(self.scopes), self._stop_until_ms, now_ms)

    def _stop_scopes(self, until_ms: int, now_ms: int) -> None:
        for scope in list(self.warming.values()):
            self._refuse_warming(scope, "the worker stops", now_ms)
        half_ms = now_ms + (until_ms - now_ms) // 2
        self._at(half_ms, self.hand_over)
        self._stop_until_ms = max(half_ms, until_ms - LEAVE_EARLY_MS)
        self._at(self._stop_until_ms, self._end_of_grace)

    # --- Inside ---

    def may_begin(self, scope: Scope) -> bool:
        """True if the lease is not in doubt, and the partition not paused. From any thread."""
        return self._may_begin(scope.holding)

    def _give_back_if_ended(self, scope: Scope, now_ms: int) -> None:
        if scope.runs:
            return
        self._end(scope, "it was given back", now_ms)
        self._give_back(scope)
        self._leave_if_ended(now_ms)

    def _nobody_else_takes(self, scope: Scope, now_ms: int) -> bool:
        """False: a release costs nobody else anything, and the coordinator finds out by it."""
        return False

    def _give_back(self, scope: Scope, refused: str = "") -> None:
        """Give a scope back once nothing of it runs, or is waited for."""
        self._owed[scope] = refused
        self._settle(scope)

    def _settle(self, scope: Scope) -> None:
        runs = (run for run in self.left_over if run.scope is scope)
        if scope in self._owed and all(run.is_overdue or run.kind is RunKind.LOST for run in runs):
            super()._give_back(scope, self._owed.pop(scope))

    def _run_is_over(self, run: Run, error: BaseException | None) -> None:
        self._settle(run.scope)
        if run.kind is RunKind.WARM and not run.scope.token and not run.is_cancelled:
            # It was granted before the hook had ended.
            successor = self.scopes.get(run.scope.key)
            if successor is not None and error is None:
                successor.is_warm = True

    def ended(self, run: Run, error: BaseException | None, now_ms: int) -> None:
        """A run has ended; of a warm hook, the partition is ready, or refused."""
        scope = run.scope
        is_warming = self.warming.get(scope.key) is scope and not run.has_ended
        if not is_warming:
            super().ended(run, error, now_ms)
            return
        run.has_ended = True
        scope.runs.remove(run)
        if error is None:
            scope.is_warm = True
            self._actions.append(Ready(scope))
        else:
            self._say(ERROR, f"the warm hook failed for {named(scope.key)}", error)
            self._refuse_warming(scope, f"{type(error).__name__}: {error}", now_ms)

    def _leave_over(self, scope: Scope, now_ms: int) -> None:
        """Runs of a scope that is prepared no more block the holding of its partition."""
        self.left_over += scope.runs
        scope.runs = []
        scope.enter(Stage.ENDED, now_ms)

    def _refuse_warming(self, scope: Scope, reason: str, now_ms: int) -> None:
        self.drop(scope.key, now_ms)
        self._actions.append(Ready(scope, reason))
