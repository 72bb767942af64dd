"""Calls of a member's machine: which is next, over which connection, and who hears of its answer.

Both kinds of members stand on it. What asks is an `Asker`: an operation of the owner, or the part
of the machine that speaks the protocol. Each waits in a queue until there is a connection to the
group's coordinator, and is asked for its request then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar, cast

from coordinator.assignors import TopicPartition
from coordinator.client.errors import CoordinatorError, FatalError, words_of
from coordinator.client.member import calls
from coordinator.client.member.calls import Level
from coordinator.client.member.classic.membership import Next
from coordinator.client.member.discovery import Discovery
from coordinator.client.member.operations import GIVE_UP_MS, FetchOperation, Operation
from coordinator.client.member.reachability import Reachability
from coordinator.client.member.state import MemberState

Op = TypeVar("Op", bound=Operation)


class Asker(Protocol):
    """Part of a machine that makes requests."""

    def attempt(self, now_ms: int) -> calls.Request | None:
        """The request to make now; None: there is none any more."""

    def handle(self, request: calls.Request | None, result: calls.Result, now_ms: int) -> Next:
        """Take in the result of a request; None: it was not sent, for no coordinator was found."""


class CallingMachine(ABC):
    """Base of machines.

    Args:
        bootstrap: one or several HOST:PORT to ask for the coordinator.
        random: from 0 to 1, below 1.
    """

    def __init__(
        self, group_id: str, bootstrap: Iterable[str], random: Callable[[], float]
    ) -> None:
        self._group_id = group_id
        self._discovery = Discovery(group_id, bootstrap)
        self._random = random
        self._operations: list[Operation] = []
        # Askers with a request to make, in order: each waits until there is a connection.
        self._queue: deque[Asker] = deque()
        self._out: dict[calls.Call, calls.Call] = {}  # A dict keeps their order; a set does not.
        self._actions: deque[calls.Action] = deque()
        self._reachability = Reachability()
        self.is_closed = False

    # --- What the kinds of members have of their own ---

    @property
    @abstractmethod
    def name(self) -> str:
        """The member and its group, for messages."""

    @property
    @abstractmethod
    def failure(self) -> CoordinatorError | None:
        """The error that stopped the member; None: there was none."""

    @property
    @abstractmethod
    def state(self) -> MemberState:
        """The member's state in a word, with `since` and `last_error`."""

    @abstractmethod
    def log(self, level: Level, text: str) -> None:
        """Have the driver write a line, which names member and group."""

    @abstractmethod
    def fail(self, error: Exception) -> None:
        """Stop because of a bug, or of a function that failed; the owner is told."""

    @abstractmethod
    def next_action(self, now_ms: int) -> calls.Action | None:
        """The next action to carry out; None: none before the next input or `next_deadline`."""

    @abstractmethod
    def next_deadline(self) -> int | None:
        """Time at which `next_action` has something to do without another input; None: never."""

    @property
    @abstractmethod
    def _asks(self) -> bool:
        """True while the member wants to be in its group."""

    @abstractmethod
    def _timeout_ms(self, request: calls.Request) -> int:
        """Milliseconds to wait for the answer to a request."""

    @abstractmethod
    def _tell(
        self, asker: Asker, request: calls.Request | None, result: calls.Result, now_ms: int
    ) -> Next:
        """Give an asker its result."""

    # --- The owner ---

    @property
    def is_connected(self) -> bool:
        """True if a coordinator was found, and no call to it has failed since."""
        return self._discovery.is_connected

    def fetch(
        self,
        partitions: tuple[TopicPartition, ...] | None,
        now_ms: int,
        timeout_ms: int = GIVE_UP_MS,
    ) -> FetchOperation:
        """Begin a fetch of committed offsets; None: all of them."""
        group_id, random = self._group_id, self._random
        return self._begin(FetchOperation(group_id, partitions, random, now_ms, timeout_ms))

    def abandon(self, operation: Operation) -> None:
        """End an operation that its caller does not wait for any more."""
        operation.end()
        self._cancel(operation)

    # --- The driver ---

    def handle(self, answer: calls.Answer, now_ms: int) -> None:
        """Take in the answer to a call."""
        call, result = answer.call, answer.result
        if self._out.pop(call, None) is None:
            return  # It was cancelled.
        self._log_if(Level.INFO, self._reachability.take_in(result, now_ms))
        if isinstance(result, calls.Unreachable):
            self._hang_up(call.connection)
        asker = cast("Asker | Discovery", call.asker)
        if isinstance(asker, Discovery):
            failure = asker.handle(result)
            if failure is not None and self._queue:
                # The others in the queue begin a new search.
                self._tell(self._queue.popleft(), None, failure, now_ms)
        elif self._tell(asker, call.request, result, now_ms) is Next.REDISCOVER:
            self._hang_up(call.connection)

    def heard(self, heard: calls.Heard | calls.StreamEnded, now_ms: int) -> None:
        """Take in a message of a stream, or its end; for members that have streams."""
        raise NotImplementedError

    # --- Inside ---

    def _begin(self, operation: Op) -> Op:
        self._operations.append(operation)
        return operation

    def _queue_operations(self, now_ms: int) -> None:
        for operation in self._operations:
            operation.look(now_ms)
            if operation.due_ms is not None and now_ms >= operation.due_ms:
                operation.due_ms = None
                self._queue.append(operation)
            if operation.is_done:
                self._cancel(operation)  # Its time is up: an answer comes too late.
        self._operations = [one for one in self._operations if not one.is_done]

    def _send_next(self, now_ms: int) -> bool:
        """Make the next request of the queue; False: there is none, or no connection yet."""
        if not self._queue:
            return False
        if self._discovery.is_connected:
            self._attempt(self._queue.popleft(), now_ms)
        elif self._discovery.is_looking:
            return False
        else:
            self._call(self._discovery.look(), self._discovery)
        return True

    def _attempt(self, asker: Asker, now_ms: int) -> None:
        request = asker.attempt(now_ms)
        if request is not None:
            self._call(request, asker)

    def _call(self, request: calls.Request, asker: Asker | Discovery) -> None:
        timeout_ms = self._timeout_ms(request)
        call = calls.Call(request, timeout_ms, self._discovery.connection, asker)
        self._out[call] = call
        self._actions.append(call)

    def _cancel(self, asker: Asker | Discovery) -> None:
        self._queue = deque(other for other in self._queue if other is not asker)
        for call in [call for call in self._out if call.asker is asker]:
            del self._out[call]
            self._actions.append(calls.Cancel(call))

    def _hang_up(self, connection: int) -> None:
        """Close a connection, unless another has been found since."""
        if self._discovery.is_connected and connection == self._discovery.connection:
            self._discovery.is_connected = False
            self._actions.append(calls.HangUp())

    def _end(self) -> None:
        if not self._queue:
            self._cancel(self._discovery)
        self._hang_up(self._discovery.connection)
        self.is_closed = True

    # --- The log ---

    def _log_if(self, level: Level, text: str) -> None:
        if text:
            self.log(level, text)

    def _tell_of_silence(self, now_ms: int) -> None:
        if self._asks:
            silence = self._reachability.pass_deadlines(self._discovery.addresses, now_ms)
            self._log_if(Level.WARNING, silence)
        else:
            self._reachability.since_ms = None


def told_failure(failure: Exception | None) -> CoordinatorError | None:
    """The error that stopped a member, as its owner is given it; None: there was none."""
    if failure is None or isinstance(failure, FatalError):
        return failure
    error = CoordinatorError(f"the member has failed: {words_of(failure)}")
    error.__cause__ = failure
    return error
