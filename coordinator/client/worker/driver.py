"""The driver of a worker: carries out the core's actions on the protocol's loop.

It drives a worker from `serve` to its end. Handlers run on the caller's loop or in threads
(`executor.py`); only values cross: what they ask comes here by `Environment.post`.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from coordinator.client.errors import FatalError, StaleMember
from coordinator.client.member.calls import Code
from coordinator.client.member.events import Granted, Stopping
from coordinator.client.member.face import Member
from coordinator.client.member.ledger import FOREVER_MS
from coordinator.client.member.state import member_name
from coordinator.client.offsets import OffsetAndMetadata
from coordinator.client.transport.process_environment import follow
from coordinator.client.validation import log_ends_returned
from coordinator.client.worker import actions
from coordinator.client.worker.core import WorkerCore
from coordinator.client.worker.environment import Environment
from coordinator.client.worker.executor import HandlerExecutor, LoopWatch
from coordinator.client.worker.handlers import PartitionRevoked
from coordinator.client.worker.held_partition import HandlerCall, HeldPartition
from coordinator.client.worker.partition import OneCommit
from coordinator.client.worker.setup import WorkerSetup
from coordinator.client.worker.state import WorkerMetrics, WorkerState, state_of
from coordinator.client.worker.user_functions import UserCalls

T = TypeVar("T")
LOGGER = logging.getLogger("coordinator.client")
LAST_WAIT_S = 2.0
"""Time that the second signal leaves for leaving the group."""


class WorkerDriver:
    """Drives a worker once.

    Args:
        handler_loop: where `async def` handlers run.
    """

    def __init__(
        self, setup: WorkerSetup, environment: Environment, handler_loop: asyncio.AbstractEventLoop
    ) -> None:
        self.environment = environment
        self.pid = os.getpid()
        self.group_id = setup.group_id
        self.core = WorkerCore(setup.handlers, setup.limits)
        self.member: Member | None = None
        self._owner_on_change: Callable[[], object] = lambda: None
        self._grants = 0
        """Events that granted partitions."""
        self.finished: Future[None] = Future()
        """Done when the group is left and nothing is to be done any more."""
        self.is_over = False
        """True if handlers have no time left: none starts any more, and an end is no failure."""
        self._setup = setup
        self._loop = environment.acquire()
        self._user_calls = UserCalls(environment, self._loop)
        self._executor = HandlerExecutor(self, setup.handlers, setup.group_id, handler_loop)
        self._watch = LoopWatch(handler_loop, self._executor, self._log, self._loop_blocked)
        self._metrics = WorkerMetrics.of(setup.group_id)
        self._revoked: dict[HeldPartition, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_woken = False
        self._next_step = asyncio.Event()
        """Set after the next step, when leases may have been renewed."""
        self._left: asyncio.Event | None = None
        self._reason = "stopped"

    # --- Life ---

    def start(self) -> None:
        """Begin, on the protocol's loop."""
        self.environment.post(lambda: self._keep(self._live()))

    def stop(self, reason: str, grace_ms: int, *, leave: bool = False) -> None:
        """Have the handlers finish, then leave. From any thread, and from signal handlers."""
        self.is_over = self.is_over or grace_ms == 0
        self.environment.post(self._stop, reason, grace_ms, leave)

    def _stop(self, reason: str, grace_ms: int, leave: bool = False) -> None:
        now_ms = self.environment.now_ms()
        self.core.stop(reason, now_ms + grace_ms, now_ms, leave=leave)
        self._wake()

    def end_now(self) -> None:
        """Wait for the end after `stop`, for a short time, in a thread without a loop."""
        with contextlib.suppress(TimeoutError):
            self.finished.result(LAST_WAIT_S)
            self.environment.release()

    async def _live(self) -> None:
        self._left = asyncio.Event()
        setup = self._setup
        helpers: list[asyncio.Task[Any]] = []
        try:
            first = await self._unless_stopped(self._first_member(setup))
            if first is not None:
                await self._take(*first)
                self._wake()
                helpers = [self._keep(self._follow_topics()), self._keep(self._follow_log_ends())]
                if not (self.environment.is_virtual or setup.blocks_loop):
                    helpers.append(self._keep(self._watch_handlers()))
                await self._left.wait()
        except Exception as error:  # noqa: BLE001  # `run` raises it.
            self.core.errors.append(error)
        finally:
            for task in helpers:
                task.cancel()
            if self.member is not None:
                await self._let_go(self.member)
            if self._setup.nodes is not None:
                await self._user_calls.in_thread(self._setup.nodes.close)
            self._update_metrics()
            if self._timer is not None:
                self._timer.cancel()
            for task in self._tasks - {asyncio.current_task()}:
                task.cancel()
            await asyncio.gather(*(self._tasks - {asyncio.current_task()}), return_exceptions=True)
            self.finished.set_result(None)

    async def _take(self, member: Member, topics: Mapping[str, int]) -> None:
        """Start working for a member. A borrowed one repeats the events its owner has received."""
        self.member = self.core.member = member
        self._owner_on_change, member.on_change = member.on_change, self._wake
        await member.start()
        member.set_unwanted(lambda: self.core.unwanted(self.environment.now_ms()))
        if self._setup.is_lent:
            member.count_as_poll()
            now_ms = self.environment.now_ms()
            for event in member.machine.standing_events():
                self.core.receive(event, now_ms)
            await self._declare(member, topics)

    async def _declare(self, member: Member, topics: Mapping[str, int]) -> None:
        """Declare topics, unless a borrowed member already knows of more."""
        known = member.machine.topics if self._setup.is_lent else {}
        more = {name: max(count, known.get(name, 0)) for name, count in topics.items()}
        if not more.items() <= known.items():
            await member.subscribe({**known, **more})

    async def _let_go(self, member: Member) -> None:
        """Close the member, or return a borrowed one to its owner."""
        if self._setup.is_lent:
            member.set_unwanted(tuple)
            member.on_change = self._owner_on_change
        else:
            await member.close(self._reason)

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of `work`; None: the worker was stopped meanwhile."""
        working = asyncio.ensure_future(work)
        assert self._left is not None
        left = asyncio.ensure_future(self._left.wait())
        await asyncio.wait({working, left}, return_when=asyncio.FIRST_COMPLETED)
        left.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait({working})
            return None
        return working.result()

    async def _first_member(self, setup: WorkerSetup) -> tuple[Member, Mapping[str, int]]:
        """The member, and the topics to begin with."""
        if setup.nodes is not None and not self.environment.is_virtual:
            await self._user_calls.in_thread(setup.nodes.open)  # Sources may ask them.
        topics = setup.topics.first = await setup.topics.request(self._user_calls)
        setup.handlers.check(topics)
        member = setup.new_member(topics, self.environment)
        if setup.or_classic is not None and await self._is_of_classic_group(member):
            self._log(
                logging.INFO,
                "the group is one of classic members, so this worker is one too; to move it, stop "
                "them all, and start workers with protocol='session'",
            )
            member = setup.or_classic(topics, self.environment)
        return member, topics

    async def _is_of_classic_group(self, member: Member) -> bool:
        """Start a session member and await the first reply; True: it was refused, and is closed."""
        changed = asyncio.Event()
        member.on_change = changed.set
        try:
            await member.start()
            status = member.machine.part.status
            while member.failure is None and not (status().member_id or status().failure):
                changed.clear()
                await changed.wait()
        except asyncio.CancelledError:
            await member.close(self._reason)
            raise
        failure = member.failure
        if not isinstance(failure, FatalError) or failure.code != Code.INCONSISTENT_GROUP_PROTOCOL:
            return False
        await member.close()
        return True

    @property
    def state(self) -> WorkerState:
        """State of the worker; from any thread."""
        member = self.member
        phase = "connecting" if member is None else member.state
        if self.finished.done():
            phase = "stopped"
        member_id = "" if member is None else member.member_id
        return state_of(self.core, phase, member_id, self._grants, self._watch.blocked_by)

    # --- Turns ---

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._advance)

    def _advance(self) -> None:
        self._is_woken = False
        try:
            self._take_step()
        except Exception as error:  # noqa: BLE001  # A bug: `run` raises it, and nothing is held.
            self.core.errors.append(error)
            self._carry_out(actions.LeaveMember(f"failed: {error!r}"))

    def _take_step(self) -> None:
        now_ms = self.environment.now_ms()
        next_step, self._next_step = self._next_step, asyncio.Event()
        if self.member is not None:
            self._receive(self.member, now_ms)
        while (action := self.core.next_action(now_ms)) is not None:
            self._carry_out(action)
        self._update_metrics()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self.core.next_deadline()
        if deadline_ms is not None and not self.finished.done():
            pause_s = max(0, deadline_ms - self.environment.now_ms()) / 1000
            self._timer = self._loop.call_later(pause_s, self._wake)
        next_step.set()

    def _receive(self, member: Member, now_ms: int) -> None:
        for event in member.take_events():
            self._grants += isinstance(event, Granted)
            if isinstance(event, Stopping) and member.failure is not None:
                self.core.errors.append(member.failure)
            self.core.receive(event, now_ms)

    def _carry_out(self, action: actions.WorkerAction) -> None:
        match action:
            case actions.Locate(held_partitions):
                self._keep(self._locate(held_partitions))
            case actions.StartHandler(call):
                self._executor.start(call)
            case actions.NotifyRevoking(held):
                self._executor.notify_revoking(held)
                self._set_revoked(held)
            case actions.CancelRun(call):
                self._set_revoked(call.held)
                self._executor.cancel(call)
            case actions.GiveBack() | actions.Ready() if (
                self._setup.is_lent and self.core.stopping_because
            ):
                pass  # The member's owner goes on with what it holds.
            case actions.GiveBack(held, "") if self.member is not None:
                # A join that is replaced in the same turn is never sent: all share the last one.
                position = held.committed if held.is_located else -1
                self.member.released(held.holding, position)
            case actions.Ready(held, "") if self.member is not None:
                self.member.ready(held.holding)
            case actions.GiveBack(held, refused) | actions.Ready(held, refused) if (
                self.member is not None
            ):
                self.member.refuse(held.holding, refused)
            case actions.StartDrain(reason, within_ms, leave):
                self._drain(reason, within_ms, leave=leave)
            case actions.LeaveMember(reason):
                self._reason = reason
                if self._left is not None:
                    self._left.set()
            case actions.Say(level, text, error, call):
                stack = "" if call is None else self._executor.stack_of(call)
                self._log(level, text + stack, error)

    def _drain(self, reason: str, within_ms: int, *, leave: bool) -> None:
        by_order = False
        if self.member is not None and not self._setup.is_lent:
            by_order = self.member.drain(max(1, within_ms), reason, leave=leave)
        self.core.draining(self.environment.now_ms(), by_order=by_order)

    def _log(self, level: int, text: str, error: BaseException | None = None) -> None:
        group_id = self._setup.group_id
        member_id = self.member.member_id if self.member is not None else ""
        name = member_name(group_id, member_id)
        fields = {"group": group_id, "member": member_id}
        LOGGER.log(level, "%s: %s", name, text, exc_info=error, extra=fields)

    def _loop_blocked(self) -> None:
        self.core.counts["blocked loops"] += 1
        self._update_metrics()

    def _update_metrics(self) -> None:
        if self._metrics is not None and not self._metrics.update(self.core):
            self._metrics = None

    # --- Asked by handlers ---

    def lasts_until_ms(self, held: HeldPartition) -> int:
        """See `Calls`."""
        return FOREVER_MS if self.member is None else self.member.ends_ms(held.holding)

    def report(self, call: HandlerCall, subject: str, offset: int = -1) -> None:
        """See `Calls`."""
        self.environment.post(self._reporting, call, subject, offset)

    def _reporting(self, call: HandlerCall, subject: str, offset: int) -> None:
        held, now_ms = call.held, self.environment.now_ms()
        if held.has_ended or call.is_cancelled:
            return
        match subject:
            case "alive":
                self.core.alive(held, now_ms)
                self._show_progress()
            case "done":
                self.core.done(held)
            case "forgotten":
                self.core.forgot_await(held)
                self._wake()
            case "log_end":
                self.core.log_end(held, offset, now_ms)
                self._wake()

    def ended(self, call: HandlerCall, error: BaseException | None) -> None:
        """A call has ended; from any thread."""
        if error is not None:
            self.environment.failed(call.name, error)
        self.environment.post(self._run_ended, call, error)

    def _run_ended(self, call: HandlerCall, error: BaseException | None) -> None:
        self._executor.forget(call)
        if error is None:  # So does a handler that finds no rows, each time it has looked.
            self._show_progress()
        self.core.ended(call, error, self.environment.now_ms())
        self._wake()

    def _show_progress(self) -> None:
        if self.member is not None:
            self.member.alive()

    async def commit(self, commits: Sequence[OneCommit], *, atomic: bool, manifest: bytes) -> None:
        """See `Calls`."""
        await self._crossing(self._commit(commits, atomic=atomic, manifest=manifest))
        self._executor.end_if_revoked(commits)

    async def _crossing(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the protocol's loop, for a handler on another loop."""
        if asyncio.get_running_loop() is self._loop:
            return await work
        answer = asyncio.wrap_future(self._submit(work))
        try:
            return await answer
        finally:
            if answer.done() and not answer.cancelled():
                answer.exception()  # It may have come when the handler was cancelled already.

    def commit_blocking(
        self, commits: Sequence[OneCommit], *, atomic: bool, manifest: bytes
    ) -> None:
        """See `Calls`."""
        work = self._commit(commits, atomic=atomic, manifest=manifest)
        try:
            self._wait(work)
        except StaleMember as error:
            if any(commit.call.held.ends_ms == 0 for commit in commits):
                raise PartitionRevoked(str(error)) from error
            raise
        self._executor.end_if_revoked(commits)

    async def until_may_begin(self, call: HandlerCall) -> None:
        """See `Calls`."""
        if not self.core.may_begin(call.held):
            await self._crossing(self._until_may_begin(call))

    def until_may_begin_blocking(self, call: HandlerCall) -> None:
        """See `Calls`."""
        if not self.core.may_begin(call.held):
            self._wait(self._until_may_begin(call))

    async def _until_may_begin(self, call: HandlerCall) -> None:
        """Return when new work may be begun, or the holding has ended: the next call says so."""
        while not (call.held.has_ended or call.is_cancelled or self.core.may_begin(call.held)):
            await self._next_step.wait()

    def wait_revoking(self, held: HeldPartition, timeout_s: float | None) -> bool:
        """See `Calls`."""
        return self._wait(self._until_revoked(held, timeout_s))

    async def _until_revoked(self, held: HeldPartition, timeout_s: float | None) -> bool:
        if held.is_revoking or held.has_ended:
            return True
        event = self._revoked.setdefault(held, asyncio.Event())
        try:
            async with asyncio.timeout(timeout_s):
                return await event.wait()
        except TimeoutError:
            return False

    def _set_revoked(self, held: HeldPartition) -> None:
        event = self._revoked.pop(held, None)
        if event is not None:
            event.set()

    async def _commit(self, commits: Sequence[OneCommit], *, atomic: bool, manifest: bytes) -> None:
        member = self.member
        assert member is not None
        await member.commit(
            {c.call.held.key: OffsetAndMetadata(c.offset, c.metadata) for c in commits},
            expected={c.call.held.key: c.expected for c in commits if c.expected is not None},
            atomic=atomic,
            manifest=manifest,
            holdings=[commit.call.held.holding for commit in commits],
            waits=True,
        )
        now_ms, deadline_ms = self.environment.now_ms(), self.core.next_deadline()
        for commit in commits:
            self.core.committed(commit.call.held, commit.offset, commit.metadata, now_ms)
        if self.core.next_deadline() != deadline_ms:
            self._wake()

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the protocol's loop, with the contextvars of the caller."""
        future: Future[T] = Future()
        context = contextvars.copy_context()

        def begin() -> None:
            follow(self._keep(work, context), future, self.environment.post)

        if self.finished.done() or not self.environment.post(begin):
            work.close()
            future.cancel()
        return future

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self.environment.result_of(self._submit(work))
        except CancelledError:
            raise PartitionRevoked("the worker has stopped") from None

    # --- Inside ---

    def _keep(
        self, work: Coroutine[Any, Any, T], context: contextvars.Context | None = None
    ) -> asyncio.Task[T]:
        task = self._loop.create_task(work, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _locate(self, held_partitions: Sequence[HeldPartition]) -> None:
        """Find out where each partition begins, and notify the core."""
        setup, member = self._setup, self.member
        assert member is not None
        committed: dict[HeldPartition, OffsetAndMetadata] = {}
        begins: dict[HeldPartition, int] = {}
        error: Exception | None = None
        try:
            stored = await member.committed_with_metadata([held.key for held in held_partitions])
            committed = {held: stored[held.key] for held in held_partitions}
            begins = await setup.start.begins(self._user_calls, setup.topics.first, committed)
        except Exception as failure:  # noqa: BLE001  # The error policy decides.
            error = failure
        now_ms = self.environment.now_ms()
        for held in held_partitions:
            if error is not None:
                self.core.not_located(held, error, now_ms)
            else:
                commit = committed[held]
                self.core.located(held, commit.offset, begins[held], commit.metadata, now_ms)
        self._wake()

    async def _watch_handlers(self) -> None:
        """Stop the worker if the handlers' loop ends: nobody would work on its partitions."""
        await self._watch.run()
        self._stop("the event loop of the handlers was closed", 0)

    async def _follow_topics(self) -> None:
        """Ask for the topics again and again; a change has the member join again."""
        topics, member = self._setup.topics, self.member
        assert member is not None
        while topics.is_asked_again:
            await asyncio.sleep(topics.refresh_ms / 1000)
            before = topics.known
            try:
                now = await topics.request(self._user_calls)
                self._setup.handlers.check(now)
            except Exception as error:  # noqa: BLE001  # The user's function may raise anything.
                topics.known = before
                self._log(logging.WARNING, f"the topics cannot be asked for: {error!r}")
                continue
            if now != before:
                self._log(logging.INFO, f"the topics have changed from {before} to {now}")
                await self._declare(member, now)

    async def _follow_log_ends(self) -> None:
        """Ask where the logs end, and report it for lag, again and again."""
        setup, member = self._setup, self.member
        assert member is not None
        while True:
            await asyncio.sleep(setup.log_ends_interval_s)
            held_partitions = dict(self.core.held_partitions)
            if setup.log_ends is not None and held_partitions:
                try:
                    changed = await self._user_calls.in_thread(
                        setup.log_ends, frozenset(held_partitions)
                    )
                    logs = log_ends_returned("log_ends", changed)
                except Exception as error:  # noqa: BLE001  # Sources may raise anything.
                    self._log(logging.WARNING, f"where the logs end cannot be asked: {error!r}")
                    continue
                now_ms = self.environment.now_ms()
                for key, held in held_partitions.items():
                    if key in logs and not held.has_ended:
                        held.log_begin = max(held.log_begin, logs[key].start)
                        self.core.log_end(held, logs[key].stop, now_ms)
                self._wake()
            known = [held for held in self.core.held_partitions.values() if held.log_end >= 0]
            if known:
                await member.report(
                    {ends.key: range(ends.log_begin, ends.log_end) for ends in known}
                )
