"""Interface of a worker to its member, whichever protocol it speaks, and the classic ones.

All of it is called on the protocol's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from coordinator.assignors import TopicPartition
from coordinator.client.config import MemberConfig
from coordinator.client.driver import Driver
from coordinator.client.errors import CoordinatorError
from coordinator.client.events import Assigned, RebalanceEvent
from coordinator.client.holdings import Holding
from coordinator.client.machine import MemberMachine
from coordinator.client.membership import Phase
from coordinator.client.offsets import Commit, OffsetAndMetadata
from coordinator.client.session import GroupMember
from coordinator.client.state import MemberState
from coordinator.client.worker.environment import Environment
from coordinator.dial import Credentials


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

    def lasts_until_ms(self) -> int | None:
        """Time at which everything is lost unless the coordinator answers; None: not known."""

    def take_events(self) -> list[RebalanceEvent]:
        """Events since the last call."""

    def holding(self, partition: TopicPartition) -> Holding:
        """The holding of a partition that was just assigned."""

    def give_back(self, partitions: Collection[TopicPartition]) -> None:
        """Give partitions back, asked to or not; they may be assigned to this member again."""

    def drain(self) -> None:
        """Take no more partitions."""

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
        """Leave the group, unless the member is static, and close the connection."""


class MachineMember:
    """`Member` of the classic protocol, on a machine and its driver."""

    _machine: MemberMachine
    _driver: Driver
    _now_ms: Callable[[], int]

    @property
    def failure(self) -> CoordinatorError | None:
        """See `Member`."""
        return self._machine.failure

    @property
    def member_id(self) -> str:
        """See `Member`."""
        return self._machine.membership.member_id

    @property
    def state(self) -> MemberState:
        """See `Member`."""
        return self._machine.state

    def lasts_until_ms(self) -> int | None:
        """See `Member`. While a generation is being joined, the coordinator counts no session."""
        membership = self._machine.membership
        return membership.session_ends_ms if membership.is_in_session else None

    def take_events(self) -> list[RebalanceEvent]:
        """See `Member`."""
        return self._machine.hand_out(self._now_ms())

    def holding(self, partition: TopicPartition) -> Holding:
        """See `Member`."""
        return self._machine.membership.holdings.of(partition)

    def give_back(self, partitions: Collection[TopicPartition]) -> None:
        """See `Member`."""
        self._machine.give_back(frozenset(partitions), self._now_ms())
        self._driver.turn()

    def drain(self) -> None:
        """See `Member`."""
        self._machine.drain()

    def subscribe(self, topics: Mapping[str, int]) -> None:
        """See `Member`."""
        self._machine.subscribe(topics, self._now_ms())
        self._driver.turn()

    async def commit(self, commit: Commit, holdings: Collection[Holding]) -> None:
        """See `Member`."""
        await self._driver.result_of(self._machine.commit(commit, holdings, self._now_ms()))

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """See `Member`."""
        fetch = self._machine.fetch(tuple(partitions), self._now_ms())
        await self._driver.result_of(fetch)
        return fetch.value

    async def report(self, ends: Mapping[TopicPartition, int]) -> None:
        """See `Member`."""
        await self._driver.result_of(self._machine.report(ends, self._now_ms()))

    async def close(self, reason: str) -> None:
        """See `Member`."""
        self._machine.close(reason, self._now_ms())
        await self._driver.until_closed()


class ClassicMember(MachineMember):
    """A member of its own. It begins to join when it is made.

    Args:
        on_change: called after each turn of the driver, when there may be events.
    """

    def __init__(
        self,
        config: MemberConfig,
        bootstrap: Iterable[str],
        credentials: Credentials,
        environment: Environment,
        on_change: Callable[[], None],
    ) -> None:
        self._machine = MemberMachine(config, bootstrap, environment.random)
        self._now_ms = environment.now_ms
        link = environment.connect(credentials, config.heartbeat_interval_ms / 1000, self._beat_now)
        self._driver = Driver(self._machine, link, self._now_ms, on_change)
        self._machine.start(self._now_ms())
        self._driver.turn()

    def _beat_now(self) -> None:
        self._machine.beat_now(self._now_ms())
        self._driver.turn()


class LentMember(MachineMember):
    """A member that the caller of `consume` has started, and closes: nobody else polls meanwhile.

    Each `alive` counts as a poll. What it holds when the worker stops it holds on to.

    Attributes:
        assignments: how many times it was assigned partitions.
    """

    def __init__(self, member: GroupMember, on_change: Callable[[], None]) -> None:
        self._machine, self._driver, self._now_ms = member.parts()
        self._owner_on_change, self._driver.on_change = self._driver.on_change, on_change
        self.assignments = 0
        self._is_draining = False
        self._poll()
        membership = self._machine.membership
        held = membership.holdings.known(membership.assignment)
        # The caller may have polled before.
        self._first: list[RebalanceEvent] = [Assigned(held, membership.generation)] if held else []

    def take_events(self) -> list[RebalanceEvent]:
        """See `Member`."""
        first, self._first = self._first, []
        events = super().take_events()
        self.assignments += sum(isinstance(event, Assigned) for event in events)
        return first + events

    def alive(self) -> None:
        """Count as progress; a member that has left for want of it joins again."""
        if self._machine.membership.phase is Phase.IDLE:
            self._poll()
        self._machine.alive(self._now_ms())

    def give_back(self, partitions: Collection[TopicPartition]) -> None:
        """See `Member`; nothing while the worker stops."""
        if not self._is_draining:
            super().give_back(partitions)

    def drain(self) -> None:
        """See `Member`; nothing is told to the group."""
        self._is_draining = True

    async def report(self, ends: Mapping[TopicPartition, int]) -> None:
        """Nothing: its own setting `log_ends` has it report."""

    async def close(self, reason: str) -> None:
        """Return it to its owner."""
        self._driver.on_change = self._owner_on_change

    def _poll(self) -> None:
        self._machine.poll_begins(self._now_ms())
        self._machine.poll_ends(self._now_ms())
        self._driver.turn()
