"""A member's state in its group: its phase, its requests, and what answers change.

    JOINING ──► SYNCING ──► STABLE ──► REVOKING ──► JOINING      a rebalance
       ▲           │           │           │
       └───────────┴───────────┴───────────┘                     lost, fenced off, expired
                               └──► IDLE                         no progress: left the group
    any ──► STOPPED                                              closed, or refused for good

With an eager assignor a member gives everything back before it joins again. With a cooperative one
it joins with what it has, and then gives back what the new assignment takes away. The leader marks
such an assignment, so that a process which takes the member's place meanwhile joins again as well.

The owner learns of changes later, from `hand_out`. Its commits count for the holdings it knows
(`holdings.py`), and are refused here once those have ended. Partitions that it was never told of
are given back without asking it. Those it did not give back in time it is told of as `Lost`.

Source: KIP-429, KIP-394; Kafka `AbstractCoordinator`, `ConsumerCoordinator`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from coordinator.assignors import RebalanceProtocol, Subscription, TopicPartition, by_name
from coordinator.assignors.consumer_protocol import PreviousAssignment
from coordinator.client import calls
from coordinator.client.assigning import read_assignment, share_out, subscriptions
from coordinator.client.calls import Code
from coordinator.client.config import MemberConfig
from coordinator.client.errors import FatalError
from coordinator.client.events import Assigned, Lost, RebalanceEvent, Revoking, Stopping
from coordinator.client.holdings import MEMBERSHIP, Holdings

REFUSED_JOINS_MAX = 4
"""Refusals of a member's assignors, one after the other, after which it stops trying others: a
group may move from one to the other in between, but not for ever."""

_NOTHING: frozenset[TopicPartition] = frozenset()
_FATAL = frozenset(
    {
        Code.FENCED_INSTANCE_ID,
        Code.GROUP_MAX_SIZE_REACHED,
        Code.INVALID_GROUP_ID,
        Code.INVALID_SESSION_TIMEOUT,
        Code.INVALID_REQUEST,
        Code.GROUP_AUTHORIZATION_FAILED,
        Code.UNSUPPORTED_VERSION,
    }
)


class Phase(Enum):
    """Phase of a member in its group; the transitions are drawn above."""

    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    REVOKING = "revoking"
    IDLE = "idle"
    STOPPED = "stopped"


class Next(Enum):
    """The caller's next step after an answer."""

    GO_ON = "go on"
    PAUSE = "pause, then try again"
    REDISCOVER = "pause, look the coordinator up, then try again"


