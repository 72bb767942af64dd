"""`Member`: a member of a group, for asyncio, in either protocol.

The machine (`machine.py`) decides, the driver carries out. A `Member` passes its owner's calls to
the machine, has the driver take a turn, and waits for the result. It belongs to the loop that has
started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
)
from typing import TYPE_CHECKING, Any, Self, Unpack

from coordinator.assignors import TopicPartition
from coordinator.client import validation
from coordinator.client.errors import StaleMember
from coordinator.client.group_address import GroupAddress
from coordinator.client.log_ends import report_log_ends
from coordinator.client.member.classic.part import ClassicPart
from coordinator.client.member.events import MemberEvent, Stopping
from coordinator.client.member.ledger import UNKNOWN_OFFSET, Holding
from coordinator.client.member.machine import MemberMachine
from coordinator.client.member.operations import GIVE_UP_MS
from coordinator.client.member.owners import Owners, Poll
from coordinator.client.member.part import Leaving, PartContext, ProtocolPart
from coordinator.client.member.session.part import SessionPart
from coordinator.client.member.state import MemberState
from coordinator.client.offsets import Commit, OffsetAndMetadata, Offsets
from coordinator.client.settings.configs import ClassicConfig, SessionConfig
from coordinator.client.settings.reading import config_of, process_of, remarks
from coordinator.client.settings.setting import GroupProtocol
from coordinator.client.transport.connection import CoordinatorConnection
from coordinator.client.transport.driver import Driver, Link
from coordinator.client.transport.interrupts import SignalGuard, closing_reason
from coordinator.client.transport.loop_thread import check_process, is_forked_from
from coordinator.dial import Credentials
from coordinator.node_source import Bootstrap

if TYPE_CHECKING:
    from coordinator.client.settings.typed import MemberSettings

TIMEOUT_S = GIVE_UP_MS / 1000


class MemberView:
    """State of a member, read from its machine. From any thread.

    Attributes:
        pid: id of the process that has started it; None: none has.
    """

    _machine: MemberMachine
    _clock: Callable[[], int]
    pid: int | None

    def _seen(self) -> MemberMachine:
        """The machine.

        Raises:
            RuntimeError: this is a forked child of the process that started the member.
        """
        check_process(self.pid)
        return self._machine

    @property
    def state(self) -> MemberState:
        """The member's state in a word, a string, with `since` and `last_error`."""
        return self._seen().state

    @property
    def connected(self) -> bool:
        """True if a coordinator was found, and no call to it has failed since."""
        return self._seen().is_connected

    @property
    def is_assigned(self) -> bool:
        """True once the owner knows what it has been assigned, which may be nothing.

        For members that have nothing: there is no event without partitions.
        """
        return self._seen().part.status().is_assigned

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions this member may work on now: handed out, and not given back or lost; in a
        classic group nor being revoked."""
        return self._seen().part.assignment

    @property
    def group_id(self) -> str:
        """Id of its group."""
        return self._machine.group_id

    @property
    def generation(self) -> int:
        """The group's generation, as known to the member; -1: none, or a session group."""
        return self._seen().part.status().generation

    @property
    def is_between_assignments(self) -> bool:
        """True while it is not known what the member holds next: a generation is being joined."""
        return self._seen().part.status().is_between_assignments

    @property
    def is_waiting(self) -> bool:
        """True while another process has the member's name, and may be alive."""
        return self._seen().part.status().is_waiting

    @property
    def member_id(self) -> str:
        """The id the coordinator gave; empty: none."""
        return self._seen().part.status().member_id

    @property
    def is_leader(self) -> bool:
        """True if this member computed the assignment of its generation."""
        return self._seen().part.status().is_leader

    def holding(self, partition: TopicPartition) -> Holding:
        """The current holding of a partition, for work that may outlast it.

        Take it when the work begins, and commit with `holdings=[holding]`. The commit is refused if
        the partition was given back or lost meanwhile, even if this member has it again.

        Raises:
            StaleMember: the partition was not handed out.
        """
        return self._seen().ledger.of(validation.partition_of(partition))

    def planned_batch(self, begins: Mapping[TopicPartition, int]) -> list[Holding]:
        """The present holdings, for the commit of a batch that was planned before this process
        began, and whose own holdings nobody can show any more.

        Args:
            begins: offset at which the batch begins, by partition; the commit has `expected` them.
        Returns:
            Those of partitions that are held now.
        """
        return self._seen().ledger.of_planned_batch(validation.expected_of(begins))

    def token(self, partition: TopicPartition | Holding) -> int:
        """The token under which a partition is held: what a sink can check; 0 in a classic group.

        Raises:
            StaleMember: it is not held.
        """
        check_process(self.pid)
        held = self._shown(partition)
        if held is None:
            key = validation.partition_of(partition)
            raise StaleMember(f"{key} is not held")
        return held.token

    def holds(self, holding: Holding) -> bool:
        """True until the partition is given back or lost."""
        return self._seen().ledger.lasts(holding)

    def valid(self, partition: TopicPartition | Holding) -> bool:
        """True if effects of a partition may leave the process now. One comparison; False in a
        forked child."""
        if is_forked_from(self.pid):
            return False
        held = self._shown(partition)
        return held is not None and self._clock() < self._machine.part.holdings.ends_ms(held)

    def takes_work(self, partition: TopicPartition | Holding) -> bool:
        """True if new work of a partition may be begun now: it is held, is not being given
        back, and its lease is not in doubt. False in a forked child."""
        if is_forked_from(self.pid):
            return False
        held = self._shown(partition)
        return held is not None and self._machine.part.holdings.takes_work(held, self._clock())

    def alive(self) -> None:
        """Count as progress without polling, during long work. It returns no events and gives no
        partitions back."""
        self._seen().progress.alive(self._clock())

    def _shown(self, partition: TopicPartition | Holding) -> Holding | None:
        """The holding that is meant, if it lasts."""
        ledger = self._machine.ledger
        if not isinstance(partition, Holding):
            return ledger.last(partition)
        return partition if ledger.lasts(partition) else None


