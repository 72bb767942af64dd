"""Interface of a worker to its member, whichever protocol it speaks, and the classic ones.

All of it is called on the protocol's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from coordinator.assignors import TopicPartition
from coordinator.client.errors import CoordinatorError
from coordinator.client.member.calling import CallingMachine
from coordinator.client.member.classic.membership import Phase
from coordinator.client.member.events import Assigned, RebalanceEvent
from coordinator.client.member.group_member import GroupMember
from coordinator.client.member.ledger import Holding
from coordinator.client.member.machine import MemberMachine
from coordinator.client.member.session.changes import Resumed, Suspended, Warming
from coordinator.client.member.state import MemberState
from coordinator.client.offsets import Commit, OffsetAndMetadata
from coordinator.client.settings.configs import ClassicConfig
from coordinator.client.transport.driver import Driver
from coordinator.client.worker.environment import Environment
from coordinator.client.worker.scope import FOREVER_MS
from coordinator.dial import Credentials


@dataclass(frozen=True, slots=True)
class Dropped:
    """A partition that was being prepared will not be this member's."""

    partition: TopicPartition


MemberEvent = RebalanceEvent | Warming | Dropped | Suspended | Resumed
"""Event of a member, for its worker; the last four occur in session groups alone."""


class Member(Protocol):
    """One member of a group.

    A partition is held from the `take_events` that returns it in `Assigned` until `give_back`, or
    until `Lost` is returned. `Revoking` asks for it; a partition that has not been given back at
    its deadline is `Lost`.
    """

    @property
    def failure(self) -> CoordinatorError | None:
        """The error that stopped the member; None: there was none."""

    @property
    def member_id(self) -> str:
        """The id the coordinator gave; empty: none."""

    @property
    def state(self) -> MemberState:
        """The member's state in a word, with `since` and `last_error`."""

    @property
    def releases_cost_nothing(self) -> bool:
        """True if nobody else is rebalanced when a partition is given back."""

    def lasts_until_ms(self, holding: Holding) -> int:
        """Time at which a holding is over unless the coordinator answers. From any thread."""

    def take_events(self) -> Sequence[MemberEvent]:
        """Events since the last call."""

    def holding(self, partition: TopicPartition) -> Holding:
        """The holding of a partition that was just assigned."""

    def give_back(self, holding: Holding, position: int, refused: str) -> None:
        """Give a partition back, asked to or not; it may be assigned to this member again. One
        that was lost is acknowledged, if the group waits for that.

        Args:
            position: the next offset to read; -1: not known.
            refused: why this member will not have it now; empty: it would.
        """

    def set_unwanted(self, unwanted: Callable[[], Collection[TopicPartition]]) -> None:
        """Have the group asked to give these partitions to others, where nobody else does."""

    def drain(self, reason: str, within_ms: int, *, leave: bool) -> bool:
        """Take no more partitions; False: the group will not ask for those that are held.

        Args:
            leave: even if the member's place is meant to be kept for its next process.
        """

    def may_begin(self, holding: Holding) -> bool:
        """True if new work of a holding may be begun now. From any thread."""

    def prepared(self, partition: TopicPartition, handoff_id: int, refused: str) -> None:
        """The partition of a `Warming` is prepared; or will not be, and why."""

    def alive(self) -> None:
        """Count as progress of the working side."""

    def subscribe(self, topics: Mapping[str, int]) -> None:
        """Change the topics or their numbers of partitions."""

    async def commit(self, commit: Commit, holdings: Collection[Holding]) -> None:
        """Commit for holdings; raises as `GroupMember.commit`."""

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets; raises as `GroupMember.committed`."""

    async def report(self, ends: Mapping[TopicPartition, int]) -> None:
        """Report log end offsets; failures are swallowed."""

    async def close(self, reason: str) -> None:
        """Leave the group, unless a place is kept (see `drain`), and close the connection."""


M = TypeVar("M", bound=CallingMachine)


class DrivenMember(Generic[M]):
    """A `Member` on a machine and its driver: what is the same in both protocols."""

    def __init__(self, machine: M, driver: Driver, now_ms: Callable[[], int]) -> None:
        self._machine, self._driver, self._now_ms = machine, driver, now_ms

    @property
    def failure(self) -> CoordinatorError | None:
        """See `Member`."""
        return self._machine.failure

    @property
    def state(self) -> MemberState:
        """See `Member`."""
        return self._machine.state

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """See `Member`."""
        fetch = self._machine.fetch(tuple(partitions), self._now_ms())
        await self._driver.result_of(fetch)
        return fetch.value


class Borrowed:
    """A member that the caller of `consume` has started, and closes: nobody else polls meanwhile.

    What it holds when the worker stops it holds on to.

    Attributes:
        assignments: how many times it was assigned partitions.
    """

    _driver: Driver

    def _borrow(self, on_change: Callable[[], None]) -> None:
        self._owner_on_change, self._driver.on_change = self._driver.on_change, on_change
        self._is_draining = False
        self.assignments = 0

    def _count(self, events: Iterable[MemberEvent]) -> None:
        self.assignments += sum(isinstance(event, Assigned) for event in events)

    def drain(self, reason: str, within_ms: int, *, leave: bool) -> bool:
        """See `Member`; nothing is told to the group."""
        self._is_draining = True
        return False

    async def close(self, reason: str) -> None:
        """Return it to its owner."""
        self._driver.on_change = self._owner_on_change


class MachineMember(DrivenMember[MemberMachine]):
    """`Member` of the classic protocol, on a machine and its driver."""

    releases_cost_nothing = False

    @property
    def member_id(self) -> str:
        """See `Member`."""
        return self._machine.membership.member_id

    def lasts_until_ms(self, holding: Holding) -> int:
        """See `Member`. While a generation is being joined, the coordinator counts no session."""
        membership = self._machine.membership
        return membership.session_ends_ms if membership.is_in_session else FOREVER_MS

    def take_events(self) -> list[RebalanceEvent]:
        """See `Member`."""
        return self._machine.hand_out(self._now_ms())

    def holding(self, partition: TopicPartition) -> Holding:
        """See `Member`."""
        return self._machine.membership.holdings.of(partition)

    def give_back(self, holding: Holding, position: int, refused: str) -> None:
        """See `Member`. The assignor decides who gets it, and from which offset is committed."""
        if not self._machine.membership.holdings.lasts(holding):
            return  # It was lost, and may be this member's again, in another holding.
        self._machine.give_back(frozenset((holding.partition,)), self._now_ms())
        self._driver.turn()

    def set_unwanted(self, unwanted: Callable[[], Collection[TopicPartition]]) -> None:
        """See `Member`. Each join declares them, and assignors heed it."""
        self._machine.membership.unwanted = unwanted

    def drain(self, reason: str, within_ms: int, *, leave: bool) -> bool:
        """See `Member`. A static member keeps its place, unless it is to `leave`."""
        self._machine.drain(leave=leave)
        return False

    def may_begin(self, holding: Holding) -> bool:
        """See `Member`; as long as it lasts."""
        return True

    def prepared(self, partition: TopicPartition, handoff_id: int, refused: str) -> None:
        """Not called: nothing is prepared in classic groups."""

    def alive(self) -> None:
        """Nothing: the worker itself watches the progress of its handlers."""

    def subscribe(self, topics: Mapping[str, int]) -> None:
        """See `Member`."""
        self._machine.subscribe(topics, self._now_ms())
        self._driver.turn()

    async def commit(self, commit: Commit, holdings: Collection[Holding]) -> None:
        """See `Member`."""
        await self._driver.result_of(self._machine.commit(commit, holdings, self._now_ms()))

    async def report(self, ends: Mapping[TopicPartition, int]) -> None:
        """See `Member`."""
        await self._driver.result_of(self._machine.report(ends, self._now_ms()))

    async def close(self, reason: str) -> None:
        """See `Member`."""
        keeps_place = self._machine.membership.keeps_place
        self._machine.close(reason, self._now_ms(), leave=not keeps_place)
        await self._driver.until_closed()


class ClassicMember(MachineMember):
    """A member of its own. It begins to join when it is made.

    Args:
        on_change: called after each turn of the driver, when there may be events.
    """

    def __init__(
        self,
        config: ClassicConfig,
        bootstrap: Iterable[str],
        credentials: Credentials,
        environment: Environment,
        on_change: Callable[[], None],
    ) -> None:
        machine = MemberMachine(config, bootstrap, environment.random)
        link = environment.connect(credentials, config.heartbeat_interval_ms / 1000, self._beat_now)
        driver = Driver(machine, link, environment.now_ms, on_change)
        super().__init__(machine, driver, environment.now_ms)
        self._machine.start(self._now_ms())
        self._driver.turn()

    def _beat_now(self) -> None:
        self._machine.beat_now(self._now_ms())
        self._driver.turn()


class LentMember(Borrowed, MachineMember):
    """A `GroupMember` that is lent, see `Borrowed`. Each `alive` counts as a poll."""

    def __init__(self, member: GroupMember, on_change: Callable[[], None]) -> None:
        super().__init__(*member.parts())
        self._borrow(on_change)
        self._poll()
        membership = self._machine.membership
        held = membership.holdings.known(membership.assignment)
        # The caller may have polled before.
        self._first: list[RebalanceEvent] = [Assigned(held, membership.generation)] if held else []

    def take_events(self) -> list[RebalanceEvent]:
        """See `Member`."""
        first, self._first = self._first, []
        events = super().take_events()
        self._count(events)
        return first + events

    def alive(self) -> None:
        """Count as progress; a member that has left for want of it joins again."""
        if self._machine.membership.phase is Phase.IDLE:
            self._poll()
        self._machine.alive(self._now_ms())

    def give_back(self, holding: Holding, position: int, refused: str) -> None:
        """See `Member`; nothing while the worker stops."""
        if not self._is_draining:
            super().give_back(holding, position, refused)

    def subscribe(self, topics: Mapping[str, int]) -> None:
        """See `Member`. Its owner may have told it more topics, and more partitions to come."""
        more = widened(self._machine.membership.config.topics, topics)
        if more is not None:
            super().subscribe(more)

    async def report(self, ends: Mapping[TopicPartition, int]) -> None:
        """Nothing: its own setting `log_ends` has it report."""

    async def close(self, reason: str) -> None:
        """Return it to its owner, who wants what it is assigned."""
        self.set_unwanted(tuple)
        await super().close(reason)

    def _poll(self) -> None:
        self._machine.poll_begins(self._now_ms())
        self._machine.poll_ends(self._now_ms())
        self._driver.turn()


def widened(known: Mapping[str, int], told: Mapping[str, int]) -> dict[str, int] | None:
    """Topics with at least as many partitions as both say; None: they are the known ones."""
    more = {name: max(count, known.get(name, 0)) for name, count in told.items()}
    return None if more.items() <= known.items() else {**known, **more}
