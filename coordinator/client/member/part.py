"""The protocol part of a member's machine: what to say next, and what an answer means.

There are two, `classic/` and `session/`. A part is made of what its protocol needs, and shows:

* `state()` and `status()`: the membership now, as owner and operator see it;
* `holdings`: until when work of what is held may go on, asked from any thread;
* `commits`: what a commit has to know of the protocol;
* `progress`: what the group learns of the owner's work;
* the calls of `ProtocolPart`, by which machine and owner drive it.

The ledger, the operations, the connection, closing, failure and log are the machine's, which a part
sees as `PartContext`. Both speak values towards it (`calls.py`): requests of a call, or messages of
a stream, whichever its protocol has, in the same queue and by the same actions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from coordinator.assignors import TopicPartition
from coordinator.client.errors import CommitFailed
from coordinator.client.member import calls
from coordinator.client.member.calls import Level, Next
from coordinator.client.member.discovery import Discovery
from coordinator.client.member.events import MemberEvent
from coordinator.client.member.ledger import Holding, Ledger
from coordinator.client.member.retry import MOST_S


class Requester(Protocol):
    """Part of a machine that makes requests. It waits in a queue for a connection."""

    def attempt(self, now_ms: int) -> calls.Request | None:
        """The request to make now; None: there is none any more."""

    def handle(self, request: calls.Request | None, result: calls.Result, now_ms: int) -> Next:
        """Take in the result of a request; None: it was not sent, for no coordinator was found."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """The end of a membership that its owner asked for.

    Args:
        leave: give up a place that is kept for the next process of its name; None: do not.
        return_within_ms: time for which the partitions are kept for it, if the protocol lets a
            member say so.
    """

    reason: str
    leave: bool | None = None
    return_within_ms: int | None = None


class PartContext(Protocol):
    """The machine, as its part sees it."""

    ledger: Ledger
    events: deque[MemberEvent]
    """Events that the owner has not been given yet."""
    unwanted: Callable[[], Collection[TopicPartition]]
    """Partitions that the owner had rather not be assigned."""
    discovery: Discovery

    def log(self, level: Level, text: str) -> None:
        """Have the driver write a line, which names member and group."""

    def fail(self, error: Exception, reason: str = "") -> None:
        """Stop because of an error, which the owner is given."""

    @property
    def failure(self) -> Exception | None:
        """The error that stopped the member; None: there was none."""

    def note_failure(self, error: Exception) -> None:
        """Note why the part has stopped, unless there was an error before."""

    @property
    def unreachable_because(self) -> str:
        """Reason that the last call had no answer; empty: it had one."""

    @property
    def leaving(self) -> Leaving | None:
        """The owner's wish to close; None: there is none."""

    def take_events(self) -> list[MemberEvent]:
        """Take all events out of the queue."""

    def enqueue(self, requester: Requester) -> None:
        """Ask for a request as soon as there is a connection."""

    def call(self, request: calls.Request, requester: Requester) -> None:
        """Make a call over the connection that there is."""

    def cancel(self, requester: Requester) -> None:
        """Cancel what a requester waits for."""

    def act(self, action: calls.MemberAction) -> None:
        """Have the driver carry an action out."""

    def note_result(self, result: calls.Result, now_ms: int) -> None:
        """Note whether a coordinator has answered; of calls the machine does it by itself."""

    def hang_up(self, connection: int) -> None:
        """Close a connection, unless another has been found since."""

    def commits_are_out(self, holding: Holding | None = None) -> bool:
        """True while a commit is not answered; of one holding, or of any."""

    def waiting(self) -> dict[TopicPartition, int]:
        """Partitions whose commits have been sent without an answer, and when they were begun."""

    def end(self) -> None:
        """The member has left, or cannot: nothing is to be done any more."""


class Status(NamedTuple):
    """A membership, as its protocol sees it now.

    ids: by which log lines name the member, the best first. failure: reason that it holds
    nothing; empty: none. generation: of the group, as known to the member; -1: none. is_leader: it
    computed the assignment of its generation. is_assigned: the owner knows what the member has been
    assigned, be it nothing. is_between_assignments: it is not known what the member holds.
    is_waiting: another process has the member's name, and may be alive.
    """

    ids: tuple[str | None, ...]
    failure: str
    member_id: str
    generation: int
    is_leader: bool
    is_assigned: bool
    is_between_assignments: bool
    is_waiting: bool


class HoldingRules(ABC):
    """Until when work of holdings may go on. May be asked from any thread."""

    @abstractmethod
    def ends_ms(self, holding: Holding) -> int:
        """Time from which no effect of a holding may leave the process; 0: now."""

    @abstractmethod
    def deadline_of(self, holding: Holding) -> int | None:
        """Deadline of a holding that is being revoked; None: it is not. `FOREVER_MS`: none."""

    def may_begin(self, holding: Holding, now_ms: int) -> bool:
        """True if work of a holding may be begun, be it to finish it."""
        return now_ms < self.ends_ms(holding)

    def takes_work(self, holding: Holding, now_ms: int) -> bool:
        """True if new work of a holding may be begun."""
        return self.may_begin(holding, now_ms)

    def warmed(self) -> list[Holding]:
        """Holdings that the owner has been asked to prepare."""
        return []

    def ready(self, holding: Holding) -> None:
        """A partition that is `Warming` is prepared. Not from other threads."""


