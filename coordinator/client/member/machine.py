"""A member's machine: all decisions of a member, without I/O; it is told the time.

A driver asks `next_action` until there is none, carries the actions out, hands each call's answer
to `handle`, and asks again at `next_deadline`, which is exact: without an input nothing changes
before it. In between the owner polls, commits and closes, and the driver asks after each input.

    owner ──► poll, commit, fetch, close ──►  ┌─────────┐ ──► next_action: Call, Cancel, HangUp
                                              │ machine │
    driver ──► handle(answer), the time ───►  └─────────┘ ──► next_deadline, events, operations

| file | decides |
|---|---|
| `membership.py` | what answers of the protocol mean; revocations and the end of the session |
| `schedule.py` | which request of the protocol is next, and when; back-off; an owner that hangs |
| `operations.py` | how commits and fetches are retried, and what their answers mean |
| `holdings.py` | which holdings a commit counts for |
| `calling.py` | which call is next, over which connection; shared with members of sessions |
| `discovery.py` | which bootstrap address to ask next |
| `assignor_choice.py` | with which assignors to join, and so whether the member is eager |
| `reachability.py` | when to tell that no coordinator answers |

Model: the connection of quinn-proto (`poll_transmit`, `handle_event`, `poll_timeout`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from coordinator.assignors import TopicPartition
from coordinator.client.errors import CoordinatorError, StaleMember
from coordinator.client.member import calls
from coordinator.client.member.calling import Asker, CallingMachine, told_failure
from coordinator.client.member.calls import Level
from coordinator.client.member.classic.membership import Membership, Next, Phase
from coordinator.client.member.classic.schedule import LEAVE_TIMEOUT_MS, Schedule, timeout_ms
from coordinator.client.member.events import RebalanceEvent
from coordinator.client.member.ledger import Holding
from coordinator.client.member.operations import (
    GIVE_UP_MS,
    CommitOperation,
    Operation,
    ReportOperation,
)
from coordinator.client.member.reachability import trouble_of
from coordinator.client.member.state import MemberState
from coordinator.client.offsets import Commit
from coordinator.client.settings.configs import ClassicConfig


class MemberMachine(CallingMachine):
    """One member. `membership` may be read from outside; only the methods here change it.

    Args:
        bootstrap: one or several HOST:PORT to ask for the coordinator.
        random: from 0 to 1, below 1.
    """

    def __init__(
        self, config: ClassicConfig, bootstrap: Iterable[str], random: Callable[[], float]
    ) -> None:
        super().__init__(config.group_id, bootstrap, random)
        self.config = config
        self.membership = Membership(config)
        self._schedule = Schedule(self.membership, random)
        self._closing: _Closing | None = None
        self._state = ("stopped", 0)

    # --- The owner ---

    @property
    def events(self) -> list[RebalanceEvent]:
        """Events that the owner has not been given yet."""
        return self.membership.events

    @property
    def name(self) -> str:
        return self.membership.name

    def log(self, level: Level, text: str) -> None:
        self.membership.log(level, text)

    @property
    def failure(self) -> CoordinatorError | None:
        """The error that stopped the member; None: there was none."""
        return told_failure(self.membership.failure)

    @property
    def has_stopped(self) -> bool:
        """True if the member will not join again."""
        return self.membership.phase is Phase.STOPPED

    @property
    def state(self) -> MemberState:
        """The state as of the last turn."""
        failure = self.failure
        trouble = self._reachability.trouble or self.membership.trouble
        return MemberState(*self._state, str(failure) if failure else trouble or None)

    def start(self, now_ms: int) -> None:
        """Begin to join."""
        self._schedule.start(now_ms)
        self._reachability.begin(now_ms)
        self._note_state(now_ms)

    def poll_begins(self, now_ms: int) -> None:
        """The owner polls: it has finished with partitions that it was told are being revoked."""
        self._schedule.poll_begins(now_ms)
        phase = self.membership.phase
        self.membership.polled(now_ms)
        self._hurry_if_moved(phase, now_ms)

    def poll_ends(self, now_ms: int) -> None:
        """The owner's poll returns."""
        self._schedule.poll_ends(now_ms)

    def hand_out(self, now_ms: int) -> list[RebalanceEvent]:
        """Events since the last call. From now on the owner holds what they assign."""
        return self.membership.hand_out(now_ms)

    def give_back(self, partitions: frozenset[TopicPartition], now_ms: int) -> None:
        """The owner has finished with single partitions; see `Membership.give_back`."""
        phase = self.membership.phase
        self.membership.give_back(partitions, now_ms)
        self._hurry_if_moved(phase, now_ms)

    def drain(self, *, leave: bool) -> None:
        """Take no more partitions from the next join on; a static member that will not `leave`
        keeps its place instead, as it is."""
        membership = self.membership
        membership.keeps_place = self.config.instance_id is not None and not leave
        membership.is_draining = not membership.keeps_place

    def subscribe(self, topics: Mapping[str, int], now_ms: int) -> None:
        """Change the topics or their numbers of partitions, and join again if need be."""
        phase = self.membership.phase
        self.membership.subscribe(topics, now_ms)
        self._hurry_if_moved(phase, now_ms)

    def alive(self, now_ms: int) -> None:
        """The owner makes progress without polling. May be called from any thread."""
        self._schedule.alive(now_ms)

    def beat_now(self, now_ms: int) -> None:
        """Send the next heartbeat now, so that it is batched with those of others."""
        if self.membership.is_in_session:
            self._schedule.hurry(now_ms)

    def commit(
        self,
        commit: Commit,
        holdings: Collection[Holding] | None,
        now_ms: int,
        timeout_ms: int = GIVE_UP_MS,
    ) -> CommitOperation:
        """Begin a commit, and determine the holdings that it counts for.

        Args:
            holdings: passed by the caller; None: those of the last poll.
            timeout_ms: the longest time that it takes.
        Raises:
            StaleMember: the owner was not handed a partition. CommitFailed: an offset is negative.
        """
        commit.check()
        membership = self.membership
        try:
            claimed = membership.holdings.claim(commit.offsets.keys(), holdings)
        except StaleMember as error:
            membership.log_stale(error)
            raise
        begun = CommitOperation(commit, claimed, membership, self._random, now_ms, timeout_ms)
        return self._begin(begun)

    def report(self, ends: Mapping[TopicPartition, int], now_ms: int) -> ReportOperation:
        """Begin a report of log end offsets."""
        return self._begin(ReportOperation(self.membership, ends, self._random, now_ms))

    def close(self, reason: str, now_ms: int, *, leave: bool | None = None) -> None:
        """Stop, and leave the group once pending commits are answered, within two seconds.

        Args:
            leave: None: unless the member is static.
        """
        self.membership.stop(reason)
        if self._closing is None:
            leaves = self.config.instance_id is None if leave is None else leave
            self._closing = _Closing(self, reason, leaves, now_ms + LEAVE_TIMEOUT_MS)

    # --- The driver ---

    def next_action(self, now_ms: int) -> calls.Action | None:
        """The next action to carry out; None: none before the next input or `next_deadline`."""
        self._schedule.pass_deadlines(now_ms)
        self._tell_of_silence(now_ms)
        while not self._actions and self._take_step(now_ms):
            pass
        self._note_state(now_ms)
        self._actions.extend(self.membership.logs)
        self.membership.logs.clear()
        return self._actions.popleft() if self._actions else None

    def next_deadline(self) -> int | None:
        """Time at which `next_action` has something to do without another input; None: never."""
        ends: list[int | None] = [one.next_deadline() for one in self._operations]
        ends.append(self._schedule.next_deadline())
        if self._asks:
            ends.append(self._reachability.next_deadline())
        if self._closing is not None and not self._closing.has_begun:
            ends.append(self._closing.until_ms)
        return min((end for end in ends if end is not None), default=None)

    def fail(self, error: Exception) -> None:
        """Stop because of a bug, or of an assignor that failed; the owner is told."""
        self.membership.fail(error)

    # --- Requests ---

    def _queue_what_is_due(self, now_ms: int) -> None:
        if self._schedule.is_due(now_ms):
            self._schedule.is_out = True
            self._queue.append(self._schedule)
        self._queue_operations(now_ms)

    def _take_step(self, now_ms: int) -> bool:
        """True if something was done, so that there may be more to do."""
        if self.membership.must_join_again:
            self._repeat_join(now_ms)
        self._queue_what_is_due(now_ms)
        if self._closing_is_due(now_ms):
            self._begin_to_close()
            return True
        return self._send_next(now_ms)

    def _attempt(self, asker: Asker, now_ms: int) -> None:
        phase = self.membership.phase
        super()._attempt(asker, now_ms)
        self._hurry_if_moved(phase, now_ms)

    def _repeat_join(self, now_ms: int) -> None:
        """Replace the join under way: the member has given partitions back meanwhile."""
        self.membership.must_join_again = False
        if self._schedule.is_out:
            self._cancel(self._schedule)
            self._schedule.is_out = False
            self._schedule.hurry(now_ms)

    def _timeout_ms(self, request: calls.Request) -> int:
        return timeout_ms(request, self.config)

    def _tell(
        self,
        asker: Asker,
        request: calls.Request | None,
        result: calls.Result,
        now_ms: int,
    ) -> Next:
        phase = self.membership.phase
        todo = asker.handle(request, result, now_ms)
        if isinstance(asker, Operation):
            self._hurry_if_moved(phase, now_ms)
        return todo

    def _hurry_if_moved(self, phase: Phase, now_ms: int) -> None:
        """Take the next step at once if an input has moved the member to another phase."""
        if self.membership.phase is not phase:
            self._schedule.hurry(now_ms)

    # --- The log and the state ---

    @property
    def _asks(self) -> bool:
        """True while the member wants to be in its group."""
        phase = self.membership.phase
        return self._schedule.is_started and phase not in (Phase.IDLE, Phase.STOPPED)

    def _note_state(self, now_ms: int) -> None:
        phase = self.membership.phase
        if not self._schedule.is_started:
            phase = Phase.STOPPED
        name = phase.value
        if self.membership.is_between_assignments and not self._discovery.is_connected:
            name = "connecting"
        if name != self._state[0]:
            self._state = (name, now_ms)

    # --- Closing ---

    def _closing_is_due(self, now_ms: int) -> bool:
        closing = self._closing
        if closing is None or closing.has_begun:
            return False
        return now_ms >= closing.until_ms or not any(
            isinstance(one, CommitOperation) and not one.is_done for one in self._operations
        )

    def _begin_to_close(self) -> None:
        closing = self._closing
        assert closing is not None
        closing.has_begun = True
        self._cancel(self._schedule)
        leave = self.membership.leave(closing.reason) if closing.leaves else None
        if leave is not None and self._discovery.is_connected:
            self._call(leave, closing)
        else:
            self._log_closed(closing.reason)
            self._end()

    def _log_closed(self, reason: str) -> None:
        membership = self.membership
        kept = " without leaving: its place is kept until its session ends"
        if self._schedule.is_started:
            membership.log(Level.INFO, f"closed{kept if membership.member_id else ''}: {reason}")

    def closed(self, reason: str, trouble: str) -> None:
        """Take in the end of the call that leaves. `trouble`: why it failed; empty: it did not."""
        membership = self.membership
        membership.log_if(Level.INFO, "" if trouble else f"left: {reason}")
        membership.log_if(Level.WARNING, trouble and f"could not leave: {trouble}")
        self._end()


@dataclass(slots=True, eq=False)
class _Closing:
    """A close that the owner asked for. `until_ms`: when it stops waiting for commits."""

    machine: MemberMachine
    reason: str
    leaves: bool
    until_ms: int
    has_begun: bool = False

    def attempt(self, now_ms: int) -> calls.Request | None:
        """Not called: leaving waits for no connection."""

    def handle(self, request: calls.Request | None, result: calls.Result, now_ms: int) -> Next:
        """The coordinator has answered, or cannot be reached."""
        self.machine.closed(self.reason, trouble_of(result))
        return Next.GO_ON
