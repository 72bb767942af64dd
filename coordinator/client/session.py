"""`GroupMember`: a member for asyncio.

The machine (`machine.py`) decides, the driver carries out. `GroupMember` passes the owner's calls
to the machine, has the driver take a turn, and waits for the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random as random_module
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

from coordinator.assignors import TopicPartition
from coordinator.client.connection import Connection
from coordinator.client.driver import Driver
from coordinator.client.errors import StaleMember
from coordinator.client.events import RebalanceEvent, Stopping
from coordinator.client.forms import (
    addresses_of,
    expected_of,
    manifest_of,
    offsets_of,
    partitions_of,
    timeout_ms_of,
)
from coordinator.client.holdings import Holding
from coordinator.client.interrupts import SignalGuard, closing_reason
from coordinator.client.log_ends import report_log_ends
from coordinator.client.loop_thread import check_process, is_forked_from
from coordinator.client.machine import MemberMachine
from coordinator.client.offsets import Commit, OffsetAndMetadata, Offsets
from coordinator.client.operations import GIVE_UP_MS
from coordinator.client.settings import MemberSettings, member_config, remarks
from coordinator.client.surroundings import SURROUNDINGS
from coordinator.client.view import MemberView
from coordinator.dial import Credentials

if TYPE_CHECKING:
    from coordinator.sources.base import Source

LOG_ENDS_INTERVAL_S = 5.0
TIMEOUT_S = GIVE_UP_MS / 1000


def epoch_ms() -> int:
    """Milliseconds since the epoch; monotonic within a process."""
    surroundings = SURROUNDINGS.get()
    if surroundings is not None:
        return surroundings.now_ms()
    return _EPOCH_OFFSET_MS + time.monotonic_ns() // 1_000_000


_EPOCH_OFFSET_MS = (time.time_ns() - time.monotonic_ns()) // 1_000_000


class GroupMember(MemberView):
    """A member of a group, on the running event loop.

    Threads: its coroutines are awaited on the loop that runs `start`; `alive`, `holds`, `state` and
    the other properties may be used in any thread. As the protocol runs on that loop, code that
    blocks it keeps heartbeats from being sent: for longer than the session, and the partitions are
    lost. Processes: a forked child cannot use it.

    Signals: see `MemberSettings.handle_signals`, for `async with` in the main thread.

    Args:
        bootstrap: one or several HOST:PORT to ask for the coordinator; the port defaults to 7400.
        topics: topic to number of partitions.
        settings: see `MemberSettings`.
    Raises:
        TypeError, ValueError: an argument is wrong; the message shows the right form.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        group_id: str,
        topics: Mapping[str, int],
        **settings: Unpack[MemberSettings],
    ) -> None:
        config = member_config(group_id, topics, settings)
        self._bootstrap = addresses_of(bootstrap)
        self._credentials = settings.get("credentials") or Credentials.from_environment()
        clock = settings.get("clock", epoch_ms)
        random = settings.get("random", random_module.random)
        self._machine = MemberMachine(config, self._bootstrap, random)
        self._clock = clock
        self._connection = Connection(
            self._credentials,
            config.heartbeat_interval_ms / 1000,
            self._beat_now,
            random,
        )
        self._driver = Driver(self._machine, self._connection, clock, self._tell)
        self._log_ends = settings.get("log_ends")
        self._log_ends_interval_s = settings.get("log_ends_interval_s", LOG_ENDS_INTERVAL_S)
        self._reporting: asyncio.Task[None] | None = None
        self._remarks = remarks(config, settings)
        self._handles_signals = settings.get("handle_signals", True)
        self._guard: SignalGuard | None = None
        self.pid: int | None = None
        """Id of the process that has started it; None: none has."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told = asyncio.Event()

    def _seen(self) -> tuple[MemberMachine, int]:
        check_process(self.pid)
        return self._machine, self._clock()

    def in_group(self, source: Source) -> Source:
        """A source whose files are in the order that the member's group has recorded."""
        from coordinator.client.group_files import in_group  # See log_ends.py.

        return in_group(source, self._bootstrap, self.group_id, self._credentials)

    def parts(self) -> tuple[MemberMachine, Driver, Callable[[], int]]:
        """Machine, driver and clock, for a worker that takes the place of polling."""
        self._check_loop()
        return self._machine, self._driver, self._clock

    # --- Life ---

    async def start(self) -> None:
        """Begin to join, in the background; `poll` returns the events."""
        if self._loop is not None:
            self._check_loop()
            return
        self._loop = asyncio.get_running_loop()
        self.pid = os.getpid()
        for level, text in self._remarks:
            self._machine.membership.log(level, text)
        self._machine.start(self._clock())
        self._driver.turn()
        if self._log_ends is not None:
            reports = report_log_ends(
                self._log_ends, self._machine, self._report, self._log_ends_interval_s
            )
            self._reporting = self._loop.create_task(reports)

    async def close(self, reason: str = "closed", *, leave: bool | None = None) -> None:
        """Stop, and leave the group so that it rebalances at once.

        Commits under way have two seconds to be answered; no new one is accepted. A static member
        does not leave: its place is kept for a process that returns under its instance id, until
        the session expires.

        Args:
            reason: sent to the coordinator.
            leave: leave the group, or not; None: unless the member is static.
        """
        self._check_loop()
        self._machine.close(reason, self._clock(), leave=leave)
        if self._reporting is not None:
            self._reporting.cancel()
            await asyncio.gather(self._reporting, return_exceptions=True)
        await self._driver.until_closed()

    async def __aenter__(self) -> GroupMember:
        await self.start()
        if self._handles_signals:
            self._guard = SignalGuard(_cancel_this_task())
            self._guard.install()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if is_forked_from(self.pid):
            return  # The member is the parent's.
        guard = self._guard
        signalled = guard.error if guard is not None else None
        is_cancelled = isinstance(error, asyncio.CancelledError)
        try:
            await self.close(closing_reason(signalled if signalled and is_cancelled else error))
        finally:
            if guard is not None:
                guard.remove()
                if guard.error is not None:
                    await guard.has_left()

    async def poll(
        self,
        timeout: float | None = 0.0,  # noqa: ASYNC109  # BlockingMember.poll has it as well.
    ) -> list[RebalanceEvent]:
        """Return the rebalance events since the last call, and count it as progress.

        It also gives back the partitions that the last call announced as `Revoking`. A partition is
        held from the call that returns it in `Assigned` on: commits are for the partitions as the
        last call handed them out.

        Args:
            timeout: seconds to wait if there is no event; the wait counts as progress. None: until
                there is one.
        Raises:
            FatalError: the group refuses this member; what it held is lost.
        """
        self._check_loop()
        seconds = None if timeout is None else timeout_ms_of(timeout) / 1000
        machine = self._machine
        machine.poll_begins(self._clock())
        self._driver.turn()
        try:
            await self._wait_for_events(seconds)
        finally:
            machine.poll_ends(self._clock())
        if machine.failure is not None:
            raise machine.failure
        events = machine.hand_out(self._clock())
        self._driver.turn()
        return events

    async def _wait_for_events(self, seconds: float | None) -> None:
        if seconds == 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._machine.events and not self._machine.has_stopped:
                    self._told.clear()
                    await self._told.wait()

    async def events(self) -> AsyncIterator[RebalanceEvent]:
        """Iterate over the events of `poll`; ends after `Stopping`."""
        while True:
            for event in await self.poll(timeout=1.0):
                yield event
                if isinstance(event, Stopping):
                    return

    # --- Offsets ---

    async def commit(
        self,
        offsets: Offsets,
        *,
        atomic: bool = False,
        expected: Mapping[TopicPartition, int] | None = None,
        manifest: bytes = b"",
        holdings: Holding | Collection[Holding] | None = None,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109  # BlockingMember.commit has it as well.
    ) -> None:
        """Commit offsets; returns when they are durable.

        A commit is for the partitions as the last `poll` handed them out, or for `holdings`. If one
        of them has been given back or lost since, nothing is sent, even if the partition is
        assigned again. During a cooperative rebalance it may wait for the new generation.

        Args:
            offsets: the next offset to read, by partition.
            atomic: all partitions or none.
            expected: offsets that must be the ones stored now; -1: none.
            manifest: stored with the group; at most 64 KiB.
            holdings: one for each of the partitions, if a handler commits that does not poll.
            timeout: seconds to try for; the error says what it has waited for.
        Raises:
            StaleMember, CommitFailed: it was refused; here, if the message says that nothing was
                sent, or by the coordinator.
            OffsetMismatch: an expected offset was not the stored one.
            RebalanceInProgress: the group was between assignments until the timeout.
            Unavailable: no coordinator answered before the timeout, with retries. The commit may
                be stored.
        """
        self._check_loop()
        commit = Commit(
            offsets_of(offsets), expected_of(expected or {}), atomic, manifest_of(manifest)
        )
        shown = (holdings,) if isinstance(holdings, Holding) else holdings
        timeout_ms = timeout_ms_of(timeout)
        try:
            begun = self._machine.commit(commit, shown, self._clock(), timeout_ms)
        except StaleMember:
            self._driver.turn()  # It is logged.
            raise
        await self._driver.result_of(begun)

    async def committed(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109  # As `commit`.
    ) -> dict[TopicPartition, int]:
        """Committed offsets; -1 where there is none.

        Args:
            partitions: to ask for; None: all that are stored.
            timeout: seconds to try for.
        Raises:
            Unavailable: no coordinator answered before the timeout, with retries.
        """
        found = await self.committed_with_metadata(partitions, timeout=timeout)
        return {key: commit.offset for key, commit in found.items()}

    async def committed_with_metadata(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109  # As `commit`.
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets with their metadata; otherwise as `committed`."""
        self._check_loop()
        asked = None if partitions is None else partitions_of(partitions)
        if asked == ():
            return {}
        fetch = self._machine.fetch(asked, self._clock(), timeout_ms_of(timeout))
        await self._driver.result_of(fetch)
        return fetch.value

    # --- Inside ---

    async def _report(self, ends: Mapping[TopicPartition, int]) -> bool:
        report = self._machine.report(ends, self._clock())
        await self._driver.result_of(report)
        return report.is_known

    def _beat_now(self) -> None:
        self._machine.beat_now(self._clock())
        self._driver.turn()

    def _tell(self) -> None:
        if self._machine.events or self._machine.has_stopped:
            self._told.set()

    def _check_loop(self) -> None:
        check_process(self.pid)
        if self._loop not in (None, asyncio.get_running_loop()):
            raise RuntimeError(
                "a GroupMember is called on the event loop that started it; BlockingMember may be "
                "called from any thread"
            )


def _cancel_this_task() -> Callable[[], object]:
    """Function that cancels the current task, to be called from a signal handler."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    return lambda: loop.call_soon_threadsafe(task.cancel)