class CommitRules(ABC):
    """The part of a protocol that commits ask."""

    @property
    def pause_most_s(self) -> float:
        """Limit of the pauses between two attempts of a commit."""
        return MOST_S

    @abstractmethod
    def identity(self) -> calls.Identity:
        """The member as the coordinator knows it."""

    def suspended(self, claimed: frozenset[Holding], now_ms: int) -> list[TopicPartition]:
        """Partitions of holdings under which no effect may leave the process now."""
        return []

    def between_assignments(self) -> str:
        """Event that a commit has to wait for; empty: the member is not between assignments."""
        return ""

    def out_of_date(self, refusal: CommitFailed, sent: calls.Identity, now_ms: int) -> bool:
        """Take in the refusal of a commit; True if the member goes on from what it speaks of."""
        return False


class ProgressRules(ABC):
    """Signs of the owner's progress, as far as the protocol has a use for them."""

    @abstractmethod
    def alive(self, now_ms: int) -> None:
        """The owner makes progress. May be called from any thread."""

    def poll_ends(self, now_ms: int) -> None:
        """The owner's poll returns."""

    def note_commit(self, now_ms: int) -> None:
        """The owner commits."""

    def report(self, logs: Mapping[TopicPartition, range]) -> bool:
        """Tell where logs end with a message of the protocol's own; False: it has none."""
        return False


class ProtocolPart(ABC):
    """One protocol, for one member."""

    holdings: HoldingRules
    commits: CommitRules
    progress: ProgressRules
    beat_interval_s = 60.0
    """Interval of the heartbeats that are calls, which may be batched with those of others."""
    releases_cost_nothing = True
    """True if nobody else is rebalanced when a partition is given back."""

    @abstractmethod
    def state(self) -> str:
        """The member's state in a word; see `MemberState`."""

    @abstractmethod
    def status(self) -> Status:
        """The membership now."""

    @property
    @abstractmethod
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the owner may work on: it was handed them, and not asked to stop."""

    # --- Time and messages ---

    @abstractmethod
    def start(self, now_ms: int) -> None:
        """Begin to join."""

    @abstractmethod
    def pass_time(self, now_ms: int) -> None:
        """Let time pass."""

    @abstractmethod
    def take_step(self, now_ms: int) -> None:
        """Ask for what is due."""

    @abstractmethod
    def next_deadline(self) -> int | None:
        """Time at which `pass_time` or `take_step` has something to do; None: never."""

    @abstractmethod
    def timeout_ms(self, request: calls.Request) -> int:
        """Milliseconds to wait for the answer to a request."""

    def received(self, message: calls.Received | calls.StreamClosed, now_ms: int) -> None:
        """Take in a message of a stream, or its end; in protocols that have streams."""
        raise NotImplementedError

    # --- The owner ---

    @abstractmethod
    def hand_out(self, now_ms: int) -> list[MemberEvent]:
        """Events that the owner has not been given yet, as of now; it is given them."""

    @abstractmethod
    def poll_begins(self, now_ms: int, *, gives_back: bool) -> None:
        """The owner polls, which counts as progress.

        Args:
            gives_back: it has finished with what was reported to be revoked or lost.
        """

    @abstractmethod
    def give_back(
        self, holdings: Collection[Holding], position: int, refused: str, now_ms: int
    ) -> None:
        """The owner has finished with holdings, asked to or not.

        Args:
            position: the next offset to read; -1: the committed one.
            refused: why this member will not have them now; empty: it would.
        """

    def set_ready(self, is_ready: bool, now_ms: int) -> None:  # It is the value.
        """The owner is to be given partitions, or no more."""

    @abstractmethod
    def subscribe(self, topics: Mapping[str, int], now_ms: int) -> None:
        """Declare other topics, or other numbers of partitions."""

    @abstractmethod
    def drain(self, within_ms: int, reason: str, now_ms: int, *, leave: bool | None) -> bool:
        """Take no more partitions; True: the group will ask for those that are held.

        Args:
            leave: as in `Leaving`.
        """

    def send_heartbeat_now(self, now_ms: int) -> None:
        """Send the next heartbeat now, so that it is batched with those of others."""

    # --- Closing ---

    @abstractmethod
    def stop(self, reason: str) -> None:
        """Stop because of an error; what is held is lost."""

    def begin_to_close(self, leaving: Leaving) -> None:
        """The owner closes the member, whose commits may still be answered."""

    @abstractmethod
    def leave(self, leaving: Leaving, now_ms: int) -> None:
        """All commits are answered, or have had the time: leave, then `PartContext.end`."""

    def leave_by(self, now_ms: int) -> None:
        """The time for leaving is over as well."""
