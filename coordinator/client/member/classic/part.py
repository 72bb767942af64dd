"""The classic protocol of a member: joins, syncs and beats, and gives back what rebalances take.

| file | decides |
|---|---|
| `membership.py` | what answers of the protocol mean; revocations and the end of the session |
| `schedule.py` | which request of the protocol is next, and when; back-off; an owner that hangs |
| `assignor_choice.py` | with which assignors to join, and so whether the member is eager |
| `assigning.py`, `declarations.py` | what a leader divides, and what members tell it |
| `revocations.py` | until when the owner has partitions that are taken away |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from coordinator.assignors import TopicPartition
from coordinator.client.errors import CommitFailed, RebalanceInProgress
from coordinator.client.member import calls
from coordinator.client.member.calls import Level, Next
from coordinator.client.member.classic.membership import Membership, MembershipPhase
from coordinator.client.member.classic.schedule import Schedule, timeout_ms
from coordinator.client.member.events import MemberEvent
from coordinator.client.member.ledger import FOREVER_MS, MEMBERSHIP, Holding
from coordinator.client.member.part import Leaving, PartContext
from coordinator.client.member.reachability import failure_of_result
from coordinator.client.settings.configs import ClassicConfig


class ClassicPart(Membership):
    """The classic protocol, for one member: its rules, and when its requests are made.

    Args:
        random: from 0 to 1, below 1.
    """

    releases_cost_nothing = False

    def __init__(self, config: ClassicConfig, random: Callable[[], float]) -> None:
        super().__init__(config)
        self._schedule = Schedule(self, random)
        self.beat_interval_s = config.heartbeat_interval_ms / 1000

    # --- Life ---

    def start(self, now_ms: int) -> None:
        self._schedule.start(now_ms)

    @property
    def is_stopped(self) -> bool:
        return self.phase is MembershipPhase.STOPPED

    @property
    def wants_coordinator(self) -> bool:
        return self.phase not in (MembershipPhase.IDLE, MembershipPhase.STOPPED)

    def state(self) -> str:
        if self.is_between_assignments and not self.machine.discovery.is_connected:
            return "connecting"
        return self.phase.value

    @property
    def is_assigned(self) -> bool:
        return bool(self.machine.ledger.known((MEMBERSHIP,)))

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """See `ProtocolPart`; without what is being revoked."""
        return self.machine.ledger.known(self.assigned)

    # --- Time and messages ---

    def pass_time(self, now_ms: int) -> None:
        self._schedule.pass_deadlines(now_ms)

    def take_step(self, now_ms: int) -> None:
        """See `ProtocolPart`. A join under way is replaced if partitions were given back since."""
        schedule = self._schedule
        if self.must_join_again:
            self.must_join_again = False
            if schedule.is_out:
                self.machine.cancel(schedule)
                schedule.is_out = False
                schedule.hurry(now_ms)
        if schedule.is_due(now_ms):
            schedule.is_out = True
            self.machine.enqueue(schedule)

    def next_deadline(self) -> int | None:
        return self._schedule.next_deadline()

    def timeout_ms(self, request: calls.Request) -> int:
        return timeout_ms(request, self.config)

    # --- The owner ---

    def handed_out(self, events: Collection[MemberEvent]) -> None:
        self.revocations.hand_out()

    def poll_begins(self, now_ms: int, *, gives_back: bool) -> None:
        self._schedule.poll_begins(now_ms)
        phase = self.phase
        self.polled(now_ms, gives_back=gives_back)
        self._hurry_if_moved(phase, now_ms)

    def poll_ends(self, now_ms: int) -> None:
        self._schedule.poll_ends(now_ms)

    def alive(self, now_ms: int) -> None:
        self._schedule.alive(now_ms)

    def give_back(
        self, holdings: Collection[Holding], position: int, refused: str, now_ms: int
    ) -> None:
        """See `ProtocolPart`. The assignor decides who gets them, from what is committed."""
        lasts = self.machine.ledger.lasts
        partitions = frozenset(held.partition for held in holdings if lasts(held))
        phase = self.phase
        self.give_back_partitions(partitions, now_ms, refused)
        self._hurry_if_moved(phase, now_ms)

    def set_unwanted(self, unwanted: Callable[[], Collection[TopicPartition]]) -> None:
        """See `ProtocolPart`. Each join declares them, and assignors heed it."""
        self.unwanted = unwanted

    @property
    def topics(self) -> Mapping[str, int]:
        return self.config.topics

    def subscribe(self, topics: Mapping[str, int], now_ms: int) -> None:
        """See `ProtocolPart`; the member joins again if need be."""
        phase = self.phase
        super().subscribe(topics, now_ms)
        self._hurry_if_moved(phase, now_ms)

    def drain(self, within_ms: int, reason: str, now_ms: int, *, leave: bool | None) -> bool:
        """See `ProtocolPart`. A static member that will not `leave` keeps its place, as it is."""
        self.keeps_place = self.config.instance_id is not None and not leave
        self.is_draining = not self.keeps_place
        return False

    def send_heartbeat_now(self, now_ms: int) -> None:
        if self.is_in_session:
            self._schedule.hurry(now_ms)

    # --- Until when work may go on ---

    def ends_ms(self, holding: Holding) -> int:
        """See `ProtocolPart`. While a generation is joined, the coordinator counts no session."""
        if not self.machine.ledger.lasts(holding):
            return 0
        return self.session_ends_ms if self.is_in_session else FOREVER_MS

    def deadline_of(self, holding: Holding) -> int | None:
        return self.revocations.deadline_of(holding.partition)

    # --- Commits ---

    def between_assignments(self) -> str:
        if not self.is_between_assignments:
            return ""
        return (
            "the assignment of the next generation; the member is "
            f"{self.phase.value}, generation {self.generation}"
        )

    def out_of_date(self, refusal: CommitFailed, sent: calls.Identity, now_ms: int) -> bool:
        """See `ProtocolPart`: of a rebalance that the member hears of by it, or has been in."""
        phase = self.phase
        is_current = sent.generation == self.generation
        if isinstance(refusal, RebalanceInProgress) and is_current:
            self.rebalance(now_ms)
            self._hurry_if_moved(phase, now_ms)
        return self.is_between_assignments or not is_current

    # --- Closing ---

    def begin_to_close(self, leaving: Leaving) -> None:
        """See `ProtocolPart`: it is lost at once, so no other commit counts."""
        self.stop(leaving.reason)

    def leave(self, leaving: Leaving, now_ms: int) -> None:
        """See `ProtocolPart`. A static member keeps its place, unless it is to leave."""
        machine = self.machine
        machine.cancel(self._schedule)
        request = self.leave_request(leaving.reason) if self._leaves(leaving.leave) else None
        if request is not None and machine.discovery.is_connected:
            machine.call(request, _Leave(machine, leaving.reason))
            return
        if self._schedule.is_started:
            kept = " without leaving: its place is kept until its session ends"
            machine.log(Level.INFO, f"closed{kept if self.member_id else ''}: {leaving.reason}")
        machine.end()

    def _leaves(self, leave: bool | None) -> bool:
        if leave is not None:
            return leave
        return self.config.instance_id is None or self.is_draining

    def _hurry_if_moved(self, phase: MembershipPhase, now_ms: int) -> None:
        """Take the next step at once if an input has moved the member to another phase."""
        if self.phase is not phase:
            self._schedule.hurry(now_ms)


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
