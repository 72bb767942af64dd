"""`LoopMember`: what the asyncio members of both protocols share.

Such a member belongs to the loop that has started it. The machine decides, the driver carries out;
the member passes its owner's calls to the machine, has the driver take a turn, and waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Generic, Self, TypeVar

from coordinator.assignors import TopicPartition
from coordinator.client.errors import StaleMember
from coordinator.client.forms import (
    expected_of,
    manifest_of,
    offsets_of,
    partitions_of,
    timeout_ms_of,
)
from coordinator.client.group_address import GroupAddress
from coordinator.client.member.calling import CallingMachine
from coordinator.client.member.operations import GIVE_UP_MS, Operation
from coordinator.client.offsets import Commit, OffsetAndMetadata, Offsets
from coordinator.client.transport.driver import Driver
from coordinator.client.transport.interrupts import SignalGuard, closing_reason
from coordinator.client.transport.loop_thread import check_process, is_forked_from
from coordinator.dial import Credentials

M = TypeVar("M", bound=CallingMachine)

TIMEOUT_S = GIVE_UP_MS / 1000


class LoopMember(ABC, Generic[M]):
    """A member on the running event loop.

    Attributes:
        group_address: address of its group.
        pid: id of the process that has started it; None: none has.
    """

    BLOCKING: ClassVar[str]
    """Name of the class whose members any thread may call."""
    _driver: Driver

    def __init__(
        self,
        machine: M,
        clock: Callable[[], int],
        bootstrap: list[str],
        group_id: str,
        credentials: Credentials,
        *,
        handles_signals: bool,
    ) -> None:
        self._machine, self._clock = machine, clock
        self.group_address = GroupAddress(bootstrap, group_id, credentials)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told = asyncio.Event()
        self.pid: int | None = None
        self._handles_signals = handles_signals
        self._guard: SignalGuard | None = None

    @property
    @abstractmethod
    def _has_news(self) -> bool:
        """True if the owner, who waits, is to be told something."""

    @abstractmethod
    async def start(self) -> None:
        """Begin, in the background, on the running loop."""

    @abstractmethod
    async def close(self, reason: str = "closed") -> None:
        """Stop, and tell the group."""

    async def __aenter__(self) -> Self:
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

    def parts(self) -> tuple[M, Driver, Callable[[], int]]:
        """Machine, driver and clock, for a worker that takes the place of polling."""
        self._check_loop()
        return self._machine, self._driver, self._clock

    # --- Offsets ---

    async def committed(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109  # As that of blocking members.
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
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109  # As `committed`.
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

    def _takes_loop(self) -> bool:
        """Bind the member to the running loop; False if it is already."""
        self._check_loop()
        if self._loop is not None:
            return False
        self._loop = asyncio.get_running_loop()
        self.pid = os.getpid()
        return True

    def _check_loop(self) -> None:
        check_process(self.pid)
        if self._loop not in (None, asyncio.get_running_loop()):
            raise RuntimeError(
                f"a {type(self).__name__} is called on the event loop that started it; "
                f"{self.BLOCKING} may be called from any thread"
            )

    def _tell(self) -> None:
        if self._has_news:
            self._told.set()

    async def _wait_for_news(self, timeout: float | None) -> None:  # noqa: ASYNC109  # As `poll`.
        if timeout == 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not self._has_news:
                    self._told.clear()
                    await self._told.wait()

    async def _commit(self, commit: Commit, begin: Callable[[Commit], Operation]) -> None:
        """Wait for the end of a commit; one that is refused at once has been logged."""
        try:
            begun = begin(commit)
        except StaleMember:
            self._driver.turn()  # It is logged.
            raise
        await self._driver.result_of(begun)


def _cancel_this_task() -> Callable[[], object]:
    """Function that cancels the current task, to be called from a signal handler."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    return lambda: loop.call_soon_threadsafe(task.cancel)


def commit_of(
    offsets: Offsets,
    expected: Mapping[TopicPartition, int] | None,
    manifest: bytes,
    *,
    atomic: bool,
) -> Commit:
    """A commit as its caller has written it. Raises TypeError, ValueError: it shows the form."""
    return Commit(offsets_of(offsets), expected_of(expected or {}), atomic, manifest_of(manifest))
