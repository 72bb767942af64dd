"""The member of a worker: a `Member` whose events the worker takes in the place of polling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coordinator.client.member.events import Granted, MemberEvent
from coordinator.client.member.face import Member
from coordinator.client.member.ledger import Holding


class LentMember:
    """A member that the caller of `consume` has started, and closes: nobody else polls meanwhile.

    What it holds when the worker stops it holds on to. Each `alive` counts as a poll.

    Attributes:
        assignments: how many times it was assigned partitions.
    """

    def __init__(
        self, member: Member, topics: Mapping[str, int], on_change: Callable[[], None]
    ) -> None:
        self._member, self._topics = member, topics
        self._owner_on_change, member.on_change = member.on_change, on_change
        self._is_draining = False
        self.assignments = 0
        self.alive()
        self._first = member.machine.standing_events()

    def __getattr__(self, name: str) -> Any:  # Any: whatever a member has.
        return getattr(self._member, name)

    async def start(self) -> None:
        """Declare what is to be read; its owner has started it."""
        await self.subscribe(self._topics)

    def take_events(self) -> list[MemberEvent]:
        """See `Member`. The caller may have polled before."""
        first, self._first = self._first, []
        events = self._member.take_events()
        self.assignments += sum(isinstance(event, Granted) for event in events)
        return first + events

    def alive(self) -> None:
        """Count as progress; a member that has left for want of it joins again."""
        self._member.count_as_poll()

    def released(self, holding: Holding, position: int = -1) -> None:
        """See `Member`; nothing while the worker stops."""
        if not self._is_draining:
            self._member.released(holding, position)

    def refuse(self, holding: Holding, reason: str) -> None:
        """See `Member`; nothing while the worker stops."""
        if not self._is_draining:
            self._member.refuse(holding, reason)

    def drain(self, within_ms: int, reason: str = "", *, leave: bool | None = None) -> bool:
        """See `Member`; nothing is told to the group."""
        self._is_draining = True
        return False

    async def subscribe(self, topics: Mapping[str, int]) -> None:
        """See `Member`. Its owner may have told it more topics, and more partitions to come."""
        known = self._member.machine.part.topics
        more = {name: max(count, known.get(name, 0)) for name, count in topics.items()}
        if not more.items() <= known.items():
            await self._member.subscribe({**known, **more})

    async def report(self, ends: Mapping[Any, int]) -> bool:
        """Nothing: its own setting `log_ends` has it report."""
        return True

    async def close(self, reason: str) -> None:
        """Return it to its owner, who wants what it is assigned."""
        self._member.set_unwanted(tuple)
        self._member.on_change = self._owner_on_change


WorkersMember = Member | LentMember
