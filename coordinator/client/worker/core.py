"""All decisions of a worker, without I/O or a clock.

The executor (`worker_run.py`) reports what happens and carries out `next_action` until there is
none, then asks again at `next_deadline`.

    member ──► hear(event), draining ────────► ┌──────┐ ──► Locate, Start, NotifyRevoking, CancelRun
    handlers ► ended, committed, alive, done ► │ core │ ──► GiveBack, Ready, Drain, Leave, Say
    owner ───► stop ─────────────────────────► └──────┘ ──► next_deadline, scopes, errors

Of one partition at most one handler runs, whichever holding it belongs to: a run that was told to
end and does not is left over, and blocks the next holding of its partition. A holding is given back
once nothing of it runs or is waited for, a lost one too: its member knows whether the group waits
for that.

Both kinds of groups are served alike. Events are sent only for what the group supports: nothing is
prepared or suspended in a classic group, and no stop is carried out by its orders. Where the same
input needs another decision, the member is asked (`MemberAnswers`).
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from coordinator.assignors import TopicPartition
from coordinator.assignors.partitions import spelled
from coordinator.client.member.events import (
    Granted,
    Lost,
    MemberEvent,
    Resumed,
    Revoking,
    Stopping,
    Suspended,
    Warming,
)
from coordinator.client.member.ledger import FOREVER_MS, Holding
from coordinator.client.worker import actions
from coordinator.client.worker.actions import ERROR, INFO, WARNING, WorkerAction
from coordinator.client.worker.errors import HandlerStalled, HandlerStillRuns, WrongHandler
from coordinator.client.worker.handlers import Handlers, RunKind, TopicHandler
from coordinator.client.worker.policy import Limits, OnError
from coordinator.client.worker.scope import Run, Scope, Stage

ENDING_MS = 1_000
"""Time that a run has to end once it was told to, before it is named in a warning."""
UNWANTED_PAUSES = 10
"""How long this member avoids a partition that it released, in back-offs: 10 s, then longer, up to
10 min, as in session groups."""
STARVING_MS = 30_000
"""Time that a partition waits for a slot before the worker warns of starvation."""
LEAVE_EARLY_MS = 1_000
"""Time before the end of a stop by orders at which the worker leaves by itself."""
WARMING_ENDS = "it is only being prepared, and belongs to another member still"


class MemberAnswers(Protocol):
    """Questions to the member on which decisions depend. Asked from any thread."""

    @property
    def releases_cost_nothing(self) -> bool:
        """True if nobody else is rebalanced when a partition is given back."""

    def may_begin(self, holding: Holding) -> bool:
        """True if new work of a holding may be begun now: its lease is not in doubt."""


class WorkerCore:
    """State machine of a worker: a scope for each holding, and runs left over from former ones."""

    def __init__(self, handlers: Handlers, limits: Limits) -> None:
        self._handlers = handlers
        self._limits = limits
        self.member: MemberAnswers | None = None
        """Set when it is made; before, there is no scope."""
        self._tokens = itertools.count(1)
        self.scopes: dict[TopicPartition, Scope] = {}
        self.warming: dict[TopicPartition, Scope] = {}
        """Scopes of partitions that are prepared for this process."""
        self.left_over: list[Run] = []
        self._ending: deque[tuple[int, Run]] = deque()
        """Runs that were told to end, and when a warning names those that have not."""
        self.errors: list[BaseException] = []
        self.stopping_because: str | None = None
        self._leaves_for_good = False
        """True if a member that would keep its place leaves as well."""
        self.counts: Counter[str] = Counter()
        """Since the start: runs, failures, retries, releases, stalls, overdue runs."""
        self._rests: dict[TopicPartition, tuple[int, int, str]] = {}
        self._unwanted: dict[TopicPartition, int] = {}
        """Until when somebody else had better have a partition that was released."""
        self._owed: dict[Scope, str] = {}
        """Scopes that have ended, and are given back when nothing of them runs; why refused."""
        self._queue: deque[Scope] = deque()
        self._unlocated: list[Scope] = []
        self._actions: deque[WorkerAction] = deque()
        self._timers: list[tuple[int, int, Callable[[int], None]]] = []
        self._numbers = itertools.count()
        self._stop_until_ms = FOREVER_MS
        self._drains_by_order = self._has_left = self._is_starving = False
        self._committed: dict[TopicPartition, int] = {}
        """Last offset that this process has committed of each partition."""
        self._forgetful: list[TopicHandler] = []
        """Handlers that a warning has told to await their commits."""

    # --- The member ---

    def receive(self, event: MemberEvent, now_ms: int) -> None:
        """Handle an event of the member; ignored if its holding has ended here."""
        match event:
            case Granted(holdings):
                for holding in holdings:
                    self._grant(holding, now_ms)
            case Warming(holdings):
                for holding in holdings:
                    self._warm(holding, now_ms)
            case Stopping(reason):
                self.stop(reason, now_ms, now_ms)
            case Revoking() | Lost() | Suspended() | Resumed():
                for scope in map(self._scope_of, event.holdings):
                    if scope is not None:
                        self._take_holding_event(scope, event, now_ms)

    def _take_holding_event(
        self, scope: Scope, event: Revoking | Lost | Suspended | Resumed, now_ms: int
    ) -> None:
        match event:
            case Revoking(_, deadline_ms):
                self._revoke(scope, FOREVER_MS if deadline_ms is None else deadline_ms, now_ms)
            case Lost() if scope.stage is Stage.WARMING:
                self._drop(scope, now_ms)
            case Lost(_, reason):
                self._lose(scope, reason, now_ms)
                self._give_back(scope)
            case Suspended():
                scope.is_suspended = True
            case Resumed():
                self._resume(scope, now_ms)

    def _scope_of(self, holding: Holding) -> Scope | None:
        for scopes in (self.scopes, self.warming):
            scope = scopes.get(holding.partition)
            if scope is not None and scope.holding is holding:
                return scope
        return None

    def _grant(self, holding: Holding, now_ms: int) -> None:
        """A holding begins, with the preparation that was made for it."""
        key = holding.partition
        assert key not in self.scopes, f"{key} is held already"
        token = holding.token or next(self._tokens)
        scope = Scope(key, token, self._handlers.of(key.topic), holding, now_ms)
        self.scopes[key] = scope
        prepared = self.warming.pop(key, None)
        if prepared is not None:
            scope.is_warm = prepared.is_warm
            self._leave_over(prepared, now_ms)
        attempts, until_ms, last_error = self._rests.pop(key, (0, 0, ""))
        scope.attempts, scope.last_error = attempts, last_error
        if now_ms < until_ms:
            self._wait_until(scope, Stage.RESTING, until_ms, now_ms)
        else:
            self._begin(scope, now_ms)
        if self.stopping_because is not None:
            self._revoke(scope, self._stop_until_ms, now_ms)

    def _revoke(self, scope: Scope, until_ms: int, now_ms: int) -> None:
        """A partition is being revoked: its handler may finish and commit until `until_ms`."""
        scope.ends_ms = min(scope.ends_ms, until_ms)
        if scope.is_revoking:
            return
        scope.is_revoking = True
        self._actions.append(actions.NotifyRevoking(scope))
        if scope.has_started:
            self._call_hook(scope, RunKind.DRAIN, now_ms)
        self._give_back_if_ended(scope, now_ms)

    def _resume(self, scope: Scope, now_ms: int) -> None:
        """A suspended holding resumes; the suspension does not count as a stall."""
        scope.is_suspended = False
        scope.progress_ms = now_ms
        for run in scope.runs:
            if run.kind is RunKind.HANDLER:
                self._watch(run, now_ms)

    def draining(self, now_ms: int, *, by_order: bool) -> None:
        """The member takes no more partitions: the answer to `Drain`.

        By order, each handler that has begun goes on until the group asks for its partition, whose
        next holder may have to prepare first. After half of the time the worker hands over by
        itself, as it does at once without: nobody may ask, with the coordinator away.
        """
        self._drains_by_order = by_order
        self._finish_in_time(now_ms)

    # --- The owner ---

    def stop(self, reason: str, until_ms: int, now_ms: int, *, leave: bool = False) -> None:
        """Have the handlers finish until `until_ms`, then leave. May be repeated with less time.

        Args:
            leave: give up a place that the member would keep for its next process.
        """
        gives_up_place = leave and not self._leaves_for_good
        self._leaves_for_good |= leave
        is_first = self.stopping_because is None
        if is_first or gives_up_place:
            self.stopping_because = self.stopping_because or reason
            self._actions.append(actions.StartDrain(reason, max(0, until_ms - now_ms), leave))
        if until_ms >= self._stop_until_ms:
            return
        self._stop_until_ms = until_ms
        for scope in list(self.warming.values()):
            self._refuse_warming(scope, "the worker stops", now_ms)
        if not is_first:  # The first one goes on when `draining` says how.
            self._finish_in_time(now_ms)
        self._leave_if_ended(now_ms)

    def _finish_in_time(self, now_ms: int) -> None:
        until_ms = self._stop_until_ms
        if self._drains_by_order:
            half_ms = now_ms + (until_ms - now_ms) // 2
            self._at(half_ms, self._hand_over)
            self._stop_until_ms = max(half_ms, until_ms - LEAVE_EARLY_MS)
        else:
            self._hand_over(now_ms)
        self._at(self._stop_until_ms, self._end_of_grace)

    def _hand_over(self, now_ms: int) -> None:
        """Give all partitions back, whether or not another member needs them."""
        for scope in list(self.scopes.values()):
            self._revoke(scope, self._stop_until_ms, now_ms)

    # --- Handlers ---

    def located(self, scope: Scope, stored: int, position: int, metadata: str, now_ms: int) -> None:
        """The position of a scope is known: the committed offset, or where the policy says."""
        if scope.has_ended:
            return
        mine = self._committed.pop(scope.key, -1)
        if stored < mine:
            stored_text = f"offset {stored}" if stored >= 0 else "no offset"
            self._say(
                WARNING,
                f"the coordinator has {stored_text} of {scope.key}, and this process has committed "
                f"{mine}: somebody has reset it, or the coordinator has lost its data; rows from "
                f"{position} are handled again",
            )
        scope.stored, scope.committed, scope.metadata = stored, position, metadata
        if stored < 0:
            scope.log_begin = position  # Nobody will handle what is before.
        scope.is_located = True
        self._look_at_rows(scope, now_ms)
        self._queue_up(scope, now_ms)

    def not_located(self, scope: Scope, error: BaseException, now_ms: int) -> None:
        """The position of a scope cannot be read."""
        if not scope.has_ended:
            self._fail(scope, error, now_ms)

    def ended(self, run: Run, error: BaseException | None, now_ms: int) -> None:
        """A run has ended. `error`: what it raised, unless it ended because it was told to."""
        if run.has_ended:
            return
        run.has_ended = True
        scope = run.scope
        if run in scope.runs:
            scope.runs.remove(run)
        if scope.stage is Stage.WARMING:
            self._preparation_ended(scope, error, now_ms)
        elif scope.has_ended or run.kind is RunKind.LOST:
            self._left_over_ended(run, error, now_ms)
        elif run.kind is RunKind.DRAIN:
            if error is not None:
                self._say(ERROR, f"the drain hook failed for {scope.key}", error)
            self._give_back_if_ended(scope, now_ms)
        else:
            self._main_ended(scope, run, run.verdict or error, now_ms)

    def committed(self, scope: Scope, offset: int, metadata: str, now_ms: int) -> None:
        """An offset was stored."""
        self._committed[scope.key] = offset
        scope.committed = scope.stored = offset
        scope.metadata = metadata
        scope.attempts = 0
        self._unwanted.pop(scope.key, None)
        self.alive(scope, now_ms)
        self._look_at_rows(scope, now_ms)

    def alive(self, scope: Scope, now_ms: int) -> None:
        """A handler makes progress."""
        scope.progress_ms = now_ms

    def log_end(self, scope: Scope, offset: int, now_ms: int) -> None:
        """The log of a partition ends at this offset."""
        risen, scope.log_end = offset > scope.log_end, offset
        # Rows that were committed since the last time may have come after somebody looked.
        was_short, scope.is_short = scope.is_short, offset < min(scope.compared, scope.committed)
        scope.compared = scope.committed
        if scope.is_short and not was_short:
            self._say(
                WARNING,
                f"the log of {scope.key} ends at {offset}, and {scope.committed} is "
                "committed: it was made anew or has lost rows, and rows below that offset are "
                "not handled; 'coordinator groups reset-offsets' sets another",
            )
        self._look_at_rows(scope, now_ms)
        if risen and scope.stage is Stage.IDLE and scope.waits_since_ms is not None:
            self._begin(scope, now_ms)

    def forgot_await(self, scope: Scope) -> None:
        """A handler did not await a commit; warned of once for each handler."""
        if scope.handler not in self._forgetful:
            self._forgetful.append(scope.handler)
            self._say(
                WARNING,
                f"the handler of {scope.key} makes commits that it does not await: nothing "
                "was stored, and its rows are handled again; write `await p.commit(…)`",
            )

    def done(self, scope: Scope) -> None:
        """There is nothing more to do in this holding."""
        scope.is_done = True

    # --- The executor ---

    def next_action(self, now_ms: int) -> WorkerAction | None:
        """The next action; None: none before the next input or `next_deadline`."""
        while self._timers and self._timers[0][0] <= now_ms:
            heapq.heappop(self._timers)[2](now_ms)
        if not self._actions:  # A stop that is to be carried out may revoke what waits for a slot.
            self._fill_slots(now_ms)
            if self._unlocated:
                scopes, self._unlocated = tuple(self._unlocated), []
                self._actions.append(actions.Locate(scopes))
        return self._actions.popleft() if self._actions else None

    def next_deadline(self) -> int | None:
        """Time at which `next_action` has something to do without an input; None: never."""
        return self._timers[0][0] if self._timers else None

    def unwanted(self, now_ms: int) -> frozenset[TopicPartition]:
        """Partitions that this member avoids: released recently, or with an overdue run."""
        self._unwanted = {key: ends for key, ends in self._unwanted.items() if now_ms < ends}
        overdue = {run.scope.key for run in self.left_over if run.is_overdue}
        return frozenset(self._unwanted.keys() | overdue)

    @property
    def running(self) -> list[Run]:
        """Runs of handlers that hold a slot."""
        return [
            run for scope in self.scopes.values() for run in scope.runs
            if run.kind is RunKind.HANDLER
        ]  # fmt: skip

    # --- Starting ---

    def _begin(self, scope: Scope, now_ms: int) -> None:
        """Call the handler as soon as its position is known and a slot is free."""
        if scope.is_located:
            self._queue_up(scope, now_ms)
            return
        scope.enter(Stage.STARTING, now_ms)
        self._unlocated.append(scope)

    def _queue_up(self, scope: Scope, now_ms: int) -> None:
        if scope.is_revoking:
            self._give_back_if_ended(scope, now_ms)
            return
        if self._is_blocked(scope):
            scope.enter(Stage.BLOCKED, now_ms)
            timeout_ms = self._limits.progress_timeout_ms
            if timeout_ms is not None:
                self._at(now_ms + timeout_ms, partial(self._still_blocked, scope, now_ms))
            return
        scope.enter(Stage.READY, now_ms)
        self._queue.append(scope)
        if self._limits.concurrency is not None:
            self._at(now_ms + STARVING_MS, partial(self._look_for_starvation, scope, now_ms))

    def _fill_slots(self, now_ms: int) -> None:
        if not self._queue:
            return
        limit = self._limits.concurrency
        free = len(self._queue) if limit is None else limit - len(self.running)
        for _ in range(len(self._queue)):
            if free <= 0:
                return
            scope = self._queue.popleft()
            if scope.stage is not Stage.READY:
                continue
            is_late = self.stopping_because is not None and not scope.has_started
            if is_late or not self.may_begin(scope):
                self._queue.append(scope)
                continue
            free -= 1
            scope.enter(Stage.RUNNING, now_ms)
            scope.progress_ms = now_ms
            scope.has_started = True
            if scope.is_warm or self._handlers.hook(RunKind.WARM) is None:
                scope.is_warm = True
                self._start(scope, RunKind.HANDLER, scope.handler.is_async, now_ms)
            else:
                self._call_hook(scope, RunKind.WARM, now_ms)

    def may_begin(self, scope: Scope) -> bool:
        """True if new work may be begun now. From any thread."""
        return self.member is not None and self.member.may_begin(scope.holding)

    def _start(self, scope: Scope, kind: RunKind, is_async: bool, now_ms: int) -> Run:
        run = Run(scope, kind, is_async, now_ms)
        scope.runs.append(run)
        self.counts["runs"] += 1
        self._actions.append(actions.StartHandler(run))
        if kind is RunKind.HANDLER:
            self._watch(run, now_ms)
        return run

    def _call_hook(self, scope: Scope, kind: RunKind, now_ms: int) -> Run | None:
        hook = self._handlers.hook(kind)
        return None if hook is None else self._start(scope, kind, hook.is_async, now_ms)

    def _wait_until(self, scope: Scope, stage: Stage, due_ms: int, now_ms: int) -> None:
        scope.enter(stage, now_ms, due_ms)
        self._at(due_ms, partial(self._wake, scope))

    def _wake(self, scope: Scope, now_ms: int) -> None:
        if scope.due_ms is not None and now_ms >= scope.due_ms:
            self._begin(scope, now_ms)

    def _look_for_starvation(self, scope: Scope, since_ms: int, now_ms: int) -> None:
        waits = scope.stage is Stage.READY and scope.stage_since_ms == since_ms
        if waits and not self._is_starving:
            self._is_starving = True
            self._say(
                WARNING,
                f"{scope.key} has waited for {now_ms - since_ms} ms, since all "
                f"{self._limits.concurrency} handlers that concurrency= lets run have not "
                "returned; it is for handlers that return when there is nothing to do",
            )

    # --- Ending ---

    def _main_ended(self, scope: Scope, run: Run, error: BaseException | None, now_ms: int) -> None:
        if scope.is_revoking:
            if error is not None:
                self._note_failure(scope, error, now_ms)
                self._say(ERROR, f"the {run.kind} of {scope.key} failed at its end", error)
                if self._decision(scope, error) == "stop":
                    self._stop_because_of(error, now_ms)
            scope.enter(Stage.DONE, now_ms)
            self._give_back_if_ended(scope, now_ms)
        elif error is not None:
            self._fail(scope, error, now_ms)
        elif run.kind is RunKind.WARM:
            scope.is_warm = True
            self._queue_up(scope, now_ms)
        elif scope.is_done:
            scope.enter(Stage.DONE, now_ms)
        else:
            scope.attempts = 0
            self._wait_until(scope, Stage.IDLE, now_ms + self._limits.idle_ms, now_ms)

    def _give_back_if_ended(self, scope: Scope, now_ms: int) -> None:
        """Give a revoked partition back, once nothing runs for it."""
        if scope.runs:
            return
        self._end(scope, "it was given back", now_ms)
        if self.in_session_group or self.stopping_because is None or self.scopes:
            self._give_back(scope)  # Else the member leaves next, which costs one rebalance.
        self._leave_if_ended(now_ms)

    @property
    def in_session_group(self) -> bool:
        """True if a release costs nobody else anything."""
        return self.member is not None and self.member.releases_cost_nothing

    def _give_back(self, scope: Scope, refused: str = "") -> None:
        """Give an ended scope back once none of its runs is left or awaited."""
        self._owed[scope] = refused
        self._settle(scope)

    def _settle(self, scope: Scope) -> None:
        runs = (run for run in self.left_over if run.scope is scope)
        if scope in self._owed and all(run.is_overdue or run.kind is RunKind.LOST for run in runs):
            self._actions.append(actions.GiveBack(scope, self._owed.pop(scope)))

    def _lose(self, scope: Scope, reason: str, now_ms: int) -> None:
        runs = list(scope.runs)
        self._end(scope, reason, now_ms)
        for run in runs:
            self._cancel(run, now_ms)
        if scope.has_started:
            hook = self._call_hook(scope, RunKind.LOST, now_ms)
            if hook is not None:
                scope.runs.remove(hook)
                self.left_over.append(hook)
        self._leave_if_ended(now_ms)

    def _end(self, scope: Scope, reason: str, now_ms: int) -> None:
        scope.enter(Stage.ENDED, now_ms)
        scope.ends_ms, scope.ended_because = 0, reason
        self.left_over += scope.runs
        scope.runs = []
        del self.scopes[scope.key]

    def _cancel(self, run: Run, now_ms: int) -> None:
        if run.is_cancelled:
            return
        run.is_cancelled = True
        self._actions.append(actions.CancelRun(run))
        if not run.is_async and run.scope.stage is not Stage.STALLED:
            self._wait_no_more(run, now_ms)  # It had the time until the deadline.
        if not self._ending or self._ending[-1][0] != now_ms + ENDING_MS:
            self._at(now_ms + ENDING_MS, self._still_run)
        self._ending.append((now_ms + ENDING_MS, run))

    def _wait_no_more(self, run: Run, now_ms: int) -> None:
        """Stop waiting for a run that did not end in time."""
        if run.is_overdue:
            return
        run.is_overdue = True
        if run.scope.stage is Stage.STALLED:
            self._give_up_stalled(run, now_ms)
        self._settle(run.scope)

    def _still_run(self, now_ms: int) -> None:
        """Log the runs that did not end within `ENDING_MS`, one line for each reason."""
        late: dict[tuple[RunKind, str], list[Run]] = {}
        while self._ending and self._ending[0][0] <= now_ms:
            run = self._ending.popleft()[1]
            if not run.has_ended:
                reason = run.scope.ended_because or "it was told to end"
                late.setdefault((run.kind, reason), []).append(run)
        for (kind, reason), runs in late.items():
            self._log_still_running(kind, reason, runs)
            for run in runs:
                self._wait_no_more(run, now_ms)

    def _log_still_running(self, kind: RunKind, reason: str, runs: list[Run]) -> None:
        self.counts["overdue runs"] += len(runs)
        for run in runs:
            run.is_named = True
        first, keys = runs[0], spelled(run.scope.key for run in runs)
        runner = f"{'coroutine' if first.is_async else 'thread'} {first.name!r}"
        others = f" (and {len(runs) - 1} more)" if len(runs) > 1 else ""
        self._say(
            WARNING,
            f"the {kind} of {keys} still runs in {runner}{others}, though it may not any more "
            f"({reason}); every call on its partition raises, and no other handler of this "
            "partition starts here before it ends",
            run=first,
        )

    def _left_over_ended(self, run: Run, error: BaseException | None, now_ms: int) -> None:
        if run in self.left_over:
            self.left_over.remove(run)
        self._settle(run.scope)
        key = run.scope.key
        if error is not None:
            self._say(ERROR, f"the {run.kind} of {key} failed after its holding", error)
        if run.is_named:
            self._say(INFO, f"the {run.kind} of {key} that was left over has ended")
        successor = self.scopes.get(key)
        if successor is not None:
            # A partition may be granted before the hook that prepares it has ended.
            was_prepared = run.kind is RunKind.WARM and not run.scope.token
            if was_prepared and error is None and not run.is_cancelled:
                successor.is_warm = True
            if successor.stage is Stage.BLOCKED:
                self._queue_up(successor, now_ms)
        self._leave_if_ended(now_ms)

    def _is_blocked(self, scope: Scope) -> bool:
        return any(run.scope.key == scope.key for run in (*self.left_over, *scope.runs))

    def _end_of_grace(self, now_ms: int) -> None:
        if now_ms < self._stop_until_ms:
            return
        for scope in list(self.scopes.values()):
            self._lose(scope, "the worker has stopped", now_ms)
        self._at(now_ms + ENDING_MS, self._leave_anyway)

    def _leave_anyway(self, now_ms: int) -> None:
        self._leave()

    def _leave_if_ended(self, now_ms: int) -> None:
        """Leave once every partition is given back and no coroutine runs any more."""
        if self.stopping_because is None or self.scopes:
            return
        if not any(run.is_async and not run.is_overdue for run in self.left_over):
            self._leave()
        else:
            self._at(now_ms + ENDING_MS, self._leave_anyway)

    def _leave(self) -> None:
        if not self._has_left:
            self._has_left = True
            self._actions.append(actions.LeaveMember(self.stopping_because or "stopped"))

    # --- Preparing ---

    def _warm(self, holding: Holding, now_ms: int) -> None:
        """Prepare a partition that this process will get."""
        key = holding.partition
        if key in self.warming:
            self._drop(self.warming[key], now_ms)
        scope = Scope(key, 0, self._handlers.of(key.topic), holding, now_ms)
        scope.stored, scope.committed = holding.offset, max(holding.offset, holding.position)
        scope.ends_ms, scope.ended_because = 0, WARMING_ENDS
        scope.enter(Stage.WARMING, now_ms)
        self.warming[key] = scope
        if self.stopping_because is not None:
            self._refuse_warming(scope, "the worker stops", now_ms)
        elif self._call_hook(scope, RunKind.WARM, now_ms) is None:
            scope.is_warm = True
            self._actions.append(actions.Ready(scope))

    def _drop(self, scope: Scope, now_ms: int) -> None:
        """Drop the preparation of a partition that goes to another process."""
        del self.warming[scope.key]
        self._leave_over(scope, now_ms)
        for run in [run for run in self.left_over if run.scope is scope]:
            self._cancel(run, now_ms)

    def _preparation_ended(self, scope: Scope, error: BaseException | None, now_ms: int) -> None:
        """A partition is ready, or refused."""
        if error is None:
            scope.is_warm = True
            self._actions.append(actions.Ready(scope))
        else:
            self._say(ERROR, f"the warm hook failed for {scope.key}", error)
            self._refuse_warming(scope, f"{type(error).__name__}: {error}", now_ms)

    def _leave_over(self, scope: Scope, now_ms: int) -> None:
        """Make left-over runs of a dropped preparation block the partition's next holding."""
        self.left_over += scope.runs
        scope.runs = []
        scope.enter(Stage.ENDED, now_ms)

    def _refuse_warming(self, scope: Scope, reason: str, now_ms: int) -> None:
        self._drop(scope, now_ms)
        self._actions.append(actions.Ready(scope, reason))

    # --- Failures ---

    def _fail(
        self, scope: Scope, error: BaseException, now_ms: int, *, may_retry: bool = True
    ) -> None:
        """Apply the error policy to a failed run."""
        policy = scope.handler.policy
        self._note_failure(scope, error, now_ms)
        decision = self._decision(scope, error)
        if decision == "retry" and not may_retry:
            decision = "release"
        pause_ms = policy.pause_ms(scope.attempts)
        nobody_else = self._nobody_else_takes(scope, now_ms)
        then = {
            "retry": f"it is called again in {pause_ms} ms",
            "release": f"it was given back here, so it is called again in {pause_ms} ms"
            if nobody_else
            else "the partition is released",
            "stop": "the worker stops",
        }[decision]
        text = f"the handler of {scope.key} failed ({scope.attempts} in a row); {then}"
        self._say(ERROR, text, error)
        self.counts[decision] += 1
        match decision:
            case "retry":
                scope.is_located = False
                self._wait_until(scope, Stage.BACKING_OFF, now_ms + pause_ms, now_ms)
            case "release" if nobody_else:
                scope.is_located = False
                self._wait_until(scope, Stage.RESTING, now_ms + pause_ms, now_ms)
            case "release":
                self._rests[scope.key] = (scope.attempts, now_ms + pause_ms, scope.last_error)
                self._unwanted[scope.key] = now_ms + UNWANTED_PAUSES * pause_ms
                self._lose(scope, "it was released after a failure", now_ms)
                self._give_back(scope, scope.last_error)
            case "stop":
                scope.enter(Stage.DONE, now_ms)
                if scope.runs:
                    self._lose(scope, "the worker stops after its failure", now_ms)
                self._stop_because_of(error, now_ms)

    def _nobody_else_takes(self, scope: Scope, now_ms: int) -> bool:
        """True if a released partition came straight back: no other member takes it.

        Another release would be another rebalance of everybody, with the same result. One that
        costs nothing is made: the coordinator finds out by it.
        """
        if self.in_session_group or scope.runs:
            return False
        return now_ms < self._unwanted.get(scope.key, 0)

    def _decision(self, scope: Scope, error: BaseException) -> OnError:
        if isinstance(error, WrongHandler) or not isinstance(error, Exception):
            return "stop"  # Trying again cannot help; SystemExit, KeyboardInterrupt.
        return scope.handler.policy.decide(scope.attempts, in_session_group=self.in_session_group)

    def _stop_because_of(self, error: BaseException, now_ms: int) -> None:
        self.errors.append(error)
        self.stop(f"failed: {error!r}", now_ms + self._limits.grace_ms, now_ms, leave=True)

    def _note_failure(self, scope: Scope, error: BaseException, now_ms: int) -> None:
        scope.attempts += 1
        scope.failures += 1
        scope.last_error = f"{type(error).__name__}: {error}"
        self.counts["failures"] += 1

    def _still_blocked(self, scope: Scope, since_ms: int, now_ms: int) -> None:
        if scope.stage is Stage.BLOCKED and scope.stage_since_ms == since_ms:
            error = HandlerStillRuns(
                f"the handler of an earlier holding of {scope.key} has not ended for "
                f"{now_ms - since_ms} ms"
            )
            self._fail(scope, error, now_ms, may_retry=False)

    # --- Progress ---

    def _look_at_rows(self, scope: Scope, now_ms: int) -> None:
        """Note since when rows are known to wait."""
        if scope.log_end <= scope.committed or not scope.is_located:
            scope.waits_since_ms = None
        elif scope.waits_since_ms is None:
            scope.waits_since_ms = now_ms
            for run in scope.runs:
                if run.kind is RunKind.HANDLER:
                    self._watch(run, now_ms)

    def _watch(self, run: Run, now_ms: int) -> None:
        """Check for a stall now, and schedule the next check."""
        timeout_ms, scope = self._limits.progress_timeout_ms, run.scope
        if timeout_ms is None or run.is_watched or run.has_ended:
            return
        if scope.stage is not Stage.RUNNING or scope.is_suspended:
            return
        if scope.waits_since_ms is None:
            return  # Watched again when rows wait.
        stalls_ms = max(scope.progress_ms, scope.waits_since_ms) + timeout_ms
        if now_ms < stalls_ms:
            run.is_watched = True  # One timer, however often rows come and are committed.
            self._at(stalls_ms, partial(self._watch_again, run))
            return
        run.verdict = HandlerStalled(
            f"no commit and no sign of life for {timeout_ms} ms (progress_timeout_ms), while rows "
            f"from {scope.committed} to {scope.log_end} wait"
        )
        self.counts["stalls"] += 1
        self._say(WARNING, f"the handler of {scope.key} has stalled: {run.verdict}", run=run)
        scope.enter(Stage.STALLED, now_ms)
        self._cancel(run, now_ms)

    def _watch_again(self, run: Run, now_ms: int) -> None:
        run.is_watched = False
        self._watch(run, now_ms)

    def _give_up_stalled(self, run: Run, now_ms: int) -> None:
        """Apply the error policy to a stalled handler that has not ended."""
        if run.has_ended or run.scope.stage is not Stage.STALLED:
            return
        assert run.verdict is not None
        self._fail(run.scope, run.verdict, now_ms, may_retry=False)

    # --- Inside ---

    def _at(self, at_ms: int, callback: Callable[[int], None]) -> None:
        heapq.heappush(self._timers, (at_ms, next(self._numbers), callback))

    def _say(
        self, level: int, text: str, error: BaseException | None = None, run: Run | None = None
    ) -> None:
        self._actions.append(actions.Say(level, text, error, run))
