"""A member's machine: all decisions of a member, without I/O; it is told the time.

A driver asks `next_action` until there is none, carries the actions out, hands in each call's
answer and what streams say, and asks again at `next_deadline`, which is exact: without an input
nothing changes before it. In between the owner polls, commits and closes, and the driver asks after
each input.

    owner ──► poll, commit, fetch, close ──►  ┌─────────┐ ──► next_action: Call, Cancel, Send, ...
                                              │ machine │
    driver ──► answers, messages, the time ─► └─────────┘ ──► next_deadline, events, operations

| file | decides |
|---|---|
| `ledger.py` | whether a commit may be sent: for which holdings, and whether they count now |
| `operations.py` | how commits and fetches are retried, and what their answers mean |
| `classic/`, `session/` | what the protocol says next, and what an answer means (`part.py`) |
| `discovery.py` | which bootstrap address to ask next |
| `reachability.py` | when to log that no coordinator answers |

The machine itself owns what is the same in both protocols: the queue of those who wait for a
connection to the group's coordinator, the events that the owner has not been given, closing, state,
failure and log lines.

Model: the connection of quinn-proto (`poll_transmit`, `handle_event`, `poll_timeout`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar, cast

from coordinator.assignors import TopicPartition
from coordinator.client.errors import (
    CoordinatorError,
    FatalError,
    StaleMember,
    reason_of,
)
from coordinator.client.member import calls
from coordinator.client.member.calls import Level, Next
from coordinator.client.member.discovery import Discovery
from coordinator.client.member.events import Granted, MemberEvent, Revoking, Warming
from coordinator.client.member.ledger import UNKNOWN_OFFSET, Holding, Holdings, Ledger
from coordinator.client.member.operations import (
    GIVE_UP_MS,
    CommitOperation,
    FetchOperation,
    MemberOperation,
    ReportOperation,
)
from coordinator.client.member.part import Leaving, PartContext, ProtocolPart, Requester
from coordinator.client.member.reachability import Reachability
from coordinator.client.member.state import MemberState, member_name
from coordinator.client.offsets import Commit
from coordinator.client.settings.configs import MemberConfig

LEAVE_MS = 2_000
"""Time that commits under way have when the member closes."""
Op = TypeVar("Op", bound=MemberOperation)
Config = TypeVar("Config", bound=MemberConfig)


class MemberMachine:
    """One member. The part may be read from outside; only the methods here change it.

    Args:
        protocol: makes its part.
        bootstrap: one or several HOST:PORT to ask for the coordinator.
        random: from 0 to 1, below 1.
    """

    def __init__(
        self,
        protocol: Callable[[Config, PartContext, Callable[[], float]], ProtocolPart],
        config: Config,
        bootstrap: Iterable[str],
        random: Callable[[], float],
    ) -> None:
        self.group_id = config.group_id
        self.topics = config.topics
        """Topics that the member declares, to numbers of partitions."""
        self.random = random
        self.ledger = Ledger()
        self.events: deque[MemberEvent] = deque()
        """Events that the owner has not been given yet."""
        self.unwanted: Callable[[], Collection[TopicPartition]] = tuple
        """Partitions that the owner had rather not be assigned; asked before each join."""
        self.discovery = Discovery(config.group_id, bootstrap)
        self.is_closed = self.is_started = False
        self.leaving: Leaving | None = None
        self._failure: Exception | None = None
        self._reachability = Reachability()
        self._operations: list[MemberOperation] = []
        # Requesters with a request to make, in order: each waits until there is a connection.
        self._queue: deque[Requester] = deque()
        self._out: dict[
            calls.MemberCall, calls.MemberCall
        ] = {}  # A dict keeps their order; a set does not.
        self._actions: deque[calls.MemberAction] = deque()
        self._logs: list[calls.LogMessage] = []
        self._leave_by_ms: int | None = None
        self._is_leaving = False
        self._state = ("stopped", 0)
        self._stale_logged = ""
        """The failure during which a stale commit was last logged."""
        self.part = protocol(config, self, random)
        self.commits, self.progress = self.part.commits, self.part.progress

    # --- The owner ---

    @property
    def has_events(self) -> bool:
        """True if there are events for the owner, who waits."""
        return bool(self.events) or self.part.state() == "stopped"

    @property
    def is_connected(self) -> bool:
        """True if a coordinator was found, and no call to it has failed since."""
        return self.discovery.is_connected

    @property
    def failure(self) -> CoordinatorError | None:
        """The error that stopped the member, as its owner is given it; None: there was none."""
        failure = self._failure
        if failure is None or isinstance(failure, FatalError):
            return failure
        error = CoordinatorError(f"the member has failed: {reason_of(failure)}")
        error.__cause__ = failure
        return error

    @property
    def state(self) -> MemberState:
        """The state as of the last turn."""
        failure = self.failure
        last_failure = self._reachability.failure or self.part.status().failure
        return MemberState(*self._state, str(failure) if failure else last_failure or None)

    @property
    def name(self) -> str:
        """The member and its group, for messages."""
        return member_name(self.group_id, *self.part.status().ids)

    def start(self, now_ms: int) -> None:
        """Begin to join."""
        self.is_started = True
        self.part.start(now_ms)
        self._reachability.begin(now_ms)
        self._note_state(now_ms)

    def hand_out(self, now_ms: int) -> list[MemberEvent]:
        """Events since the last call. From now on the owner holds what they grant."""
        events = self.part.hand_out(now_ms)
        granted = (event.holdings for event in events if isinstance(event, Granted))
        self.ledger.hand_out(holding for holdings in granted for holding in holdings)
        return events

    def subscribe(self, topics: Mapping[str, int], now_ms: int) -> None:
        """Declare other topics, or other numbers of partitions."""
        self.topics = topics
        self.part.subscribe(topics, now_ms)

    def standing_events(self) -> list[MemberEvent]:
        """Events that bring a new owner up to date."""
        rules, known = self.part.holdings, sorted(self.ledger.held)
        events: list[MemberEvent] = []
        if known:
            events.append(Granted(self.ledger.current(known)))
        for holding in self.ledger.current(known):
            deadline_ms = rules.deadline_of(holding)
            if deadline_ms is not None:
                events.append(Revoking((holding,), deadline_ms))
        events += (Warming((holding,)) for holding in rules.warmed())
        return events

    def commit(
        self,
        commit: Commit,
        holdings: Collection[Holding] | None,
        now_ms: int,
        timeout_ms: int = GIVE_UP_MS,
        *,
        waits: bool = False,
        handed_out: Callable[[], Holdings] | None = None,
    ) -> CommitOperation:
        """Begin a commit, and determine the holdings that it counts for.

        Args:
            holdings: passed by the caller; None: those that were handed out to it.
            handed_out: returns these, or raises StaleMember; None: all that were handed out.
            timeout_ms: the longest time that it takes.
            waits: wait while a holding is suspended, instead of being refused.
        Raises:
            StaleMember: the owner was not handed a partition. CommitFailed: an offset is negative.
        """
        commit.check()
        try:
            known = handed_out() if handed_out is not None and holdings is None else None
            claimed = self.ledger.claim(commit.offsets.keys(), holdings, known)
        except StaleMember as error:
            self.log_stale(error)
            raise
        begun = CommitOperation(commit, claimed, self, self.random, now_ms, timeout_ms, waits=waits)
        self.progress.note_commit(now_ms)
        return self._begin(begun)

    def fetch(
        self,
        partitions: tuple[TopicPartition, ...] | None,
        now_ms: int,
        timeout_ms: int = GIVE_UP_MS,
    ) -> FetchOperation:
        """Begin a fetch of committed offsets; None: all of them."""
        return self._begin(
            FetchOperation(self.group_id, partitions, self.random, now_ms, timeout_ms)
        )

    def report(self, logs: Mapping[TopicPartition, range], now_ms: int) -> ReportOperation | None:
        """Begin a report of log end offsets; None: a message of the protocol carries it."""
        if self.progress.report(logs):
            return None
        return self._begin(ReportOperation(self.commits.identity(), logs, self.random, now_ms))

    def abandon(self, operation: MemberOperation) -> None:
        """End an operation that its caller does not wait for any more."""
        operation.end()
        self.cancel(operation)

    def give_back(
        self,
        holdings: Collection[Holding],
        now_ms: int,
        *,
        position: int = UNKNOWN_OFFSET,
        refused: str = "",
    ) -> None:
        """The owner has finished with holdings, asked to or not; see `ProtocolPart.give_back`."""
        self.part.give_back(holdings, position, refused, now_ms)

    def close(self, leaving: Leaving, now_ms: int) -> None:
        """Stop, and leave the group once pending commits are answered, within two seconds."""
        if self.leaving is None:
            self.leaving = leaving
            self.ledger.close()
            self._leave_by_ms = now_ms + LEAVE_MS
            self.part.begin_to_close(leaving)

    # --- The driver ---

    def next_action(self, now_ms: int) -> calls.MemberAction | None:
        """The next action to carry out; None: none before the next input or `next_deadline`."""
        if self.is_started or self.leaving is not None:
            self.part.pass_time(now_ms)
            self._note_silence(now_ms)
            while not self._actions and self._take_step(now_ms):
                pass
        self._note_state(now_ms)
        self._actions.extend(self._logs)
        self._logs.clear()
        return self._actions.popleft() if self._actions else None

    def next_deadline(self) -> int | None:
        """Time at which `next_action` has something to do without another input; None: never."""
        if self.is_closed:
            return None
        ends: list[int | None] = [one.next_deadline() for one in self._operations]
        ends += [self.part.next_deadline(), self._leave_by_ms]
        if self._wants_coordinator:
            ends.append(self._reachability.next_deadline())
        return min((end for end in ends if end is not None), default=None)

    def handle(self, answer: calls.Answer, now_ms: int) -> None:
        call, result = answer.call, answer.result
        if self._out.pop(call, None) is None:
            return  # It was cancelled.
        is_beat = isinstance(call.request, calls.Beat) and bool(self._operations)
        self._log_if(Level.INFO, self._reachability.take_in(result, now_ms, is_beat=is_beat))
        if isinstance(result, calls.CallUnanswered):
            self.hang_up(call.connection)
        requester = cast("Requester | Discovery", call.requester)
        if isinstance(requester, Discovery):
            failure = requester.handle(result)
            if failure is not None and self._queue:
                # The others in the queue begin a new search.
                self._queue.popleft().handle(None, failure, now_ms)
        elif requester.handle(call.request, result, now_ms) is Next.REDISCOVER:
            self.hang_up(call.connection)

    def received(self, message: calls.Received | calls.StreamClosed, now_ms: int) -> None:
        """Take in a message of a stream, or its end."""
        self.part.received(message, now_ms)

    def fail(self, error: Exception, reason: str = "") -> None:
        """Stop because of an error, a bug or a failed assignor say; the owner is notified."""
        if self._failure is None:
            self._failure = error
            self.log(Level.WARNING, f"stopped: {reason_of(error)}")
        self.part.stop(reason or f"failed: {reason_of(error)}")

    def note_failure(self, error: Exception) -> None:
        self._failure = self._failure or error

    # --- What the part asks for ---

    def take_events(self) -> list[MemberEvent]:
        events = list(self.events)
        self.events.clear()
        return events

    def enqueue(self, requester: Requester) -> None:
        self._queue.append(requester)

    def call(self, request: calls.Request, requester: Requester | Discovery) -> None:
        """Make a call over the connection that there is."""
        timeout_ms = self.part.timeout_ms(request)
        call = calls.MemberCall(request, timeout_ms, self.discovery.connection, requester)
        self._out[call] = call
        self._actions.append(call)

    def cancel(self, requester: Requester | Discovery) -> None:
        self._queue = deque(other for other in self._queue if other is not requester)
        for call in [call for call in self._out if call.requester is requester]:
            del self._out[call]
            self._actions.append(calls.Cancel(call))

    def act(self, action: calls.MemberAction) -> None:
        self._actions.append(action)

    def note_result(self, result: calls.Result, now_ms: int) -> None:
        self._log_if(Level.INFO, self._reachability.take_in(result, now_ms))

    def hang_up(self, connection: int) -> None:
        if self.discovery.is_connected and connection == self.discovery.connection:
            self.discovery.is_connected = False
            self._actions.append(calls.HangUp())

    def commits_are_out(self, holding: Holding | None = None) -> bool:
        return any(
            isinstance(one, CommitOperation)
            and not one.is_done
            and (holding is None or holding in one.claimed)
            for one in self._operations
        )

    def waiting(self) -> dict[TopicPartition, int]:
        return {
            holding.partition: one.begun_ms
            for one in self._operations
            if isinstance(one, CommitOperation) and one.repeated and not one.is_done
            for holding in one.claimed
        }

    def end(self) -> None:
        if not self._queue:
            self.cancel(self.discovery)
        self.hang_up(self.discovery.connection)
        self.is_closed = True

    # --- Steps ---

    def _take_step(self, now_ms: int) -> bool:
        """True if something was done, so that there may be more to do."""
        self.part.take_step(now_ms)
        self._queue_operations(now_ms)
        if self._may_leave(now_ms):
            assert self.leaving is not None
            self._is_leaving = True
            self.part.leave(self.leaving, now_ms)
            return True
        if self._leave_by_ms is not None and now_ms >= self._leave_by_ms and not self.is_closed:
            self._leave_by_ms = None
            self.part.leave_by(now_ms)
            return True
        return self._send_next(now_ms)

    def _may_leave(self, now_ms: int) -> bool:
        if self.leaving is None or self._is_leaving or self._leave_by_ms is None:
            return False
        return now_ms >= self._leave_by_ms or not self.commits_are_out()

    def _begin(self, operation: Op) -> Op:
        self._operations.append(operation)
        return operation

    def _queue_operations(self, now_ms: int) -> None:
        for operation in self._operations:
            operation.check_deadline(now_ms)
            if operation.due_ms is not None and now_ms >= operation.due_ms:
                operation.due_ms = None
                self._queue.append(operation)
            if operation.is_done:
                self.cancel(operation)  # Its time is up: an answer comes too late.
        self._operations = [one for one in self._operations if not one.is_done]

    def _send_next(self, now_ms: int) -> bool:
        """Make the next request of the queue; False: there is none, or no connection yet."""
        if not self._queue:
            return False
        if self.discovery.is_connected:
            requester = self._queue.popleft()
            request = requester.attempt(now_ms)
            if request is not None:
                self.call(request, requester)
        elif self.discovery.is_looking:
            return False
        else:
            self.call(self.discovery.next_search(), self.discovery)
        return True

    # --- The log and the state ---

    def log(self, level: Level, text: str) -> None:
        status = self.part.status()
        name = member_name(self.group_id, *status.ids)
        line = " ".join(f"{name}: {text}".split())
        self._logs.append(calls.LogMessage(level, line, self.group_id, status.member_id))

    def log_stale(self, error: StaleMember) -> None:
        """Log a commit that came too late: after everything was lost, a warning of the first one
        says it for all."""
        failure = self.part.status().failure
        is_known = bool(failure) and failure == self._stale_logged
        self._stale_logged = failure
        self.log(Level.DEBUG if is_known else Level.WARNING, f"stale commit: {error}")

    def _log_if(self, level: Level, text: str) -> None:
        if text:
            self.log(level, text)

    @property
    def _wants_coordinator(self) -> bool:
        return self.is_started and self.part.state() not in ("idle", "stopped")

    def _note_silence(self, now_ms: int) -> None:
        if self._wants_coordinator:
            silence = self._reachability.pass_deadlines(self.discovery.addresses, now_ms)
            self._log_if(Level.WARNING, silence)
        else:
            self._reachability.since_ms = None

    @property
    def unreachable_because(self) -> str:
        """Reason that the last call had no answer; empty: it had one."""
        return self._reachability.failure

    def _note_state(self, now_ms: int) -> None:
        name = self.part.state() if self.is_started else "stopped"
        if name != self._state[0]:
            self._state = (name, now_ms)
