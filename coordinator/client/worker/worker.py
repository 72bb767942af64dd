"""`Worker`: handlers for the partitions that a group assigns to this process."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack, get_args, overload

from coordinator.assignors.partitions import spelled
from coordinator.client.group_address import GroupAddress
from coordinator.client.settings.reading import (
    check_names,
    implied_protocol,
    process_of,
    worker_config_of,
)
from coordinator.client.settings.setting import GroupProtocol
from coordinator.client.settings.value_kinds import choice
from coordinator.client.transport.interrupts import EndNow, signals_handled
from coordinator.client.transport.loop_thread import check_process
from coordinator.client.validation import STORES, addresses_of, manifest_of, name_of
from coordinator.client.worker.adapters import GroupSource, RowsFunction, WorkerSource
from coordinator.client.worker.driver import WorkerDriver
from coordinator.client.worker.environment import (
    AT_EXIT,
    Environment,
    environment_here,
    refuse_running_loop,
    run_on_new_loop,
)
from coordinator.client.worker.handlers import (
    COLOURS,
    FORMS,
    AfterAttempts,
    CallKind,
    Drain,
    ErrorPolicy,
    Function,
    Handlers,
    Limits,
    OnError,
    TopicHandler,
    WrongHandler,
    check_function,
    check_number,
)
from coordinator.client.worker.partition import (
    BlockingPartition,
    OneCommit,
    Partition,
    PartitionView,
    to_be_awaited,
)
from coordinator.client.worker.setup import WorkerSetup, member_maker
from coordinator.client.worker.state import WorkerState
from coordinator.client.worker.user_functions import (
    TOPICS_REFRESH_MS,
    BeginOffsets,
    StartPolicy,
    StartRule,
    TopicCounts,
    TopicsFunction,
    WorkerTopics,
)
from coordinator.node_source import Bootstrap

if TYPE_CHECKING:
    from coordinator.client.settings.typed import WorkerSettings

AsyncFunction = Callable[[Partition], Coroutine[Any, Any, object]]
BlockingFunction = Callable[[BlockingPartition], None]
A = TypeVar("A", bound=AsyncFunction)
B = TypeVar("B", bound=BlockingFunction)
R = TypeVar("R", bound=RowsFunction)


class HandlerDecorator(Protocol):
    """Decorator of handlers and hooks; returns the function as it is."""

    @overload
    def __call__(self, function: A, /) -> A: ...
    @overload
    def __call__(self, function: B, /) -> B: ...


class Worker:
    """A member of a group with handlers, one call of a handler for each partition that it holds.

    Nothing happens before `run`, `serve` or `async with`. Methods may be called from any thread
    unless they say otherwise.

    Args:
        bootstrap: one or several HOST:PORT to ask for the coordinator; or the URL of a store,
            sqlite:///jobs, whose nodes this process finds, and runs where there is none, as long
            as it works; or what `embedded` returns.
        topics: topic to number of partitions; or a function that returns that, asked again every
            `topics_refresh_ms`. May be left out with a `source`, whose partitions are counted.
        source: log whose rows `rows` handles.
        start: where a partition without a committed offset begins: "earliest" (0, or what
            `begin_offsets` says), "latest" (what `log_ends` says; for one that appears while the
            worker runs, the earliest) or a function of the partition.
        begin_offsets: returns the first offset of each of the partitions it is given. Its sister
            `log_ends` is a setting of members; a worker also looks at it for idle and stalled
            handlers.
        on_error, max_attempts, after_max_attempts, retry_backoff_ms, retry_backoff_max_ms: see
            `ErrorPolicy`. After the last attempt a worker stops by default; in a session group it
            releases the partition, so that another member gets it.
        idle_ms, progress_timeout_ms, grace_ms, concurrency: see `Limits`.
        protocol: "classic", or "session": the coordinator assigns the partitions, moves them one by
            one, and grants each under a lease and a token. None: the one whose members alone have
            one of the settings; else that of a group which classic members use, or have used last;
            else session.
        name: makes the place stable across restarts, in either protocol: `member_name` of session
            groups, `instance_id` of classic ones.
        settings: see `WorkerSettings`. In classic groups the assignor is cooperative-sticky by
            default, and range where the group demands an eager one.
    Raises:
        TypeError, ValueError: a setting makes no sense.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        group_id: str,
        topics: TopicCounts | TopicsFunction | None = None,
        *,
        source: WorkerSource | None = None,
        start: StartRule = "earliest",
        begin_offsets: BeginOffsets | None = None,
        topics_refresh_ms: int = TOPICS_REFRESH_MS,
        on_error: OnError = "retry",
        max_attempts: int | None = None,
        after_max_attempts: AfterAttempts | None = None,
        retry_backoff_ms: int = 1_000,
        retry_backoff_max_ms: int = 60_000,
        idle_ms: int = 1_000,
        progress_timeout_ms: int | None = 300_000,
        grace_ms: int = 20_000,
        concurrency: int | None = None,
        protocol: GroupProtocol | None = None,
        name: str | None = None,
        **settings: Unpack[WorkerSettings],
    ) -> None:
        protocol = protocol or implied_protocol(settings)
        first = protocol or "session"
        check_names(protocol, settings, worker=inspect.signature(Worker).parameters)
        nodes = None
        if isinstance(bootstrap, str) and bootstrap.startswith(STORES):
            from coordinator.client.embedding import embedded

            bootstrap = nodes = embedded(bootstrap)
        addresses = addresses_of(bootstrap)
        new_member = partial(member_maker, group_id=group_id, bootstrap=bootstrap, name=name)
        policy = ErrorPolicy(
            on_error=on_error,
            max_attempts=max_attempts,
            after_max_attempts=after_max_attempts,
            max_failures=worker_config_of(settings).max_failures,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
        )
        limits = Limits(
            idle_ms=idle_ms,
            progress_timeout_ms=progress_timeout_ms,
            grace_ms=grace_ms,
            concurrency=concurrency,
        )
        if source is not None and not hasattr(source, "of_group"):
            raise TypeError(
                f"source is {source!r}; write source=open_source('parquet:/logs/x'), or derive "
                "your own from coordinator.sources.GroupReadable"
            )
        rows: GroupSource | None = None
        process = process_of(first, settings, bootstrap)
        log_ends = process.log_ends
        if source is not None:
            rows = source.of_group(GroupAddress(addresses, group_id, process.credentials))
            log_ends = log_ends or rows.log_ends
            begin_offsets = begin_offsets or rows.begin_offsets
        if topics is None:
            if rows is None:
                raise TypeError('give topics={"invoices": 12}, or a source')
            topics = rows.topics
        setup = WorkerSetup(
            group_id=group_id,
            new_member=new_member(first, settings=settings, keep_classic=protocol is None),
            or_classic=None if protocol else new_member("classic", settings=settings),
            handlers=Handlers(),
            limits=limits,
            topics=WorkerTopics(topics, topics_refresh_ms),
            start=StartPolicy(start, begin_offsets, log_ends),
            log_ends=log_ends,
            log_ends_interval_s=process.log_ends_interval_s,
            nodes=nodes,
        )
        self._set_up(setup, policy, rows)

    @classmethod
    def of(cls, setup: WorkerSetup, policy: ErrorPolicy) -> Worker:
        """A worker that is set up otherwise: with a member of another kind, say (`consume`)."""
        worker = cls.__new__(cls)
        worker._set_up(setup, policy)
        return worker

    def _set_up(
        self, setup: WorkerSetup, policy: ErrorPolicy, source: GroupSource | None = None
    ) -> None:
        self._setup, self._policy, self._source = setup, policy, source
        self._handlers, self._limits = setup.handlers, setup.limits
        self.environment: Environment | None = None
        """Seam for tests, see `environment.py`; to be set before the start. None: the real one."""
        self._driver: WorkerDriver | None = None
        self._early_stop: tuple[str, int | None, bool] | None = None
        """Arguments of a `stop` that came before the start."""

    def __repr__(self) -> str:
        state = self.state
        held = f" partitions={spelled(state.partitions)}" if state.partitions else ""
        why = f" because={state.stopping_because!r}" if state.stopping_because else ""
        return f"<Worker group={self._setup.group_id!r} state={state.phase}{held}{why}>"

    # --- Registration ---

    @overload
    def handler(self, function: A, /) -> A: ...
    @overload
    def handler(self, function: B, /) -> B: ...
    @overload
    def handler(
        self,
        /,
        *,
        topic: str | None = None,
        drain: Drain = "commit",
        on_error: OnError | None = None,
        max_attempts: int | None = None,
        after_max_attempts: AfterAttempts | None = None,
    ) -> HandlerDecorator: ...
    def handler(
        self,
        function: Any = None,  # Any: the overloads are the types.
        /,
        *,
        topic: str | None = None,
        drain: Drain = "commit",
        on_error: OnError | None = None,
        max_attempts: int | None = None,
        after_max_attempts: AfterAttempts | None = None,
    ) -> Any:
        """Register a handler, as a decorator with or without arguments.

        An `async def` function is given a `Partition` and runs as a task; a `def` function is given
        a `BlockingPartition` and runs in a thread. It is called when its partition is assigned, and
        again after it returned, until the partition is taken away.

        Args:
            topic: whose partitions it handles; None: those of all topics without a handler.
            drain: `commit`: once its partition is being revoked, its next commit ends it.
                `manual`: it looks at `p.revoking`, and returns by itself.
            on_error, max_attempts, after_max_attempts: in place of the worker's.
        Raises:
            WrongHandler: a TypeError: it cannot be called; the message shows the right form.
            ValueError: there is a handler of this topic already.
        """
        if topic is not None:
            topic = name_of("topic", topic)
        choice(*get_args(Drain)).take("drain", drain)
        policy = self._policy.but(on_error, max_attempts, after_max_attempts)

        def register(function: Any) -> Any:
            is_async = check_function(function, "p", FORMS, COLOURS)
            self._handlers.add(topic, TopicHandler(function, is_async, policy, drain))
            return function

        return register if function is None else register(function)

    @overload
    def rows(self, function: R, /) -> R: ...
    @overload
    def rows(
        self,
        /,
        *,
        batch: int = 1_000,
        on_error: OnError | None = None,
        max_attempts: int | None = None,
        after_max_attempts: AfterAttempts | None = None,
    ) -> Callable[[R], R]: ...
    def rows(
        self,
        function: Any = None,  # Any: the overloads are the types.
        /,
        *,
        batch: int = 1_000,
        on_error: OnError | None = None,
        max_attempts: int | None = None,
        after_max_attempts: AfterAttempts | None = None,
    ) -> Any:
        """Register a handler of rows: it is given lists of at most `batch` rows of the source, each
        a dictionary, and the worker commits after each list.

        `def` runs in a thread, `async def` as a task. With two parameters, the first is the
        partition.

        Raises:
            WrongHandler: a TypeError: it cannot be called, or the worker has no source.
        """
        policy = self._policy.but(on_error, max_attempts, after_max_attempts)

        def register(function: Any) -> Any:
            if self._source is None:
                raise WrongHandler(
                    "@worker.rows reads the worker's source: give Worker(..., "
                    "source=open_source(...))"
                )
            self._handlers.add(None, self._source.handler(function, batch, policy))
            return function

        return register if function is None else register(function)

    @property
    def warm(self) -> HandlerDecorator:
        """Decorator of the hook that prepares a partition, before its handler is first called."""
        return partial(self._hook, CallKind.WARM)

    @property
    def drain(self) -> HandlerDecorator:
        """Decorator of the hook that is called when a partition is to be given back, beside its
        handler."""
        return partial(self._hook, CallKind.DRAIN)

    @property
    def lost(self) -> HandlerDecorator:
        """Decorator of the hook that is called when a partition was lost, or released after a
        failure."""
        return partial(self._hook, CallKind.LOST)

    def _hook(self, kind: CallKind, function: Any) -> Any:
        is_async = check_function(function, "p", FORMS.replace("handler", "hook"), COLOURS)
        self._handlers.add_hook(kind, Function(function, is_async))
        return function

    # --- Life ---

    def run(self, *, handle_signals: bool = True) -> None:
        """Work until `stop` or a signal; then the handlers finish, and the group is left.

        In the main thread SIGTERM and SIGINT stop it, and the second one ends it at once, for good
        (see `stop`). One that the process ignores stays ignored, such as SIGINT in background jobs
        of `sh`.

        Args:
            handle_signals: False: signals are left to others.
        Raises:
            RuntimeError: an event loop runs in this thread, or the worker runs already. FatalError:
                the group refuses it. An error of a handler whose policy is to stop; an
                ExceptionGroup, if there are several.
        """
        refuse_running_loop(
            "worker.run() makes an event loop of its own, and one runs in this thread already "
            "(as in Jupyter): use `await worker.serve()`"
        )
        self._check_not_running()
        if environment_here().runs(self.serve, self._stop):
            return
        if not handle_signals:
            run_on_new_loop(self.serve())
            return
        with signals_handled(self._stop):
            try:
                run_on_new_loop(self.serve())
            except EndNow:
                self._end_now()

    async def serve(self) -> None:
        """Work until `stop`; handlers that are coroutines run on this loop.

        A cancellation goes on after the handlers have finished and the group was left; a second
        one cancels the handlers.

        Raises:
            As `run`.
        """
        driver = self._begin()
        try:
            await self._until_finished(driver, stops=False)
        finally:
            self._end(driver)
        self._raise_errors(driver)

    async def __aenter__(self) -> Worker:
        self._begin()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        driver = self._driver
        assert driver is not None
        self.stop("closed" if error is None else f"failed: {error!r}")
        try:
            await self._until_finished(driver, stops=True)
        finally:
            self._end(driver)
        if error is None:
            self._raise_errors(driver)

    def stop(
        self, reason: str = "stopped", *, grace_ms: int | None = None, leave: bool = False
    ) -> None:
        """Have the handlers finish at their next commit, then leave. Returns at once.

        A static worker (`instance_id`) neither leaves nor joins again, so that nothing moves if a
        process of its name returns within its session; the same holds for `return_within_ms`.
        Both leave with `leave=True`, at a second signal, and when an error policy stops them.

        May be called any number of times, from any thread and from handlers. A worker that was
        stopped before its first start ends as soon as it is started.

        Args:
            reason: sent to the coordinator, which shows it in `explain`.
            grace_ms: time until handlers that still run are cancelled; None: the worker's.
            leave: give up a place that is kept for the next process.
        """
        self._stop(reason, grace_ms, leave)

    def _stop(self, reason: str, grace_ms: int | None, leave: bool = False) -> None:
        self._check_pid()
        check_number("grace_ms", grace_ms, 0)
        if self._driver is None:
            self._early_stop = reason, grace_ms, leave
        driver = self._driver  # Another thread may have set it since.
        if driver is not None:
            grace_ms = self._limits.grace_ms if grace_ms is None else grace_ms
            driver.stop(reason, grace_ms, leave=leave)

    # --- Work ---

    @overload
    def commit(
        self, offsets: Mapping[Partition, int], *, atomic: bool = False, manifest: bytes = b""
    ) -> Coroutine[Any, Any, None]: ...
    @overload
    def commit(
        self,
        offsets: Mapping[BlockingPartition, int],
        *,
        atomic: bool = False,
        manifest: bytes = b"",
    ) -> None: ...
    def commit(
        self, offsets: Mapping[Any, int], *, atomic: bool = False, manifest: bytes = b""
    ) -> Coroutine[Any, Any, None] | None:
        """Commit several partitions in one call; awaited if they are those of coroutines.

        Raises as their own `commit`, and ends the handlers of those that are being revoked.

        Args:
            offsets: the next offset to read, by partition as handlers were given it.
            atomic: all partitions or none.
            manifest: stored with the group; at most 64 KiB.
        """
        self._check_pid()
        colours = {type(p) for p in offsets}
        # The worker of the partitions: it may be a copy of this one, which a test runs.
        workers = {p._worker for p in offsets if isinstance(p, PartitionView)}
        if len(workers) != 1 or colours not in ({Partition}, {BlockingPartition}):
            raise TypeError(
                "commit takes offsets by partition, as the handlers of a running worker were "
                "given them, all of one kind: await worker.commit({p: 8, q: 3})"
            )
        running = workers.pop()
        commits = []
        for partition, offset in offsets.items():
            partition._check()
            commits.append(OneCommit(partition._call, offset, "", None))
        manifest = manifest_of(manifest)
        if colours == {Partition}:
            work = partial(running.commit, commits, atomic=atomic, manifest=manifest)
            return to_be_awaited("Worker.commit", running, commits[0].call, work)
        running.commit_blocking(commits, atomic=atomic, manifest=manifest)
        return None

    def copy(self) -> Worker:
        """A worker with the same settings, handlers and hooks that has not been started.

        For tests: as if another process had imported the module that this one was made in.
        """
        made = copy(self)
        made.environment, made._driver, made._early_stop = None, None, None
        return made

    @property
    def state(self) -> WorkerState:
        """State of the worker, by partition; see `WorkerState`."""
        driver = self._driver
        return WorkerState("new") if driver is None else driver.state

    # --- Inside ---

    def _check_not_running(self) -> None:
        self._check_pid()
        if self._driver is not None and not self._driver.finished.done():
            raise RuntimeError("the worker runs already; make another one to run beside it")

    def _check_pid(self) -> None:
        if self._driver is not None:
            check_process(self._driver.pid)

    def _begin(self) -> WorkerDriver:
        self._check_not_running()
        topics = self._setup.topics
        if topics.known or not topics.is_asked_again:
            self._handlers.check(topics.known)
        else:
            self._handlers.check_any()
        environment = self.environment or environment_here()
        if environment.is_virtual and self._source is not None:
            self._source.on_virtual_time()
        driver = WorkerDriver(self._setup, environment, asyncio.get_running_loop())
        if not environment.is_virtual:
            AT_EXIT.add(driver)
        driver.start()
        self._driver = driver
        early, self._early_stop = self._early_stop, None
        if early is not None:
            self._stop(*early)
        return driver

    async def _until_finished(self, driver: WorkerDriver, *, stops: bool) -> None:
        """Wait for the end. A cancellation stops the worker first, and goes on after that."""
        finished = asyncio.wrap_future(driver.finished)
        cancelled: asyncio.CancelledError | None = None
        while not finished.done():
            try:
                await asyncio.shield(finished)
            except asyncio.CancelledError as error:
                grace_ms = 0 if stops else self._limits.grace_ms
                stops, cancelled = True, error
                driver.stop("cancelled", grace_ms)
        if cancelled is not None:
            raise cancelled

    def _end(self, driver: WorkerDriver) -> None:
        if driver.finished.done():
            driver.environment.release()

    def _end_now(self) -> None:
        """Leave after a second signal, without the handlers' loop."""
        driver = self._driver
        if driver is not None:
            driver.end_now()

    def _raise_errors(self, driver: WorkerDriver) -> None:
        errors = driver.core.errors
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise BaseExceptionGroup("several handlers failed", errors)