class Member(MemberView):
    """A member of a group, on the running event loop.

        async with Member("127.0.0.1:7400", "billing", {"invoices": 12}) as member:
            async for event in member.events():
                match event:
                    case Granted(holdings): ...    # work on them
                    case Revoking(holdings): ...   # finish, commit
                    case Lost(holdings): ...       # stop at once

    A partition is held from the event that grants it until it is given back or lost. In a classic
    group the next `poll` gives back what the last one has told to be revoked; in a session group
    `released` does, for each holding when nothing of it runs any more (setting `give_back`).
    Commits count for holdings, see `commit`. Effects may leave the process while `valid`; sinks of
    session groups check `token`.

    Threads: its methods are called on the loop that runs `start`; the properties, `holding`,
    `holds`, `valid`, `takes_work`, `token` and `alive` may be used in any thread. As the protocol
    runs on that loop, code that blocks it keeps heartbeats from being sent: for longer than the
    session or lease, and the partitions are lost. Processes: a forked child has no membership:
    `valid` is False there, and other calls raise.

    Signals: inside `async with` in the main thread, Ctrl-C and SIGTERM end it, unless the program
    handles them itself, so that the member leaves (setting `handle_signals`).

    Args:
        bootstrap: one or several HOST:PORT to ask for the coordinator; the port defaults to 7400.
            Or what `embedded` returns.
        topics: topic to number of partitions.
        protocol: "classic": a leader among the members assigns; "session": the coordinator does,
            moves partitions one by one, and grants each under a lease and a token.
        settings: see `MemberSettings`.
    Raises:
        TypeError, ValueError: an argument is wrong; the message shows the right form.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        group_id: str,
        topics: Mapping[str, int],
        *,
        protocol: GroupProtocol = "classic",
        **settings: Unpack[MemberSettings],
    ) -> None:
        process = process_of(protocol, settings, bootstrap)
        config = config_of(protocol, group_id, topics, settings)
        self._remarks = remarks(config, settings)
        addresses, random = validation.addresses_of(bootstrap), process.random
        self._clock = process.clock
        self._machine = MemberMachine(_part_of, config, addresses, random)
        self._owners = Owners(self._machine.ledger)
        self._process = process
        self.group_address = GroupAddress(addresses, config.group_id, process.credentials)
        self.on_change: Callable[[], object] = lambda: None
        """Called after each turn, when there may be events; set it to be woken."""
        link = self._connect(process.credentials, self._machine.part.beat_interval_s, random)
        self._driver = Driver(self._machine, link, self._clock, self._tell)
        self._guard: SignalGuard | None = None
        self._reporting: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_events = asyncio.Event()
        self.pid: int | None = None

    # --- Life ---

    async def start(self) -> None:
        """Begin to join, in the background; `poll` and `events` report what becomes of it."""
        self._check_loop()
        if self._loop is not None:
            return
        self._loop = asyncio.get_running_loop()
        self.pid = os.getpid()
        for level, text in self._remarks:
            self._machine.log(level, text)
        self._machine.start(self._clock())
        self._driver.step()
        process = self._process
        if process.log_ends is not None:
            reports = report_log_ends(
                process.log_ends, self._machine.ledger, self.report, process.log_ends_interval_s
            )
            self._reporting = asyncio.create_task(reports)

    async def close(
        self,
        reason: str = "closed",
        *,
        leave: bool | None = None,
        return_within_ms: int | None = None,
    ) -> None:
        """Stop, and leave the group, so that others have its partitions at once.

        Commits under way have two seconds to be answered; no new one is accepted. A static member
        of a classic group does not leave: its place is kept for a process that returns under its
        instance id, until the session expires.

        Args:
            reason: sent to the coordinator.
            leave: leave a classic group, or not; None: unless the member is static.
            return_within_ms: a session group keeps the partitions so long for a process of the same
                `member_name`; None: as the setting says, unless it is to `leave`.
        """
        self._check_loop()
        if return_within_ms is not None:
            return_within_ms = validation.milliseconds_of("return_within_ms", return_within_ms)
        self._machine.close(Leaving(reason, leave, return_within_ms), self._clock())
        if self._reporting is not None:
            self._reporting.cancel()
            await asyncio.gather(self._reporting, return_exceptions=True)
        if self._loop is not None:
            await self._driver.until_closed()

    async def __aenter__(self) -> Self:
        await self.start()
        if self._process.handle_signals:
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

    def drain(self, within_ms: int, reason: str = "", *, leave: bool | None = None) -> bool:
        """Take no more partitions.

        A session group moves everything away: `Revoking` follows for each partition, and `Stopping`
        when all are given back; what is left after `within_ms` is taken away. A classic group asks
        for nothing: give back what is held, and close.

        Args:
            leave: a member whose place is kept for its next process gives it up; None: it does not.
        Returns:
            True if the group asks for what is held.
        """
        self._check_loop()
        within_ms = validation.milliseconds_of("within_ms", within_ms)
        is_asked = self._machine.part.drain(within_ms, reason, self._clock(), leave=leave)
        self._driver.step()
        return is_asked

    # --- Events ---

    def poll(self, timeout: float | None = 0.0) -> Coroutine[Any, Any, list[MemberEvent]]:
        """Return the events since the last call, and count it as progress.

        It also gives back what the last call has told to be revoked or lost, if the setting
        `give_back` says so (in classic groups by default). A partition is held from the call that
        returns it in `Granted` on.

        Args:
            timeout: seconds to wait if there is no event; the wait counts as progress. None: until
                there is one.
        Raises:
            FatalError: the group refuses this member; what it held is lost, which the call before
                has told.
        """
        # Not a coroutine function: its events are for whoever calls it, be it awaited elsewhere.
        return self._poll_for(self._owners.poll_begins(), timeout)

    async def _poll_for(self, poll: Poll, timeout: float | None) -> list[MemberEvent]:  # noqa: ASYNC109
        events = await self._poll(timeout)
        self._owners.poll_ends(poll)
        return events

    async def _poll(self, timeout: float | None) -> list[MemberEvent]:  # noqa: ASYNC109
        """Do what `poll` does, for a caller that is known otherwise."""
        self._check_loop()
        seconds = None if timeout is None else validation.timeout_ms_of(timeout) / 1000
        part = self._machine.part
        part.poll_begins(self._clock(), gives_back=self._process.give_back == "poll")
        self._driver.step()
        try:
            await self._wait_for_news(seconds)
        finally:
            part.progress.poll_ends(self._clock())
        events = self.take_events()
        self._driver.step()
        failure = self._machine.failure
        if failure is None:
            return events
        events_due: list[MemberEvent] = [
            event for event in events if not isinstance(event, Stopping)
        ]
        if not events_due:
            raise failure
        return events_due

    async def events(self) -> AsyncIterator[MemberEvent]:
        """Iterate over the events of `poll`; ends after `Stopping`. Raises as `poll`."""
        while True:
            for event in await self.poll(timeout=None):
                yield event
                if isinstance(event, Stopping):
                    return

    def take_events(self) -> list[MemberEvent]:
        """The events since the last call, for a worker that looks at its own progress."""
        return self._machine.hand_out(self._clock())

    async def _wait_for_news(self, timeout: float | None) -> None:  # noqa: ASYNC109  # As `poll`.
        if timeout == 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not self._machine.has_events:
                    self._has_events.clear()
                    await self._has_events.wait()

    def released(
        self, holding: Holding | Iterable[Holding], position: int = UNKNOWN_OFFSET
    ) -> None:
        """Nothing of a holding runs any more; the coordinator learns of it when its commits are
        answered.

        Asked to (`Revoking`, `Lost`) or not; one that has ended already is passed over.

        Args:
            position: where the work has stopped, for mode copy; -1: at the committed offset.
        """
        validation.number_of("position", position, "100")
        self._give_back(holding, position=position)

    def refuse(self, holding: Holding | Iterable[Holding], reason: str) -> None:
        """Give a partition up, held or warming: another member gets it, and this one not for a
        while."""
        self._give_back(holding, refused=reason)

    def ready(self, holding: Holding | Iterable[Holding]) -> None:
        """A partition that is `Warming` is prepared."""
        self._check_loop()
        for one_holding in _several(holding):
            self._machine.part.holdings.ready(one_holding)
        self._driver.step()

    def set_ready(self, ready: bool) -> None:  # As `ready=` of the Attach.
        """Be given partitions, or no more; what is held stays. In session groups."""
        self._check_loop()
        self._machine.part.set_ready(ready, self._clock())
        self._driver.step()

    def set_unwanted(self, unwanted: Callable[[], Collection[TopicPartition]]) -> None:
        """Have a classic group give partitions to others if there are some: each join asks for
        them. A session group remembers by itself what was refused."""
        self._machine.unwanted = unwanted

    async def subscribe(self, topics: Mapping[str, int]) -> None:
        """Declare other topics, or other numbers of partitions, and have them divided.

        In a classic group the largest number that a member declares is divided; the member joins
        again if the topics are others, or if the group does not know the numbers yet. What it has
        stays meanwhile, but with an eager assignor.

        Args:
            topics: topic to number of partitions, all of them.
        Raises:
            TypeError, ValueError: as when the member is made.
        """
        self._check_loop()
        self._machine.subscribe(validation.topics_of(topics), self._clock())
        self._driver.step()

    async def report(self, ends: Mapping[TopicPartition, int | range]) -> bool:
        """Report log end offsets, or the ranges of offsets that logs have, for lag.

        False: the coordinator does not know the method.
        """
        self._check_loop()
        report = self._machine.report(validation.log_ends_returned("report", ends), self._clock())
        if report is None:
            return True
        await self._driver.result_of(report)
        return report.is_known

    # --- Offsets ---

    async def commit(
        self,
        offsets: Offsets,
        *,
        atomic: bool = False,
        expected: Mapping[TopicPartition, int] | None = None,
        manifest: bytes = b"",
        holdings: Holding | Iterable[Holding] | None = None,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109  # BlockingMember.commit has it as well.
        waits: bool = False,
    ) -> None:
        """Commit offsets; returns when they are durable.

        A commit counts for `holdings`, or for what was handed out to its caller: to the task or
        thread that polls by its last poll; to a task that was made later, by the last poll before
        that; to another thread nothing. If one of these holdings has been given back or lost since,
        nothing is sent, even if the partition has been granted again. During a cooperative
        rebalance it may wait for the new generation.

        Args:
            offsets: the next offset to read, by partition.
            atomic: all partitions or none.
            expected: offsets that must be the ones stored now; -1: none.
            manifest: stored with the group; at most 64 KiB.
            holdings: one for each of the partitions, from an event or `holding`.
            timeout: seconds to try for; the error says what it has waited for.
            waits: wait while a lease is in doubt, with the timeout standing still, instead of being
                refused.
        Raises:
            StaleMember: a partition is not held, or suspended; here, if the message says that
                nothing was sent, or by the coordinator. FencedToken: it belongs to another member.
            CommitFailed: it was refused. OffsetMismatch: an expected offset was not the stored one.
            RebalanceInProgress: the group was between assignments until the timeout.
            Unavailable: no coordinator answered before the timeout, with retries. The commit may
                be stored.
        """
        self._check_loop()
        commit = Commit(
            validation.offsets_of(offsets),
            validation.expected_of(expected or {}),
            atomic,
            validation.manifest_of(manifest),
        )
        shown = None if holdings is None else _several(holdings)
        timeout_ms = validation.timeout_ms_of(timeout)
        try:
            begun = self._machine.commit(
                commit, shown, self._clock(), timeout_ms,
                waits=waits, handed_out=self._owners.handed_out,
            )  # fmt: skip
        except StaleMember:
            self._driver.step()  # It is logged.
            raise
        await self._driver.result_of(begun)

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
        commits = await self.committed_with_metadata(partitions, timeout=timeout)
        return {key: commit.offset for key, commit in commits.items()}

    async def committed_with_metadata(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109  # As `committed`.
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets with their metadata; otherwise as `committed`."""
        self._check_loop()
        keys = None if partitions is None else validation.partitions_of(partitions)
        if keys == ():
            return {}
        fetch = self._machine.fetch(keys, self._clock(), validation.timeout_ms_of(timeout))
        await self._driver.result_of(fetch)
        return fetch.value

    # --- For workers, which take the place of polling ---

    @property
    def failure(self) -> Exception | None:
        """The error that stopped the member; None: there was none."""
        return self._machine.failure

    @property
    def releases_cost_nothing(self) -> bool:
        """True if nobody else is rebalanced when a partition is given back."""
        return self._machine.part.releases_cost_nothing

    def may_begin(self, holding: Holding) -> bool:
        """True if work of a holding may be begun, be it to finish it: its lease is not in
        doubt. From any thread."""
        return self._machine.part.holdings.may_begin(holding, self._clock())

    def ends_ms(self, holding: Holding) -> int:
        """Time from which no effect of a holding may leave the process, unless the coordinator is
        heard; 0: it has ended. From any thread."""
        return self._machine.part.holdings.ends_ms(holding)

    @property
    def machine(self) -> MemberMachine:
        """The member's machine."""
        return self._machine

    def count_as_poll(self) -> None:
        """Count as a poll that gives nothing back and takes no events."""
        part, now_ms = self._machine.part, self._clock()
        part.poll_begins(now_ms, gives_back=False)
        part.progress.poll_ends(now_ms)
        self._driver.step()

    # --- Inside ---

    def _connect(
        self, credentials: Credentials, interval_s: float, random: Callable[[], float]
    ) -> Link:
        return CoordinatorConnection(credentials, interval_s, self._send_heartbeat_now, random)

    def _give_back(self, holding: Holding | Iterable[Holding], **more: Any) -> None:
        self._check_loop()
        self._machine.give_back(_several(holding), self._clock(), **more)
        self._driver.step()

    def _check_loop(self) -> None:
        check_process(self.pid)
        if self._loop not in (None, asyncio.get_running_loop()):
            raise RuntimeError(
                "a Member is called on the event loop that started it; BlockingMember may be "
                "called from any thread"
            )

    def _tell(self) -> None:
        if self._machine.has_events:
            self._has_events.set()
        self.on_change()

    def _send_heartbeat_now(self) -> None:
        self._machine.part.send_heartbeat_now(self._clock())
        self._driver.step()


def _several(holdings: Holding | Iterable[Holding]) -> Collection[Holding]:
    return (holdings,) if isinstance(holdings, Holding) else tuple(holdings)


def _part_of(
    config: ClassicConfig | SessionConfig, machine: PartContext, random: Callable[[], float]
) -> ProtocolPart:
    if isinstance(config, SessionConfig):
        return SessionPart(config, machine, random)
    return ClassicPart(config, machine, random)


def _cancel_this_task() -> Callable[[], object]:
    """Function that cancels the current task, to be called from a signal handler."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    return lambda: loop.call_soon_threadsafe(task.cancel)
