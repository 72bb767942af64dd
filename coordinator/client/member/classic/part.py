"""The classic protocol of a member: joins, syncs and beats, and gives back what rebalances take.

| file | decides |
|---|---|
| `membership.py` | what answers of the protocol mean; revocations and the end of the session |
| `schedule.py` | which request of the protocol is next, and when; back-off; an owner that hangs |
| `assignor_choice.py` | with which assignors to join, and so whether the member is eager |
| `assigning.py`, `declarations.py` | what a leader divides, and what members declare to it |
| `revocations.py` | until when the owner has partitions that are taken away |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from coordinator.assignors import TopicPartition
from coordinator.client.errors import CommitFailed, RebalanceInProgress
from coordinator.client.member import calls
from coordinator.client.member.calls import Level, Next
from coordinator.client.member.classic.membership import Membership
from coordinator.client.member.classic.schedule import Schedule, timeout_ms
from coordinator.client.member.events import MemberEvent
from coordinator.client.member.ledger import Holding
from coordinator.client.member.part import (
    CommitRules,
    Leaving,
    PartContext,
    ProtocolPart,
    Status,
)
from coordinator.client.member.reachability import failure_of_result
from coordinator.client.settings.configs import ClassicConfig


class ClassicPart(ProtocolPart):
    """The classic protocol, for one member: its rules, and when its requests are made.

    Args:
        random: from 0 to 1, below 1.
    """

    releases_cost_nothing = False

    def __init__(
        self, config: ClassicConfig, machine: PartContext, random: Callable[[], float]
    ) -> None:
        self._machine = machine
        self.membership = self.holdings = Membership(config, machine)
        self._schedule = self.progress = Schedule(self.membership, random)
        self.commits = ClassicCommits(self.membership, self._schedule)
        self.beat_interval_s = config.heartbeat_interval_ms / 1000

    def state(self) -> str:
        return self.membership.state()

    def status(self) -> Status:
        return self.membership.status()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """See `ProtocolPart`; without what is being revoked."""
        return self._machine.ledger.known(self.membership.assigned)

    # --- Time and messages ---

    def start(self, now_ms: int) -> None:
        self._schedule.start(now_ms)

    def pass_time(self, now_ms: int) -> None:
        self._schedule.pass_deadlines(now_ms)

    def take_step(self, now_ms: int) -> None:
        """See `ProtocolPart`. A join under way is replaced if partitions were given back since."""
        membership, schedule = self.membership, self._schedule
        if membership.must_join_again:
            membership.must_join_again = False
            if schedule.is_out:
                self._machine.cancel(schedule)
                schedule.is_out = False
                schedule.hurry(now_ms)
        if schedule.is_due(now_ms):
            schedule.is_out = True
            self._machine.enqueue(schedule)

    def next_deadline(self) -> int | None:
        return self._schedule.next_deadline()

    def timeout_ms(self, request: calls.Request) -> int:
        return timeout_ms(request, self.membership.config)

    # --- The owner ---

    def hand_out(self, now_ms: int) -> list[MemberEvent]:
        """See `ProtocolPart`. Deadlines that have passed are among them."""
        self.membership.pass_deadlines(now_ms)
        self.membership.revocations.hand_out()
        return self._machine.take_events()

    def poll_begins(self, now_ms: int, *, gives_back: bool) -> None:
        self._schedule.poll_begins(now_ms)
        with self._schedule.hurried_by_move(now_ms):
            self.membership.polled(now_ms, gives_back=gives_back)

    def give_back(
        self, holdings: Collection[Holding], position: int, refused: str, now_ms: int
    ) -> None:
        """See `ProtocolPart`. The assignor decides who gets them, from what is committed."""
        lasts = self._machine.ledger.lasts
        partitions = frozenset(held.partition for held in holdings if lasts(held))
        with self._schedule.hurried_by_move(now_ms):
            self.membership.give_back_partitions(partitions, now_ms, refused)

    def subscribe(self, topics: Mapping[str, int], now_ms: int) -> None:
        """See `ProtocolPart`; the member joins again if need be."""
        with self._schedule.hurried_by_move(now_ms):
            self.membership.subscribe(topics, now_ms)

    def drain(self, within_ms: int, reason: str, now_ms: int, *, leave: bool | None) -> bool:
        """See `ProtocolPart`. A static member that will not `leave` keeps its place, as it is."""
        membership = self.membership
        membership.keeps_place = membership.config.instance_id is not None and not leave
        membership.is_draining = not membership.keeps_place
        return False

    def send_heartbeat_now(self, now_ms: int) -> None:
        if self.membership.is_in_session:
            self._schedule.hurry(now_ms)

    # --- Closing ---

    def stop(self, reason: str) -> None:
        self.membership.stop(reason)

    def begin_to_close(self, leaving: Leaving) -> None:
        """See `ProtocolPart`: it is lost at once, so no other commit counts."""
        self.stop(leaving.reason)

    def leave(self, leaving: Leaving, now_ms: int) -> None:
        """See `ProtocolPart`. A static member keeps its place, unless it is to leave."""
        machine, membership = self._machine, self.membership
        machine.cancel(self._schedule)
        request = membership.leave_request(leaving.reason) if self._leaves(leaving.leave) else None
        if request is not None and machine.discovery.is_connected:
            machine.call(request, _Leave(machine, leaving.reason))
            return
        if self._schedule.is_started:
            kept = " without leaving: its place is kept until its session ends"
            is_kept = bool(membership.member_id)
            machine.log(Level.INFO, f"closed{kept if is_kept else ''}: {leaving.reason}")
        machine.end()

    def _leaves(self, leave: bool | None) -> bool:
        if leave is not None:
            return leave
        return self.membership.config.instance_id is None or self.membership.is_draining


class ClassicCommits(CommitRules):
    """Commits of a classic member, which count in its generation."""

    def __init__(self, membership: Membership, schedule: Schedule) -> None:
        self._membership, self._schedule = membership, schedule

    def identity(self) -> calls.Identity:
        return self._membership.identity()

    def between_assignments(self) -> str:
        membership = self._membership
        if not membership.is_between_assignments:
            return ""
        return (
            "the assignment of the next generation; the member is "
            f"{membership.phase.value}, generation {membership.generation}"
        )

    def out_of_date(self, refusal: CommitFailed, sent: calls.Identity, now_ms: int) -> bool:
        """See `CommitRules`: of a rebalance that the member learns of by it, or has been in."""
        membership = self._membership
        is_current = sent.generation == membership.generation
        if isinstance(refusal, RebalanceInProgress) and is_current:
            with self._schedule.hurried_by_move(now_ms):
                membership.rebalance(now_ms)
        return membership.is_between_assignments or not is_current


class _Leave:
    """Hears of the end of the call that leaves the group."""

    def __init__(self, machine: PartContext, reason: str) -> None:
        self._machine, self._reason = machine, reason

    def attempt(self, now_ms: int) -> calls.Request | None:
        """Not called: leaving waits for no connection."""

    def handle(self, request: calls.Request | None, result: calls.Result, now_ms: int) -> Next:
        """The coordinator has answered, or cannot be reached."""
        failure = failure_of_result(result)
        level = Level.WARNING if failure else Level.INFO
        result_text = f"could not leave: {failure}" if failure else f"left: {self._reason}"
        self._machine.log(level, result_text)
        self._machine.end()
        return Next.GO_ON