@dataclass(slots=True)
class Membership:
    """One member. `events` collects what `hand_out` gives its owner."""

    config: MemberConfig
    phase: Phase = Phase.JOINING
    member_id: str = ""
    generation: int = -1
    is_leader: bool = False
    assignment: frozenset[TopicPartition] = _NOTHING
    events: list[RebalanceEvent] = field(default_factory=list)
    failure: Exception | None = None
    notes: list[calls.Warn] = field(default_factory=list)
    """Messages for the log of the member's process; the machine passes them on."""
    revoke_until_ms: int = 0
    holdings: Holdings = field(default_factory=Holdings)
    _revoking_is_told: bool = False
    _last_heard_ms: int = 0
    _joined: calls.Joined = field(default_factory=calls.Joined)
    _giving_back: frozenset[TopicPartition] = _NOTHING
    _reason: str = ""
    _falls_back: bool = False
    _refused_joins: int = 0
    _previous: frozenset[TopicPartition] = _NOTHING
    _previous_generation: int = -1

    # --- Requests ---

    def identity(self) -> calls.Identity:
        """Current group, generation, member id and instance id."""
        config = self.config
        return calls.Identity(config.group_id, self.generation, self.member_id, config.instance_id)

    def join(self) -> calls.Join:
        """A JoinGroup with the partitions that the member holds."""
        config = self.config
        held = Subscription(
            topics=tuple(sorted(config.topics)),
            owned_partitions=tuple(sorted(self.assignment)),
            generation=self.generation,
            rack=config.rack,
        )
        previous = PreviousAssignment(tuple(sorted(self._previous)), self._previous_generation)
        return calls.Join(
            member=self.identity(),
            protocols=subscriptions(self.assignors, held, previous),
            protocol_type=config.protocol_type,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.rebalance_timeout_ms,
            client_id=config.client_id,
            reason=self._reason,
        )

    def sync(self) -> calls.Sync:
        """A SyncGroup; the leader's has the assignments of all members."""
        config = self.config
        assignments: tuple[tuple[str, bytes], ...] = ()
        joined = self._joined
        if self.is_leader and not joined.skip_assignment:
            assignments = share_out(joined.protocol_name, config.topics, joined.members)
        return calls.Sync(self.identity(), config.protocol_type, joined.protocol_name, assignments)

    def beat(self) -> calls.Beat:
        """A Heartbeat of the current generation."""
        return calls.Beat(self.identity())

    def leave(self, reason: str) -> calls.Leave | None:
        """A LeaveGroup; None if the group does not know the member."""
        return calls.Leave(self.identity(), reason) if self.member_id else None

    # --- Answers ---

    def joined(self, reply: calls.Joined) -> Next:
        """Take in the answer to a JoinGroup."""
        if self.phase is not Phase.JOINING:
            return Next.GO_ON
        if reply.code == Code.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            return Next.GO_ON
        if reply.code == Code.INCONSISTENT_GROUP_PROTOCOL:
            self._assignors_refused(reply.message)
            return Next.GO_ON
        if reply.code != Code.NONE:
            return self._refused(reply.code, reply.message)
        self._refused_joins = 0
        self.member_id = reply.member_id
        self.generation = reply.generation
        self.is_leader = reply.leader == reply.member_id
        self._joined = reply
        self._reason = ""
        self.phase = Phase.SYNCING
        return Next.GO_ON

    def synced(self, reply: calls.Synced, sent_at_ms: int, now_ms: int) -> Next:
        """Take in the answer to a SyncGroup sent at `sent_at_ms`."""
        if self.phase is not Phase.SYNCING:
            return Next.GO_ON
        if reply.code != Code.NONE:
            return self._refused(reply.code, reply.message)
        self._last_heard_ms = sent_at_ms
        given, gives_back = read_assignment(reply.assignment)
        self._previous, self._previous_generation = given, self.generation
        taken = self.assignment - given
        new = given - self.assignment
        self.phase = Phase.STABLE
        self.assignment = given
        news = new if self.is_cooperative else given
        if not self.is_cooperative:
            self._unsay(Assigned)
        if news or not self.is_cooperative or not self.holdings.are_of_a_member:
            self.events.append(Assigned(news, self.generation))
        begun = new if self.holdings.are_of_a_member else new | {MEMBERSHIP}
        self.holdings.begin(begun, self.generation)
        if taken:
            # Only a cooperative assignor gets here with something in hand.
            self._revoke(taken, now_ms)
        elif gives_back and self.is_cooperative:
            # The process that held them is gone (a static member has restarted, say), so they are
            # free, and only this member can start the rebalance that assigns them.
            self.phase = Phase.JOINING
        return Next.GO_ON

    def beaten(self, reply: calls.Acknowledged, sent_at_ms: int, now_ms: int) -> Next:
        """Take in the answer to a Heartbeat sent at `sent_at_ms`."""
        if not self.is_in_session:
            return Next.GO_ON
        if reply.code not in (Code.NONE, Code.REBALANCE_IN_PROGRESS):
            return self._refused(reply.code, reply.message)
        self._last_heard_ms = max(self._last_heard_ms, sent_at_ms)
        if reply.code == Code.REBALANCE_IN_PROGRESS:
            self.rebalance(now_ms)
        return Next.GO_ON

    def rebalance(self, now_ms: int) -> None:
        """Begin a rebalance: revoke with an eager assignor, else join again."""
        if self.phase is not Phase.STABLE:
            return
        if self.is_cooperative or not self.assignment:
            self.phase = Phase.JOINING
        else:
            self._revoke(self.assignment, now_ms)

    # --- The owner, and time ---

    def polled(self, now_ms: int) -> None:
        """The owner polls: it has finished with partitions that it was told are being revoked."""
        self.pass_deadlines(now_ms)
        if self.phase is Phase.REVOKING and self._revoking_is_told:
            self._give_back("it was given back")
        if self.phase is Phase.IDLE:
            self.phase = Phase.JOINING

    def hand_out(self, now_ms: int) -> list[RebalanceEvent]:
        """Events since the last call. From now on the owner holds what they assign."""
        self.pass_deadlines(now_ms)
        events, self.events = self.events, []
        self.holdings.hand_out()
        self._revoking_is_told = self.phase is Phase.REVOKING
        return events

    def pass_deadlines(self, now_ms: int) -> None:
        """Expire the session, or a revocation that the owner did not answer.

        The session ends here before it can end at the coordinator, since it is counted from the
        time at which the last answered heartbeat was *sent*.
        """
        if self.is_in_session and now_ms >= self.session_ends_ms:
            self._lose("the coordinator has not answered for a whole session timeout")
            self.member_id = ""
        elif self.phase is Phase.REVOKING and now_ms >= self.revoke_until_ms:
            reason = "it was not given back before the deadline of its revocation"
            lost = self.holdings.known(self._giving_back)
            self._give_back(reason)
            if lost:
                self.events.append(Lost(lost, reason))

    def next_deadline(self) -> int | None:
        """Time of the next expiry in `pass_deadlines`; None: there is none."""
        if self.phase is Phase.REVOKING:
            return min(self.session_ends_ms, self.revoke_until_ms)
        return self.session_ends_ms if self.phase is Phase.STABLE else None

    def give_up(self, reason: str) -> None:
        """Lose everything and be IDLE until the next poll, since the owner makes no progress."""
        self._lose(reason)
        self.phase = Phase.IDLE

    def unreachable(self, now_ms: int) -> None:
        """Lose everything if no coordinator has answered for a whole session while joining."""
        if self.is_between_assignments and self.assignment:
            if now_ms >= self.session_ends_ms:
                self._lose("no coordinator has answered for a whole session timeout")

    @property
    def is_between_assignments(self) -> bool:
        """True while a generation is being joined."""
        return self.phase in (Phase.JOINING, Phase.SYNCING)

    @property
    def assignors(self) -> tuple[str, ...]:
        """Names of the assignors with which the member joins."""
        fallback = self.config.fallback_assignor
        return (fallback,) if self._falls_back and fallback else self.config.assignors

    @property
    def is_cooperative(self) -> bool:
        """True if every assignor of this member supports the cooperative protocol."""
        assignors = map(by_name, self.assignors)
        return all(RebalanceProtocol.COOPERATIVE in one.protocols for one in assignors)

    @property
    def session_ends_ms(self) -> int:
        """Time at which the member must consider its session expired."""
        return self._last_heard_ms + self.config.session_timeout_ms

    @property
    def is_in_session(self) -> bool:
        """True while the member sends heartbeats."""
        return self.phase in (Phase.STABLE, Phase.REVOKING)

    def left(self) -> None:
        """Forget member id and generation after the group has been left."""
        self.member_id = ""
        self.generation = -1

    def fail(self, error: Exception, reason: str = "") -> None:
        """Stop because of an error, which the owner is given."""
        self.failure = self.failure or error
        self.stop(reason or f"failed: {error}")

    def stop(self, reason: str) -> None:
        """Stop; partitions still held are lost."""
        if self.phase is not Phase.STOPPED:
            self._lose(reason)
            self.phase = Phase.STOPPED
            self.events.append(Stopping(reason))

    # --- Inside ---

    def _revoke(self, partitions: frozenset[TopicPartition], now_ms: int) -> None:
        """Revoke partitions; those that the owner was never told of are given back at once."""
        known = self.holdings.known(partitions)
        self._giving_back = partitions - known
        self._give_back("it was taken away before a poll handed it out")
        if not known:
            return
        self._giving_back = known
        self.revoke_until_ms = now_ms + self.config.rebalance_timeout_ms // 2
        self.phase = Phase.REVOKING
        self._revoking_is_told = False
        self.events.append(Revoking(known, self.revoke_until_ms))

    def _give_back(self, reason: str) -> None:
        """Give back the partitions that are being revoked, and join again."""
        self._withdraw(self._giving_back)
        self.holdings.end(self._giving_back, reason)
        self.assignment -= self._giving_back
        self._giving_back = _NOTHING
        self.phase = Phase.JOINING

    def _withdraw(self, partitions: frozenset[TopicPartition]) -> None:
        """Remove these partitions from events that the owner has not been given."""
        events, self.events = self.events, []
        for event in events:
            if isinstance(event, Assigned | Revoking) and event.partitions & partitions:
                left = event.partitions - partitions
                if left:
                    self.events.append(replace(event, partitions=left))
            else:
                self.events.append(event)

    def _unsay(self, *kinds: type[RebalanceEvent]) -> None:
        """Drop events of these kinds that the owner has not been given."""
        self.events = [event for event in self.events if not isinstance(event, kinds)]

    def _assignors_refused(self, message: str) -> None:
        """The group follows none of the member's assignors: try the other ones, or stop.

        Whatever it held is lost first. So whether it is eager is settled while it holds nothing,
        and before the join that counts.
        """
        code = Code.INCONSISTENT_GROUP_PROTOCOL
        self._refused_joins += 1
        refused, wanted = ", ".join(self.assignors), self.config.assignors
        if self.config.fallback_assignor is None or self._refused_joins >= REFUSED_JOINS_MAX:
            self.fail(FatalError(f"{message}. {_way_in(self.assignors)}", code), code)
            return
        self._lose(code)
        self.generation = -1
        self._falls_back = not self._falls_back
        self.notes.append(
            calls.Warn(
                f"group {self.config.group_id} refuses {refused} ({message}): this member joins "
                f"with {', '.join(self.assignors)} instead. {_move_over(wanted)}"
            )
        )

    def _refused(self, code: str, message: str) -> Next:
        if code in _FATAL:
            self.fail(FatalError(message, code), code)
        elif code == Code.REBALANCE_IN_PROGRESS:
            self.phase = Phase.JOINING
        elif code == Code.UNKNOWN_MEMBER_ID:
            self._lose(code)
            self.left()
        elif code == Code.ILLEGAL_GENERATION:
            self._lose(code)
            self.generation = -1
        else:
            return Next.REDISCOVER if code in calls.ELSEWHERE else Next.PAUSE
        return Next.GO_ON

    def _lose(self, reason: str) -> None:
        lost = self.holdings.known(self.assignment | self._giving_back)
        self.holdings.end_all(reason)
        self._unsay(Assigned, Revoking)
        self.assignment = self._giving_back = _NOTHING
        if lost:
            self.events.append(Lost(lost, reason))
        self._reason = reason
        if self.phase is not Phase.STOPPED:
            self.phase = Phase.JOINING


def _move_over(assignors: tuple[str, ...]) -> str:
    """Advice: to move a group that follows another assignor to these."""
    (wanted, *_) = assignors
    both = [wanted, *(["range"] if wanted != "range" else [])]
    return (
        f"To move the group to {wanted}, restart its members one after the other, twice: first "
        f"with assignors={both}, then with assignors={[wanted]}"
    )


def _way_in(refused: tuple[str, ...]) -> str:
    """Advice: to join a group that follows another assignor than these."""
    other = next(
        (name for name in ("cooperative-sticky", "range") if name not in refused), "sticky"
    )
    both = [other, *refused]
    return (
        f"This member names {', '.join(refused)} alone. To join a group that follows {other}, name "
        f"both: assignors={both}. To move the whole group, restart its members one after the "
        "other, twice: first with both names, then with the new one alone"
    )
