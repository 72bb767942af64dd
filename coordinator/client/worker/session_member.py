"""The member of a worker in a session group: changes of leases as the events of a worker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from coordinator.assignors import TopicPartition
from coordinator.client.member.events import Assigned, Lost, Revoking, Stopping
from coordinator.client.member.ledger import Holding
from coordinator.client.member.session import changes
from coordinator.client.member.session.member import LONG_S, SessionMember
from coordinator.client.member.session.member_machine import SessionMemberMachine
from coordinator.client.member.session.partitions import Holding as State
from coordinator.client.offsets import Commit
from coordinator.client.settings.configs import SessionConfig
from coordinator.client.transport.driver import Driver
from coordinator.client.worker.environment import Environment
from coordinator.client.worker.member import Borrowed, DrivenMember, Dropped, MemberEvent, widened
from coordinator.client.worker.scope import FOREVER_MS
from coordinator.dial import Credentials


class MachineMember(DrivenMember[SessionMemberMachine]):
    """`Member` of a session group, on a machine and its driver."""

    releases_cost_nothing = True

    def __init__(
        self, machine: SessionMemberMachine, driver: Driver, now_ms: Callable[[], int]
    ) -> None:
        super().__init__(machine, driver, now_ms)
        self._holdings: dict[TopicPartition, Holding] = {}

    @property
    def member_id(self) -> str:
        """See `Member`."""
        return self._machine.session.member_id

    def lasts_until_ms(self, holding: Holding) -> int:
        """See `Member`."""
        return self._machine.partitions.ends_ms(holding.partition, holding.token)

    def may_begin(self, holding: Holding) -> bool:
        """See `Member`: its lease is not in doubt, nor is it paused. One that drains may be begun
        as well: its handler is told."""
        return self._machine.partitions.may_begin(holding.partition, holding.token, self._now_ms())

    def take_events(self) -> list[MemberEvent]:
        """See `Member`."""
        events: list[MemberEvent] = []
        while self._machine.has_news:
            events += map(self._event_of, self._machine.hand_out())
        return events

    def _event_of(self, change: changes.Change) -> MemberEvent:
        match change:
            case changes.Granted(partition, token):
                self._holdings[partition] = Holding(partition, -1, token)
                return Assigned(frozenset((partition,)), -1)
            case changes.Draining(partition, _, deadline_ms):
                until_ms = FOREVER_MS if deadline_ms is None else deadline_ms
                return Revoking(frozenset((partition,)), until_ms)
            case changes.Lost(partition, was_warming=True):
                return Dropped(partition)
            case changes.Lost(partition, _, reason):
                return Lost(frozenset((partition,)), reason)
            case changes.Stopping(reason):
                return Stopping(reason)
            case changes.Warming() | changes.Suspended() | changes.Resumed():
                return change

    def holding(self, partition: TopicPartition) -> Holding:
        """See `Member`."""
        return self._holdings[partition]

    def set_unwanted(self, unwanted: Callable[[], Collection[TopicPartition]]) -> None:
        """Nothing: the coordinator remembers which partitions were refused."""

    def prepared(self, partition: TopicPartition, handoff_id: int, refused: str) -> None:
        """See `Member`."""
        self._machine.prepared(partition, handoff_id, refused)
        self._driver.turn()

    def give_back(self, holding: Holding, position: int, refused: str) -> None:
        """See `Member`."""
        self._machine.release(holding.partition, holding.token, position, refused)
        self._driver.turn()

    def alive(self) -> None:
        """See `Member`; the next heartbeat says so."""
        self._machine.alive(self._now_ms())

    def subscribe(self, topics: Mapping[str, int]) -> None:
        """See `Member`."""
        self._machine.session.subscribe(sorted(topics.items()), self._now_ms())
        self._driver.turn()

    async def commit(self, commit: Commit, holdings: Collection[Holding]) -> None:
        """See `Member`. While a lease is suspended, it waits."""
        tokens = {holding.partition: holding.token for holding in holdings}
        begun = self._machine.commit(commit, tokens, self._now_ms(), waits=True)
        await self._driver.result_of(begun)

    async def report(self, ends: Mapping[TopicPartition, int]) -> None:
        """See `Member`; with the next heartbeat."""
        self._machine.session.report(dict(ends))


class LeasedMember(MachineMember):
    """A member of its own. It begins to attach when it is made.

    Args:
        return_within_ms: when the worker stops, its partitions are kept so long for a process of
            the same name; None: they are handed over.
        on_change: called after each turn of the driver, when there may be events.
    """

    def __init__(
        self,
        config: SessionConfig,
        bootstrap: Iterable[str],
        credentials: Credentials,
        environment: Environment,
        on_change: Callable[[], None],
        *,
        return_within_ms: int | None = None,
    ) -> None:
        machine = SessionMemberMachine(config, bootstrap, environment.random)
        link = environment.connect(credentials, LONG_S, lambda: None)
        driver = Driver(machine, link, environment.now_ms, on_change)
        super().__init__(machine, driver, environment.now_ms)
        self._return_within_ms = return_within_ms
        self._is_returning = False
        machine.start(self._now_ms())
        driver.turn()

    def give_back(self, holding: Holding, position: int, refused: str) -> None:
        """See `Member`; nothing while it stops in order to return."""
        if not self._is_returning:
            super().give_back(holding, position, refused)

    def drain(self, reason: str, within_ms: int, *, leave: bool) -> bool:
        """See `Member`. A member that will return, or has no stream, hands over by itself."""
        self._is_returning = self._return_within_ms is not None and not leave
        if self._is_returning or not self._machine.session.has_stream:
            return False
        self._machine.drain(within_ms, reason, self._now_ms())
        self._driver.turn()
        return True

    async def close(self, reason: str) -> None:
        """See `Member`; one that will return says so."""
        within_ms = self._return_within_ms if self._is_returning else None
        self._machine.close(reason, self._now_ms(), return_within_ms=within_ms)
        await self._driver.until_closed()


class LentLeasedMember(Borrowed, MachineMember):
    """A `SessionMember` that is lent, see `Borrowed`."""

    def __init__(self, member: SessionMember, on_change: Callable[[], None]) -> None:
        super().__init__(*member.parts())
        self._borrow(on_change)
        # The caller may have polled before.
        self._first: list[changes.Change] = []
        for partition, token in self._machine.known.items():
            self._first.append(changes.Granted(partition, token))
            held = self._machine.partitions.held.get(partition)
            if held is not None and held.token == token and held.state is State.DRAINING:
                self._first.append(changes.Draining(partition, token, held.deadline_ms))
        self._first += (changes.Warming(*each) for each in self._machine.preparing.items())

    def take_events(self) -> list[MemberEvent]:
        """See `Member`."""
        first, self._first = self._first, []
        events = [*map(self._event_of, first), *super().take_events()]
        self._count(events)
        return events

    def give_back(self, holding: Holding, position: int, refused: str) -> None:
        """See `Member`; nothing while the worker stops."""
        if not self._is_draining:
            super().give_back(holding, position, refused)

    def subscribe(self, topics: Mapping[str, int]) -> None:
        """See `Member`. Its owner may have told it more topics, and more partitions to come."""
        more = widened(self._machine.session.topics, topics)
        if more is not None:
            super().subscribe(more)
