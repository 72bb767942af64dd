"""All decisions of a worker, without I/O or a clock.

The driver (`driver.py`) reports what happens and carries out `next_action` until there is
none, then asks again at `next_deadline`.

    member ──► hear(event), draining ────────► ┌──────┐ ──► Locate, Start, NotifyRevoking, CancelRun
    handlers ► ended, committed, alive, done ► │ core │ ──► GiveBack, Ready, Drain, Leave, Say
    owner ───► stop ─────────────────────────► └──────┘ ──► next_deadline, held_partitions, errors

Of one partition at most one handler runs, whichever holding it belongs to: a call that was asked to
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
from coordinator.client.worker.handlers import (
    CallKind,
    Handlers,
    HandlerStalled,
    HandlerStillRuns,
    Limits,
    OnError,
    TopicHandler,
    WrongHandler,
)
from coordinator.client.worker.held_partition import HandlerCall, HeldPartition, Stage

ENDING_MS = 1_000
"""Time that a call has to end once it was asked to, before it is named in a warning."""
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
    """State machine of a worker: the partitions it holds, and calls left over from former ones."""

    def __init__(self, handlers: Handlers, limits: Limits) -> None:
        self._handlers = handlers
        self._limits = limits
        self.member: MemberAnswers | None = None
        """Set when it is made; before, nothing is held."""
        self._tokens = itertools.count(1)
        self.held_partitions: dict[TopicPartition, HeldPartition] = {}
        self.warming: dict[TopicPartition, HeldPartition] = {}
        """Scopes of partitions that are prepared for this process."""
        self.left_over: list[HandlerCall] = []
        self._ending: deque[tuple[int, HandlerCall]] = deque()
        """Runs that were asked to end, and when a warning names those that have not."""
        self.errors: list[BaseException] = []
        self.stopping_because: str | None = None
        self._leaves_for_good = False
        """True if a member that would keep its place leaves as well."""
        self.counts: Counter[str] = Counter()
        """Since the start: runs, failures, retries, releases, stalls, overdue runs; by handlers."""
        self._pauses: dict[TopicPartition, tuple[int, int, str]] = {}
        self._unwanted: dict[TopicPartition, int] = {}
        """Until when somebody else had better have a partition that was released."""
        self._owed: dict[HeldPartition, str] = {}
        """Those that have ended, and are given back when nothing of them runs; why refused."""
        self._queue: deque[HeldPartition] = deque()
        self._unlocated: list[HeldPartition] = []
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
                for held in map(self._held_of, event.holdings):
                    if held is not None:
                        self._take_holding_event(held, event, now_ms)

    def _take_holding_event(
        self, held: HeldPartition, event: Revoking | Lost | Suspended | Resumed, now_ms: int
    ) -> None:
        match event:
            case Revoking(_, deadline_ms):
                self._revoke(held, FOREVER_MS if deadline_ms is None else deadline_ms, now_ms)
            case Lost() if held.stage is Stage.WARMING:
                self._drop(held, now_ms)
            case Lost(_, reason):
                self._lose(held, reason, now_ms)
                self._give_back(held)
            case Suspended():
                held.is_suspended = True
            case Resumed():
                self._resume(held, now_ms)

    def _held_of(self, holding: Holding) -> HeldPartition | None:
        for held_partitions in (self.held_partitions, self.warming):
            held = held_partitions.get(holding.partition)
            if held is not None and held.holding is holding:
                return held
        return None

    def _grant(self, holding: Holding, now_ms: int) -> None:
        """A holding begins, with the preparation that was made for it."""
        key = holding.partition
        assert key not in self.held_partitions, f"{key} is held already"
        token = holding.token or next(self._tokens)
        held = HeldPartition(key, token, self._handlers.of(key.topic), holding, now_ms)
        self.held_partitions[key] = held
        prepared = self.warming.pop(key, None)
        if prepared is not None:
            held.is_warm = prepared.is_warm
            self._leave_over(prepared, now_ms)
        attempts, until_ms, last_error = self._pauses.pop(key, (0, 0, ""))
        held.attempts, held.last_error = attempts, last_error
        if now_ms < until_ms:
            self._wait_until(held, Stage.PAUSING, until_ms, now_ms)
        else:
            self._begin(held, now_ms)
        if self.stopping_because is not None:
            self._revoke(held, self._stop_until_ms, now_ms)

    def _revoke(self, held: HeldPartition, until_ms: int, now_ms: int) -> None:
        """A partition is being revoked: its handler may finish and commit until `until_ms`."""
        held.ends_ms = min(held.ends_ms, until_ms)
        if held.is_revoking:
            return
        held.is_revoking = True
        self._actions.append(actions.NotifyRevoking(held))
        if held.has_started:
            self._call_hook(held, CallKind.DRAIN, now_ms)
        self._give_back_if_ended(held, now_ms)

    def _resume(self, held: HeldPartition, now_ms: int) -> None:
        """A suspended holding resumes; the suspension does not count as a stall."""
        held.is_suspended = False
        held.progress_ms = now_ms
        for call in held.calls:
            if call.kind is CallKind.HANDLER:
                self._watch(call, now_ms)

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
        for held in list(self.warming.values()):
            self._refuse_warming(held, "the worker stops", now_ms)
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
        for held in list(self.held_partitions.values()):
            self._revoke(held, self._stop_until_ms, now_ms)

    # --- Handlers ---

    def located(
        self, held: HeldPartition, stored: int, position: int, metadata: str, now_ms: int
    ) -> None:
        """The position of a partition is known: the committed offset, or where the policy says."""
        if held.has_ended:
            return
        mine = self._committed.pop(held.key, -1)
        if stored < mine:
            stored_text = f"offset {stored}" if stored >= 0 else "no offset"
            self._say(
                WARNING,
                f"the coordinator has {stored_text} of {held.key}, and this process has committed "
                f"{mine}: somebody has reset it, or the coordinator has lost its data; rows from "
                f"{position} are handled again",
            )
        held.stored, held.committed, held.metadata = stored, position, metadata
        if stored < 0:
            held.log_begin = position  # Nobody will handle what is before.
        held.is_located = True
        self._check_rows(held, now_ms)
        self._queue_up(held, now_ms)

    def not_located(self, held: HeldPartition, error: BaseException, now_ms: int) -> None:
        """The position of a partition cannot be read."""
        if not held.has_ended:
            self._fail(held, error, now_ms)

    def ended(self, call: HandlerCall, error: BaseException | None, now_ms: int) -> None:
        """A call has ended. `error`: what it raised, unless it ended because it was asked to."""
        if call.has_ended:
            return
        call.has_ended = True
        held = call.held
        if call in held.calls:
            held.calls.remove(call)
        if held.stage is Stage.WARMING:
            self._preparation_ended(held, error, now_ms)
        elif held.has_ended or call.kind is CallKind.LOST:
            self._left_over_ended(call, error, now_ms)
        elif call.kind is CallKind.DRAIN:
            if error is not None:
                self._say(ERROR, f"the drain hook failed for {held.key}", error)
            self._give_back_if_ended(held, now_ms)
        else:
            self._main_ended(held, call, call.verdict or error, now_ms)

    def committed(self, held: HeldPartition, offset: int, metadata: str, now_ms: int) -> None:
        """An offset was stored."""
        self._committed[held.key] = offset
        held.committed = held.stored = offset
        held.metadata = metadata
        held.attempts = 0
        self._unwanted.pop(held.key, None)
        self.alive(held, now_ms)
        self._check_rows(held, now_ms)

    def alive(self, held: HeldPartition, now_ms: int) -> None:
        """A handler makes progress."""
        held.progress_ms = now_ms

    def log_end(self, held: HeldPartition, offset: int, now_ms: int) -> None:
        """The log of a partition ends at this offset."""
        risen, held.log_end = offset > held.log_end, offset
        # Rows that were committed since the last time may have come after somebody looked.
        was_short, held.is_short = held.is_short, offset < min(held.compared, held.committed)
        held.compared = held.committed
        if held.is_short and not was_short:
            self._say(
                WARNING,
                f"the log of {held.key} ends at {offset}, and {held.committed} is "
                "committed: it was made anew or has lost rows, and rows below that offset are "
                "not handled; 'coordinator groups reset-offsets' sets another",
            )
        self._check_rows(held, now_ms)
        if risen and held.stage is Stage.IDLE and held.waits_since_ms is not None:
            self._begin(held, now_ms)

    def forgot_await(self, held: HeldPartition) -> None:
        """A handler did not await a commit; warned of once for each handler."""
        if held.handler not in self._forgetful:
            self._forgetful.append(held.handler)
            self._say(
                WARNING,
                f"the handler of {held.key} makes commits that it does not await: nothing "
                "was stored, and its rows are handled again; write `await p.commit(…)`",
            )

    def done(self, held: HeldPartition) -> None:
        """Call no handler any more for this holding."""
        held.is_done = True

    # --- The driver ---

    def next_action(self, now_ms: int) -> WorkerAction | None:
        """The next action; None: none before the next input or `next_deadline`."""
        while self._timers and self._timers[0][0] <= now_ms:
            heapq.heappop(self._timers)[2](now_ms)
        if not self._actions:  # A stop that is to be carried out may revoke what waits for a slot.
            self._fill_slots(now_ms)
            if self._unlocated:
                held_partitions, self._unlocated = tuple(self._unlocated), []
                self._actions.append(actions.Locate(held_partitions))
        return self._actions.popleft() if self._actions else None

    def next_deadline(self) -> int | None:
        """Time at which `next_action` has something to do without an input; None: never."""
        return self._timers[0][0] if self._timers else None

    def unwanted(self, now_ms: int) -> frozenset[TopicPartition]:
        """Partitions that this member avoids: released recently, or with an overdue call."""
        self._unwanted = {key: ends for key, ends in self._unwanted.items() if now_ms < ends}
        overdue = {call.held.key for call in self.left_over if call.is_overdue}
        return frozenset(self._unwanted.keys() | overdue)

    @property
    def running(self) -> list[HandlerCall]:
        """Runs of handlers that hold a slot."""
        return [
            call for held in self.held_partitions.values() for call in held.calls
            if call.kind is CallKind.HANDLER
        ]  # fmt: skip

    # --- Starting ---

    def _begin(self, held: HeldPartition, now_ms: int) -> None:
        """Call the handler as soon as its position is known and a slot is free."""
        if held.is_located:
            self._queue_up(held, now_ms)
            return
        held.enter(Stage.STARTING, now_ms)
        self._unlocated.append(held)

    def _queue_up(self, held: HeldPartition, now_ms: int) -> None:
        if held.is_revoking:
            self._give_back_if_ended(held, now_ms)
            return
        if self._is_blocked(held):
            held.enter(Stage.BLOCKED, now_ms)
            timeout_ms = self._limits.progress_timeout_ms
            if timeout_ms is not None:
                self._at(now_ms + timeout_ms, partial(self._still_blocked, held, now_ms))
            return
        held.enter(Stage.READY, now_ms)
        self._queue.append(held)
        if self._limits.concurrency is not None:
            self._at(now_ms + STARVING_MS, partial(self._check_starvation, held, now_ms))

    def _fill_slots(self, now_ms: int) -> None:
        if not self._queue:
            return
        limit = self._limits.concurrency
        free = len(self._queue) if limit is None else limit - len(self.running)
        for _ in range(len(self._queue)):
            if free <= 0:
                return
            held = self._queue.popleft()
            if held.stage is not Stage.READY:
                continue
            is_late = self.stopping_because is not None and not held.has_started
            if is_late or not self.may_begin(held):
                self._queue.append(held)
                continue
            free -= 1
            held.enter(Stage.RUNNING, now_ms)
            held.progress_ms = now_ms
            held.has_started = True
            if held.is_warm or self._handlers.hook(CallKind.WARM) is None:
                held.is_warm = True
                self._start(held, CallKind.HANDLER, held.handler.is_async, now_ms)
            else:
                self._call_hook(held, CallKind.WARM, now_ms)

    def may_begin(self, held: HeldPartition) -> bool:
        """True if new work may be begun now. From any thread."""
        return self.member is not None and self.member.may_begin(held.holding)

    def _start(
        self, held: HeldPartition, kind: CallKind, is_async: bool, now_ms: int
    ) -> HandlerCall:
        call = HandlerCall(held, kind, is_async, now_ms)
        held.calls.append(call)
        self.counts["runs"] += 1
        self._actions.append(actions.StartHandler(call))
        if kind is CallKind.HANDLER:
            self._watch(call, now_ms)
        return call

    def _call_hook(self, held: HeldPartition, kind: CallKind, now_ms: int) -> HandlerCall | None:
        hook = self._handlers.hook(kind)
        return None if hook is None else self._start(held, kind, hook.is_async, now_ms)

    def _wait_until(self, held: HeldPartition, stage: Stage, due_ms: int, now_ms: int) -> None:
        held.enter(stage, now_ms, due_ms)
        self._at(due_ms, partial(self._wake, held))

    def _wake(self, held: HeldPartition, now_ms: int) -> None:
        if held.due_ms is not None and now_ms >= held.due_ms:
            self._begin(held, now_ms)

    def _check_starvation(self, held: HeldPartition, since_ms: int, now_ms: int) -> None:
        waits = held.stage is Stage.READY and held.stage_since_ms == since_ms
        if waits and not self._is_starving:
            self._is_starving = True
            self._say(
                WARNING,
                f"{held.key} has waited for {now_ms - since_ms} ms, since all "
                f"{self._limits.concurrency} handlers that concurrency= lets run have not "
                "returned; it is for handlers that return when there is nothing to do",
            )

    # --- Ending ---

    def _main_ended(
        self, held: HeldPartition, call: HandlerCall, error: BaseException | None, now_ms: int
    ) -> None:
        if held.is_revoking:
            if error is not None:
                self._note_failure(held, error, now_ms)
                self._say(ERROR, f"the {call.kind} of {held.key} failed at its end", error)
                if self._decision(held, error) == "stop":
                    self._stop_because_of(error, now_ms)
            held.enter(Stage.DONE, now_ms)
            self._give_back_if_ended(held, now_ms)
        elif error is not None:
            self._fail(held, error, now_ms)
        elif call.kind is CallKind.WARM:
            held.is_warm = True
            self._queue_up(held, now_ms)
        elif held.is_done:
            held.enter(Stage.DONE, now_ms)
        else:
            held.attempts = 0
            self._wait_until(held, Stage.IDLE, now_ms + self._limits.idle_ms, now_ms)

    def _give_back_if_ended(self, held: HeldPartition, now_ms: int) -> None:
        """Give a revoked partition back, once nothing runs for it."""
        if held.calls:
            return
        self._end(held, "it was given back", now_ms)
        if self.in_session_group or self.stopping_because is None or self.held_partitions:
            self._give_back(held)  # Else the member leaves next, which costs one rebalance.
        self._leave_if_ended(now_ms)

    @property
    def in_session_group(self) -> bool:
        """True if a release costs nobody else anything."""
        return self.member is not None and self.member.releases_cost_nothing

    def _give_back(self, held: HeldPartition, refused: str = "") -> None:
        """Give a partition back once none of its calls is left or awaited."""
        self._owed[held] = refused
        self._give_back_if_owed(held)

    def _give_back_if_owed(self, held: HeldPartition) -> None:
        calls = (call for call in self.left_over if call.held is held)
        if held in self._owed and all(
            call.is_overdue or call.kind is CallKind.LOST for call in calls
        ):
            self._actions.append(actions.GiveBack(held, self._owed.pop(held)))

    def _lose(self, held: HeldPartition, reason: str, now_ms: int) -> None:
        calls = list(held.calls)
        self._end(held, reason, now_ms)
        for call in calls:
            self._cancel(call, now_ms)
        if held.has_started:
            hook = self._call_hook(held, CallKind.LOST, now_ms)
            if hook is not None:
                held.calls.remove(hook)
                self.left_over.append(hook)
        self._leave_if_ended(now_ms)

    def _end(self, held: HeldPartition, reason: str, now_ms: int) -> None:
        held.enter(Stage.ENDED, now_ms)
        held.ends_ms, held.ended_because = 0, reason
        self.left_over += held.calls
        held.calls = []
        del self.held_partitions[held.key]

    def _cancel(self, call: HandlerCall, now_ms: int) -> None:
        if call.is_cancelled:
            return
        call.is_cancelled = True
        self._actions.append(actions.CancelRun(call))
        if not call.is_async and call.held.stage is not Stage.STALLED:
            self._wait_no_more(call, now_ms)  # It had the time until the deadline.
        if not self._ending or self._ending[-1][0] != now_ms + ENDING_MS:
            self._at(now_ms + ENDING_MS, self._still_run)
        self._ending.append((now_ms + ENDING_MS, call))

    def _wait_no_more(self, call: HandlerCall, now_ms: int) -> None:
        """Stop waiting for a call that did not end in time."""
        if call.is_overdue:
            return
        call.is_overdue = True
        if call.held.stage is Stage.STALLED:
            self._give_up_stalled(call, now_ms)
        self._give_back_if_owed(call.held)

    def _still_run(self, now_ms: int) -> None:
        """Log the calls that did not end within `ENDING_MS`, one line for each reason."""
        late: dict[tuple[CallKind, str], list[HandlerCall]] = {}
        while self._ending and self._ending[0][0] <= now_ms:
            call = self._ending.popleft()[1]
            if not call.has_ended:
                reason = call.held.ended_because or "it was told to end"
                late.setdefault((call.kind, reason), []).append(call)
        for (kind, reason), calls in late.items():
            self._log_still_running(kind, reason, calls)
            for call in calls:
                self._wait_no_more(call, now_ms)

    def _log_still_running(self, kind: CallKind, reason: str, calls: list[HandlerCall]) -> None:
        self.counts["overdue runs"] += len(calls)
        for call in calls:
            call.is_named = True
        first, keys = calls[0], spelled(call.held.key for call in calls)
        runner = f"{'coroutine' if first.is_async else 'thread'} {first.name!r}"
        others = f" (and {len(calls) - 1} more)" if len(calls) > 1 else ""
        self._say(
            WARNING,
            f"the {kind} of {keys} still runs in {runner}{others}, though it may not any more "
            f"({reason}); every call on its partition raises, and no other handler of this "
            "partition starts here before it ends",
            call=first,
        )

    def _left_over_ended(self, call: HandlerCall, error: BaseException | None, now_ms: int) -> None:
        if call in self.left_over:
            self.left_over.remove(call)
        self._give_back_if_owed(call.held)
        key = call.held.key
        if error is not None:
            self._say(ERROR, f"the {call.kind} of {key} failed after its holding", error)
        if call.is_named:
            self._say(INFO, f"the {call.kind} of {key} that was left over has ended")
        successor = self.held_partitions.get(key)
        if successor is not None:
            # A partition may be granted before the hook that prepares it has ended.
            was_prepared = call.kind is CallKind.WARM and not call.held.token
            if was_prepared and error is None and not call.is_cancelled:
                successor.is_warm = True
            if successor.stage is Stage.BLOCKED:
                self._queue_up(successor, now_ms)
        self._leave_if_ended(now_ms)

    def _is_blocked(self, held: HeldPartition) -> bool:
        return any(call.held.key == held.key for call in (*self.left_over, *held.calls))

    def _end_of_grace(self, now_ms: int) -> None:
        if now_ms < self._stop_until_ms:
            return
        for held in list(self.held_partitions.values()):
            self._lose(held, "the worker has stopped", now_ms)
        self._at(now_ms + ENDING_MS, self._leave_anyway)

    def _leave_anyway(self, now_ms: int) -> None:
        self._leave()

    def _leave_if_ended(self, now_ms: int) -> None:
        """Leave once every partition is given back and no coroutine runs any more."""
        if self.stopping_because is None or self.held_partitions:
            return
        if not any(call.is_async and not call.is_overdue for call in self.left_over):
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
        held = HeldPartition(key, 0, self._handlers.of(key.topic), holding, now_ms)
        held.stored, held.committed = holding.offset, max(holding.offset, holding.position)
        held.ends_ms, held.ended_because = 0, WARMING_ENDS
        held.enter(Stage.WARMING, now_ms)
        self.warming[key] = held
        if self.stopping_because is not None:
            self._refuse_warming(held, "the worker stops", now_ms)
        elif self._call_hook(held, CallKind.WARM, now_ms) is None:
            held.is_warm = True
            self._actions.append(actions.Ready(held))

    def _drop(self, held: HeldPartition, now_ms: int) -> None:
        """Drop the preparation of a partition that goes to another process."""
        del self.warming[held.key]
        self._leave_over(held, now_ms)
        for call in [call for call in self.left_over if call.held is held]:
            self._cancel(call, now_ms)

    def _preparation_ended(
        self, held: HeldPartition, error: BaseException | None, now_ms: int
    ) -> None:
        """A partition is ready, or refused."""
        if error is None:
            held.is_warm = True
            self._actions.append(actions.Ready(held))
        else:
            self._say(ERROR, f"the warm hook failed for {held.key}", error)
            self._refuse_warming(held, f"{type(error).__name__}: {error}", now_ms)

    def _leave_over(self, held: HeldPartition, now_ms: int) -> None:
        """Make left-over calls of a dropped preparation block the partition's next holding."""
        self.left_over += held.calls
        held.calls = []
        held.enter(Stage.ENDED, now_ms)

    def _refuse_warming(self, held: HeldPartition, reason: str, now_ms: int) -> None:
        self._drop(held, now_ms)
        self._actions.append(actions.Ready(held, reason))

    # --- Failures ---

    def _fail(
        self, held: HeldPartition, error: BaseException, now_ms: int, *, may_retry: bool = True
    ) -> None:
        """Apply the error policy to a failed call."""
        policy = held.handler.policy
        self._note_failure(held, error, now_ms)
        decision = self._decision(held, error)
        if decision == "retry" and not may_retry:
            decision = "release"
        pause_ms = policy.pause_ms(held.attempts)
        nobody_else = self._nobody_else_takes(held, now_ms)
        then = {
            "retry": f"it is called again in {pause_ms} ms",
            "release": f"it was given back here, so it is called again in {pause_ms} ms"
            if nobody_else
            else "the partition is released",
            "stop": "the worker stops",
        }[decision]
        text = f"the handler of {held.key} failed ({held.attempts} in a row); {then}"
        self._say(ERROR, text, error)
        self.counts[decision] += 1
        match decision:
            case "retry":
                held.is_located = False
                self._wait_until(held, Stage.BACKING_OFF, now_ms + pause_ms, now_ms)
            case "release" if nobody_else:
                held.is_located = False
                self._wait_until(held, Stage.PAUSING, now_ms + pause_ms, now_ms)
            case "release":
                self._pauses[held.key] = (held.attempts, now_ms + pause_ms, held.last_error)
                self._unwanted[held.key] = now_ms + UNWANTED_PAUSES * pause_ms
                self._lose(held, "it was released after a failure", now_ms)
                self._give_back(held, held.last_error)
            case "stop":
                held.enter(Stage.DONE, now_ms)
                if held.calls:
                    self._lose(held, "the worker stops after its failure", now_ms)
                self._stop_because_of(error, now_ms)

    def _nobody_else_takes(self, held: HeldPartition, now_ms: int) -> bool:
        """True if a released partition came straight back: no other member takes it.

        Another release would be another rebalance of everybody, with the same result. One that
        costs nothing is made: the coordinator finds out by it.
        """
        if self.in_session_group or held.calls:
            return False
        return now_ms < self._unwanted.get(held.key, 0)

    def _decision(self, held: HeldPartition, error: BaseException) -> OnError:
        if isinstance(error, WrongHandler) or not isinstance(error, Exception):
            return "stop"  # Trying again cannot help; SystemExit, KeyboardInterrupt.
        return held.handler.policy.decide(held.attempts, in_session_group=self.in_session_group)

    def _stop_because_of(self, error: BaseException, now_ms: int) -> None:
        self.errors.append(error)
        self.stop(f"failed: {error!r}", now_ms + self._limits.grace_ms, now_ms, leave=True)

    def _note_failure(self, held: HeldPartition, error: BaseException, now_ms: int) -> None:
        held.attempts += 1
        held.failures += 1
        held.last_error = f"{type(error).__name__}: {error}"
        self.counts["failures"] += 1

    def _still_blocked(self, held: HeldPartition, since_ms: int, now_ms: int) -> None:
        if held.stage is Stage.BLOCKED and held.stage_since_ms == since_ms:
            error = HandlerStillRuns(
                f"the handler of an earlier holding of {held.key} has not ended for "
                f"{now_ms - since_ms} ms"
            )
            self._fail(held, error, now_ms, may_retry=False)

    # --- Progress ---

    def _check_rows(self, held: HeldPartition, now_ms: int) -> None:
        """Note since when rows are known to wait."""
        if held.log_end <= held.committed or not held.is_located:
            held.waits_since_ms = None
        elif held.waits_since_ms is None:
            held.waits_since_ms = now_ms
            for call in held.calls:
                if call.kind is CallKind.HANDLER:
                    self._watch(call, now_ms)

    def _watch(self, call: HandlerCall, now_ms: int) -> None:
        """Check for a stall now, and schedule the next check."""
        timeout_ms, held = self._limits.progress_timeout_ms, call.held
        if timeout_ms is None or call.is_watched or call.has_ended:
            return
        if held.stage is not Stage.RUNNING or held.is_suspended:
            return
        if held.waits_since_ms is None:
            return  # Watched again when rows wait.
        stalls_ms = max(held.progress_ms, held.waits_since_ms) + timeout_ms
        if now_ms < stalls_ms:
            call.is_watched = True  # One timer, however often rows come and are committed.
            self._at(stalls_ms, partial(self._watch_again, call))
            return
        call.verdict = HandlerStalled(
            f"no commit and no sign of life for {timeout_ms} ms (progress_timeout_ms), while rows "
            f"from {held.committed} to {held.log_end} wait"
        )
        self.counts["stalls"] += 1
        self._say(WARNING, f"the handler of {held.key} has stalled: {call.verdict}", call=call)
        held.enter(Stage.STALLED, now_ms)
        self._cancel(call, now_ms)

    def _watch_again(self, call: HandlerCall, now_ms: int) -> None:
        call.is_watched = False
        self._watch(call, now_ms)

    def _give_up_stalled(self, call: HandlerCall, now_ms: int) -> None:
        """Apply the error policy to a stalled handler that has not ended."""
        if call.has_ended or call.held.stage is not Stage.STALLED:
            return
        assert call.verdict is not None
        self._fail(call.held, call.verdict, now_ms, may_retry=False)

    # --- Inside ---

    def _at(self, at_ms: int, callback: Callable[[int], None]) -> None:
        heapq.heappush(self._timers, (at_ms, next(self._numbers), callback))

    def _say(
        self,
        level: int,
        text: str,
        error: BaseException | None = None,
        call: HandlerCall | None = None,
    ) -> None:
        self._actions.append(actions.Say(level, text, error, call))
