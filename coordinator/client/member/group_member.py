"""`GroupMember`: a member for asyncio.

The machine (`machine.py`) decides, the driver carries out. `GroupMember` passes the owner's calls
to the machine, has the driver take a turn, and waits for the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

from coordinator.assignors import TopicPartition
from coordinator.client.forms import (
    addresses_of,
    timeout_ms_of,
    topics_of,
)
from coordinator.client.log_ends import report_log_ends
from coordinator.client.member.events import RebalanceEvent, Stopping
from coordinator.client.member.ledger import Holding
from coordinator.client.member.machine import MemberMachine
from coordinator.client.member.on_loop import TIMEOUT_S, LoopMember, commit_of
from coordinator.client.member.view import MemberView
from coordinator.client.offsets import Offsets
from coordinator.client.settings.reading import config_of, process_of, remarks
from coordinator.client.transport.connection import Connection
from coordinator.client.transport.driver import Driver
from coordinator.client.transport.loop_thread import check_process

if TYPE_CHECKING:
    from coordinator.client.settings.typed import MemberSettings


class GroupMember(LoopMember[MemberMachine], MemberView):
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
        config = config_of("classic", group_id, topics, settings)
        process = process_of("classic", settings)
        addresses = addresses_of(bootstrap)
        credentials, clock, random = process.credentials, process.clock, process.random
        machine = MemberMachine(config, addresses, random)
        super().__init__(
            machine, clock, addresses, group_id, credentials,
            handles_signals=process.handle_signals,
        )  # fmt: skip
        beat_s = config.heartbeat_interval_ms / 1000
        self._connection = Connection(credentials, beat_s, self._beat_now, random)
        self._driver = Driver(machine, self._connection, clock, self._tell)
        self._log_ends = process.log_ends
        self._log_ends_interval_s = process.log_ends_interval_s
        self._reporting: asyncio.Task[None] | None = None
        self._remarks = remarks(config, settings)

    BLOCKING = "BlockingMember"

    @property
    def _has_news(self) -> bool:
        return bool(self._machine.events) or self._machine.has_stopped

    def _seen(self) -> tuple[MemberMachine, int]:
        check_process(self.pid)
        return self._machine, self._clock()

    # --- Life ---

    async def start(self) -> None:
        """Begin to join, in the background; `poll` returns the events."""
        if not self._takes_loop():
            return
        for level, text in self._remarks:
            self._machine.membership.log(level, text)
        self._machine.start(self._clock())
        self._driver.turn()
        if self._log_ends is not None:
            reports = report_log_ends(
                self._log_ends, self._machine, self._report, self._log_ends_interval_s
            )
            self._reporting = asyncio.create_task(reports)

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
            await self._wait_for_news(seconds)
        finally:
            machine.poll_ends(self._clock())
        if machine.failure is not None:
            raise machine.failure
        events = machine.hand_out(self._clock())
        self._driver.turn()
        return events

    async def events(self) -> AsyncIterator[RebalanceEvent]:
        """Iterate over the events of `poll`; ends after `Stopping`."""
        while True:
            for event in await self.poll(timeout=1.0):
                yield event
                if isinstance(event, Stopping):
                    return

    async def subscribe(self, topics: Mapping[str, int]) -> None:
        """Change the topics or their numbers of partitions, and have them divided.

        The largest number that a member of the group declares is divided. It joins again if the
        topics are others, or if the group does not know the numbers yet. A cooperative member keeps
        what it has meanwhile.

        Args:
            topics: topic to number of partitions, all of them.
        Raises:
            TypeError, ValueError: as when the member is made.
        """
        self._check_loop()
        self._machine.subscribe(topics_of(topics), self._clock())
        self._driver.turn()

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
        commit = commit_of(offsets, expected, manifest, atomic=atomic)
        shown = (holdings,) if isinstance(holdings, Holding) else holdings
        timeout_ms = timeout_ms_of(timeout)
        await self._commit(
            commit, lambda told: self._machine.commit(told, shown, self._clock(), timeout_ms)
        )

    # --- Inside ---

    async def _report(self, ends: Mapping[TopicPartition, int]) -> bool:
        report = self._machine.report(ends, self._clock())
        await self._driver.result_of(report)
        return report.is_known

    def _beat_now(self) -> None:
        self._machine.beat_now(self._clock())
        self._driver.turn()
