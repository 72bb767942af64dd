"""`SessionMember`: a member of a session group, for asyncio.

The machine (`member_machine.py`) decides, the driver carries out. `SessionMember` passes the calls
of its owner to the machine, has the driver take a turn, and waits for the result.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

from coordinator.assignors import TopicPartition
from coordinator.client.errors import StaleMember
from coordinator.client.forms import (
    addresses_of,
    milliseconds_of,
    number_of,
    offsets_told,
    partition_of,
    timeout_ms_of,
    topics_of,
)
from coordinator.client.member.ledger import Holding
from coordinator.client.member.on_loop import TIMEOUT_S, LoopMember, commit_of
from coordinator.client.member.session.changes import NO_OFFSET, Change, Granted, Stopping, Warming
from coordinator.client.member.session.member_machine import SessionMemberMachine
from coordinator.client.member.state import MemberState
from coordinator.client.offsets import Offsets
from coordinator.client.settings.reading import config_of, process_of
from coordinator.client.transport.connection import Connection
from coordinator.client.transport.driver import Driver
from coordinator.client.transport.loop_thread import check_process, is_forked_from

if TYPE_CHECKING:
    from coordinator.client.settings.typed import MemberSettings

LONG_S = 60.0
"""Interval of heartbeats that the connection is told of: streams have their own."""


class SessionView:
    """State of a session member, read from its machine. From any thread."""

    _machine: SessionMemberMachine
    _clock: Callable[[], int]
    pid: int | None
    """Id of the process that has started it; None: none has."""

    def _seen(self) -> SessionMemberMachine:
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
    def group_id(self) -> str:
        """Id of its group."""
        return self._machine.config.group_id

    @property
    def member_id(self) -> str:
        """The id the coordinator gave; empty: none."""
        return self._seen().session.member_id

    @property
    def is_waiting(self) -> bool:
        """True while another process has the member's name, and may be alive."""
        return self._seen().session.is_waiting

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the owner was told of, and has not released or lost."""
        return frozenset(self._seen().known)

    def token(self, partition: TopicPartition) -> int:
        """The token under which a partition is held: what a sink can check.

        Raises:
            StaleMember: it is not held.
        """
        key = partition_of(partition)
        token = self._seen().known.get(key)
        if token is None:
            raise StaleMember(f"{key.topic}[{key.partition}] is not held")
        return token

    def holding(self, partition: TopicPartition) -> Holding:
        """The holding of a partition, to be taken when its work begins and passed to `commit`.

        Raises:
            StaleMember: it is not held.
        """
        return Holding(partition_of(partition), -1, self.token(partition))

    def valid(self, partition: TopicPartition) -> bool:
        """True if effects of a partition may leave the process now. One comparison; False in a
        forked child."""
        if is_forked_from(self.pid):
            return False
        machine = self._machine
        token = machine.known.get(partition, 0)
        return machine.is_valid(partition, token, self._clock())

    def takes_work(self, partition: TopicPartition) -> bool:
        """True if new work of a partition may be begun now: it is held, neither draining nor
        paused, and the lease is not in doubt. False in a forked child."""
        if is_forked_from(self.pid):
            return False
        machine = self._machine
        token = machine.known.get(partition, 0)
        return machine.partitions.takes_work(partition, token, self._clock())

    def alive(self) -> None:
        """Count as progress of the working side."""
        self._seen().alive(self._clock())


class SessionMember(LoopMember[SessionMemberMachine], SessionView):
    """A member of a session group, on the running event loop.

        async with SessionMember("127.0.0.1:7400", "billing", {"invoices": 12}) as member:
            async for change in member.changes():
                match change:
                    case Granted(partition, token, offset): ...  # work on it
                    case Draining(partition): ...                # finish, commit, then:
                        member.released(partition)
                    case Lost(partition): ...                    # stop at once, then:
                        member.released(partition)

    A partition is held from the `Granted` that `changes` yields until `released`, `refuse` or
    `Lost`. Effects may leave the process while `valid(partition)`; sinks check `token(partition)`.

    Threads: its methods are called on the loop that runs `start`; `valid`, `takes_work`, `token`,
    `alive` and the properties may be used in any thread. Processes: a forked child has no
    membership: `valid` is False there, and other calls raise.

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
        config = config_of("session", group_id, topics, settings)
        process = process_of("session", settings)
        if process.log_ends is not None:
            raise TypeError("log_ends is no setting of this member; call report()")
        addresses = addresses_of(bootstrap)
        credentials, clock, random = process.credentials, process.clock, process.random
        machine = SessionMemberMachine(config, addresses, random)
        super().__init__(
            machine, clock, addresses, group_id, credentials, handles_signals=process.handle_signals
        )
        connection = Connection(credentials, LONG_S, lambda: None, random)
        self._driver = Driver(machine, connection, clock, self._tell)

    BLOCKING = "BlockingSessionMember"

    @property
    def _has_news(self) -> bool:
        return self._machine.has_news or self._machine.session.is_stopped

    # --- Life ---

    async def start(self) -> None:
        """Begin to attach, in the background; `changes` yields what becomes of it."""
        if self._takes_loop():
            self._machine.start(self._clock())
            self._driver.turn()

    async def close(self, reason: str = "closed", *, return_within_ms: int | None = None) -> None:
        """Leave; the partitions that are held end with it.

        Commits under way have two seconds to be answered; no new one is accepted.

        Args:
            reason: sent to the coordinator.
            return_within_ms: in the place of the setting.
        """
        self._check_loop()
        if return_within_ms is not None:
            return_within_ms = milliseconds_of("return_within_ms", return_within_ms)
        else:
            return_within_ms = self._machine.config.return_within_ms
        self._machine.close(reason, self._clock(), return_within_ms=return_within_ms)
        if self._loop is not None:
            await self._driver.until_closed()

    def drain(self, within_ms: int, reason: str = "") -> None:
        """Have the coordinator move everything away: `Draining` follows for each partition, and
        `Stopping` when all are released. What is left after `within_ms` is taken away."""
        self._check_loop()
        within_ms = milliseconds_of("within_ms", within_ms)
        self._machine.drain(within_ms, reason, self._clock())
        self._driver.turn()

    # --- Changes ---

    async def poll(
        self,
        timeout: float | None = 0.0,  # noqa: ASYNC109  # BlockingSessionMember.poll has it as well.
    ) -> list[Change]:
        """Return the changes since the last call, and count it as progress.

        Args:
            timeout: seconds to wait if there is no change; None: until there is one.
        Raises:
            FatalError: the group refuses this member; what it held is lost.
        """
        self._check_loop()
        self.alive()
        seconds = None if timeout is None else timeout_ms_of(timeout) / 1000
        await self._wait_for_news(seconds)
        changes = self._machine.hand_out()
        if not changes and self._machine.failure is not None:
            raise self._machine.failure
        return changes

    async def changes(self) -> AsyncIterator[Change]:
        """Iterate over the changes; ends after `Stopping`. Raises as `poll`."""
        while True:
            for change in await self.poll(timeout=None):
                if isinstance(change, Stopping) and self._machine.failure is not None:
                    raise self._machine.failure
                yield change
                if isinstance(change, Stopping):
                    return

    def ready(self, partition: TopicPartition | Warming) -> None:
        """A partition that is `Warming` is prepared.

        Args:
            partition: the last `Warming` of it that was yielded is answered. Code that prepares
                beside its loop gives the `Warming` itself: another one may have come meanwhile.
        """
        self._check_loop()
        self._machine.prepared(*_answered(partition))
        self._driver.turn()

    def released(self, partition: TopicPartition, position: int = NO_OFFSET) -> None:
        """Nothing of a partition runs any more; it is told when its commits are answered.

        Asked to (`Draining`, `Lost`) or not; for a partition that is not held, it does nothing.

        Args:
            position: where the work has stopped; -1: at the committed offset.
        """
        self._check_loop()
        key = partition_of(partition)
        number_of(f"the position of {key.topic}[{key.partition}]", position, "100")
        self._give_up(key, position, "")

    def refuse(self, partition: TopicPartition | Warming, reason: str) -> None:
        """Give a partition up, held or warming: another member gets it, and this one not for a
        while. A `Warming` stands for what it says alone, see `ready`."""
        self._check_loop()
        key, handoff_id = _answered(partition)
        self._machine.prepared(key, handoff_id, reason)
        if handoff_id is None:
            self._give_up(key, NO_OFFSET, reason)
        else:
            self._driver.turn()

    def set_ready(self, ready: bool) -> None:  # As `ready=` of the Attach.
        """Be given partitions, or no more; what is held stays."""
        self._check_loop()
        self._machine.session.set_ready(ready, self._clock())
        self._driver.turn()

    def subscribe(self, topics: Mapping[str, int]) -> None:
        """Declare other topics, or other numbers of partitions. Raises as the constructor."""
        self._check_loop()
        self._machine.session.subscribe(sorted(topics_of(topics).items()), self._clock())
        self._driver.turn()

    def report(self, ends: Mapping[TopicPartition, int]) -> None:
        """Report log end offsets, with the next heartbeat."""
        self._check_loop()
        self._machine.session.report(offsets_told("report", ends))

    # --- Offsets ---

    async def commit(
        self,
        offsets: Offsets,
        *,
        atomic: bool = False,
        expected: Mapping[TopicPartition, int] | None = None,
        manifest: bytes = b"",
        holdings: Holding | Granted | Collection[Holding | Granted] | None = None,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109  # As `GroupMember.commit`.
    ) -> None:
        """Commit offsets; returns when they are durable.

        A commit is under the tokens of `holdings`, or else under the newest that the owner was
        told. Work that may outlast its holding, such as a task for each partition, passes the one
        it began with: once that has ended nothing is sent, even if the partition was granted anew.

        Args:
            offsets: the next offset to read, by partition.
            atomic: all partitions or none.
            expected: offsets that must be the ones stored now; -1: none.
            manifest: stored with the group; at most 64 KiB.
            holdings: one for each of the partitions, from `holding` or `Granted`.
            timeout: seconds to try for.
        Raises:
            StaleMember: a partition is not held, or suspended; here, if the message says that
                nothing was sent, or by the coordinator. FencedToken: it belongs to another member.
            CommitFailed: it was refused. OffsetMismatch: an expected offset was not the stored one.
            Unavailable: no coordinator answered before the timeout. The commit may be stored.
        """
        self._check_loop()
        commit = commit_of(offsets, expected, manifest, atomic=atomic)
        timeout_ms = timeout_ms_of(timeout)
        shown = (holdings,) if isinstance(holdings, Holding | Granted) else holdings
        tokens = None if shown is None else {one.partition: one.token for one in shown}
        await self._commit(
            commit, lambda told: self._machine.commit(told, tokens, self._clock(), timeout_ms)
        )

    # --- Inside ---

    def _give_up(self, key: TopicPartition, position: int, refused: str) -> None:
        held = self._machine.partitions.held.get(key)
        if held is not None:
            # A grant that the owner has not been told of is not what it gives up.
            token = self._machine.known.get(key, held.token)
            self._machine.release(key, token, position, refused)
        self._driver.turn()


def _answered(what: TopicPartition | Warming) -> tuple[TopicPartition, int | None]:
    """The partition that an answer is about, and its hand-off if the answer says so."""
    if isinstance(what, Warming):
        return what.partition, what.handoff_id
    return partition_of(what), None
