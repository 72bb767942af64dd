"""A member's own state machine: what to send next, and what an answer means.

It does no I/O and is told the time, so every turn of the protocol can be played
through in a test.

    JOINING ──► SYNCING ──► STABLE ──► REVOKING ──► JOINING      a rebalance
       ▲           │           │           │
       └───────────┴───────────┴───────────┘                     lost, fenced off, expired
                               └──► IDLE                         no progress: left the group
    any ──► STOPPED                                              closed, or refused for good

An eager assignor gives everything back before it joins again. A cooperative one joins
with what it has, and only then gives back what the new assignment takes away. The leader marks such
an assignment, so that a process which takes the member's place meanwhile joins again as well.

The owner may be behind: it hears with `hand_out`. Its commits count for the holdings it knows
(`holdings.py`), and are refused here once those have ended. What it was never told of is given
back without asking it. What it did not give back in time it hears as `Lost`.

Source: KIP-429, KIP-394; Kafka `AbstractCoordinator`, `ConsumerCoordinator`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from coordinator.assignors import (
    ClusterView,
    RebalanceProtocol,
    Subscription,
    TopicPartition,
    by_name,
)
from coordinator.assignors.consumer_protocol import (
    Assignment,
    PreviousAssignment,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_previous_assignment,
    encode_subscription,
)
from coordinator.client.errors import FatalError, RebalanceInProgress, StaleMember
from coordinator.client.events import Assigned, Lost, RebalanceEvent, Revoking, Stopping
from coordinator.client.holdings import MEMBERSHIP, Holding, Holdings
from coordinator.client.offsets import Commit, commit_topics, judge_commit
from coordinator.v1 import group_pb2 as pb
from coordinator.v1.errors_pb2 import ErrorCode

_NOTHING: frozenset[TopicPartition] = frozenset()
_GIVES_BACK = b"gives back"
"""User data of an assignment that takes partitions from whoever it is for. They are with nobody
until it has joined again, and it may be another process by then, that does not miss them."""

_REDISCOVER = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_FATAL = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


class Phase(Enum):
    """Where a member stands with its group."""

    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    REVOKING = "revoking"
    IDLE = "idle"
    STOPPED = "stopped"


class Next(Enum):
    """What whoever runs the machine is to do after an answer."""

    GO_ON = "go on"
    PAUSE = "pause, then try again"
    REDISCOVER = "pause, look the coordinator up, then try again"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """A member's settings; times in milliseconds.

    `topics` maps each topic to its number of partitions, which counts while this member
    leads. `max_poll_interval_ms` is the longest time without a `poll` (or `alive`) before the
    member leaves of its own accord, so that a worker that hangs does not hold its partitions
    for ever; None: never.
    """

    group_id: str
    topics: Mapping[str, int]
    assignors: tuple[str, ...] = ("range",)
    client_id: str = ""
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 60_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int | None = 300_000
    protocol_type: str = "consumer"
    rack: str | None = None


@dataclass(slots=True)
class MemberMachine:
    """One member. `events` collects what its owner is to be told by `hand_out`."""

    config: MemberConfig
    phase: Phase = Phase.JOINING
    member_id: str = ""
    generation: int = -1
    is_leader: bool = False
    assignment: frozenset[TopicPartition] = _NOTHING
    events: list[RebalanceEvent] = field(default_factory=list)
    failure: FatalError | None = None
    revoke_until_ms: int = 0
    holdings: Holdings = field(default_factory=Holdings)
    _revoking_is_told: bool = False
    _last_heard_ms: int = 0
    _protocol_name: str = ""
    _members: Sequence[pb.JoinGroupResponse.Member] = ()
    _skip_assignment: bool = False
    _giving_back: frozenset[TopicPartition] = _NOTHING
    _reason: str = ""
    _previous: frozenset[TopicPartition] = _NOTHING
    _previous_generation: int = -1

    # --- Requests ---

    def join_request(self) -> pb.JoinGroupRequest:
        """A JoinGroup that says what the member holds."""
        config = self.config
        held = Subscription(
            topics=tuple(sorted(config.topics)),
            owned_partitions=tuple(sorted(self.assignment)),
            generation=self.generation,
            rack=config.rack,
        )
        # An eager member holds nothing when it joins: what it had travels as sticky's user data.
        had = encode_previous_assignment(
            PreviousAssignment(tuple(sorted(self._previous)), self._previous_generation)
        )
        metadata = encode_subscription(held)
        sticky = encode_subscription(replace(held, user_data=had))
        return pb.JoinGroupRequest(
            group_id=config.group_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=config.instance_id,
            protocol_type=config.protocol_type,
            protocols=[
                pb.JoinGroupRequest.Protocol(
                    name=name, metadata=sticky if name == "sticky" else metadata
                )
                for name in config.assignors
            ],
            reason=self._reason,
            client_id=config.client_id,
        )

    def sync_request(self) -> pb.SyncGroupRequest:
        """A SyncGroup; from the leader with everyone's assignment."""
        assignments = []
        if self.is_leader and not self._skip_assignment:
            assignor = by_name(self._protocol_name)
            members = {m.member_id: _subscription(m) for m in self._members}
            shares = assignor.assign(ClusterView(partitions=dict(self.config.topics)), members)
            assignments = [
                pb.SyncGroupRequest.Assignment(
                    member_id=member_id,
                    assignment=encode_assignment(_assignment(members[member_id], partitions)),
                )
                for member_id, partitions in shares.items()
            ]
        return pb.SyncGroupRequest(
            group_id=self.config.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.config.instance_id,
            protocol_type=self.config.protocol_type,
            protocol_name=self._protocol_name,
            assignments=assignments,
        )

    def heartbeat_request(self) -> pb.HeartbeatRequest:
        """A Heartbeat of the current generation."""
        return pb.HeartbeatRequest(
            group_id=self.config.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.config.instance_id,
        )

    def leave_request(self, reason: str) -> pb.LeaveGroupRequest | None:
        """A LeaveGroup; None if the group does not know the member."""
        if not self.member_id:
            return None
        return pb.LeaveGroupRequest(
            group_id=self.config.group_id,
            members=[
                pb.LeaveGroupRequest.MemberIdentity(
                    member_id=self.member_id,
                    group_instance_id=self.config.instance_id,
                    reason=reason[:255],
                )
            ],
        )

    # --- Commits ---

    def begin_commit(
        self, commit: Commit, holdings: Collection[Holding] | None
    ) -> frozenset[Holding]:
        """What a commit counts for, from now until it is answered.

        Args:
            holdings: those it was brought along with; None: those of the last `hand_out`.
        Raises:
            StaleMember: the owner was not handed a partition. CommitFailed: an offset is negative.
        """
        commit.check()
        return self.holdings.claim(commit.offsets.keys(), holdings)

    def commit_request(
        self, commit: Commit, claimed: frozenset[Holding], now_ms: int
    ) -> pb.OffsetCommitRequest:
        """An OffsetCommit of the newest generation.

        Raises:
            StaleMember: a holding has ended, though its partition may be held again.
        """
        self.pass_deadlines(now_ms)
        self.holdings.check(claimed)
        return pb.OffsetCommitRequest(
            group_id=self.config.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.config.instance_id,
            topics=commit_topics(commit.offsets, commit.expected),
            atomic=commit.atomic,
            manifest=commit.manifest,
        )

    def commit_answered(
        self,
        commit: Commit,
        claimed: frozenset[Holding],
        sent: pb.OffsetCommitRequest,
        response: pb.OffsetCommitResponse,
        *,
        repeated: bool,
        now_ms: int,
    ) -> bool:
        """True if it is stored; False: to be repeated when the member has its assignment.

        A cooperative round takes nothing from a holding that lasts, so that a commit is not
        refused because of one.

        Raises:
            RebalanceInProgress, StaleMember, OffsetMismatch, CommitFailed: it was refused.
        """
        try:
            judge_commit(response, commit.offsets, repeated=repeated)
        except (RebalanceInProgress, StaleMember) as refusal:
            if isinstance(refusal, RebalanceInProgress) and self.phase is Phase.STABLE:
                if sent.generation_id == self.generation:
                    self._rebalance(now_ms)
            moved = self.is_between_assignments or sent.generation_id != self.generation
            if moved and all(map(self.holdings.lasts, claimed)):
                return False
            raise
        return True

    # --- Answers ---

    def join_answered(self, response: pb.JoinGroupResponse) -> Next:
        """The answer to a JoinGroup."""
        if self.phase is not Phase.JOINING:
            return Next.GO_ON
        code = response.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return Next.GO_ON
        if code != ErrorCode.NONE:
            return self._refused(code, response.error_message)
        self.member_id = response.member_id
        self.generation = response.generation_id
        self.is_leader = response.leader == response.member_id
        self._protocol_name = response.protocol_name
        self._members = tuple(response.members)
        self._skip_assignment = response.skip_assignment
        self._reason = ""
        self.phase = Phase.SYNCING
        return Next.GO_ON

    def sync_answered(self, response: pb.SyncGroupResponse, sent_at_ms: int, now_ms: int) -> Next:
        """The answer to a SyncGroup. `sent_at_ms` is when it was asked."""
        if self.phase is not Phase.SYNCING:
            return Next.GO_ON
        if response.error_code != ErrorCode.NONE:
            return self._refused(response.error_code, response.error_message)
        self._last_heard_ms = sent_at_ms
        answer = Assignment(())
        if response.assignment:
            answer = decode_assignment(response.assignment)
        given = frozenset(answer.partitions)
        self._previous, self._previous_generation = given, self.generation
        taken = self.assignment - given
        new = given - self.assignment
        kept = self.assignment & given
        self.phase = Phase.STABLE
        self.assignment = kept | new
        news = new if self._is_cooperative else given
        if not self._is_cooperative:
            self._unsay(Assigned)
        if news or not self._is_cooperative or not self.holdings.are_of_a_member:
            self.events.append(Assigned(news, self.generation))
        begun = new if self.holdings.are_of_a_member else new | {MEMBERSHIP}
        self.holdings.begin(begun, self.generation)
        if taken:
            # Only a cooperative assignor gets here with something in hand.
            self._revoke(taken, now_ms)
        elif answer.user_data == _GIVES_BACK and self._is_cooperative:
            # The process that held them is gone (a static member has restarted, say): they are
            # given back, and nobody else asks for the round that hands them out.
            self.phase = Phase.JOINING
        return Next.GO_ON

    def beat_answered(self, response: pb.HeartbeatResponse, sent_at_ms: int, now_ms: int) -> Next:
        """The answer to a Heartbeat sent at `sent_at_ms`."""
        if self.phase not in (Phase.STABLE, Phase.REVOKING):
            return Next.GO_ON
        code = response.error_code
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._last_heard_ms = max(self._last_heard_ms, sent_at_ms)
            if code == ErrorCode.REBALANCE_IN_PROGRESS and self.phase is Phase.STABLE:
                self._rebalance(now_ms)
            return Next.GO_ON
        return self._refused(code, response.error_message)

    # --- The owner's doings, and time ---

    def polled(self, now_ms: int) -> bool:
        """The owner is here: it has finished with what it was told is being revoked.

        Returns:
            True if the machine has moved on.
        """
        phase = self.phase
        self.pass_deadlines(now_ms)
        if self.phase is Phase.REVOKING and self._revoking_is_told:
            self._give_back("it was given back")
        if self.phase is Phase.IDLE:
            self.phase = Phase.JOINING
        return self.phase is not phase

    def hand_out(self, now_ms: int) -> list[RebalanceEvent]:
        """What the owner has not heard yet. From here on it holds what it hears of."""
        self.pass_deadlines(now_ms)
        events, self.events = self.events, []
        self.holdings.hand_out()
        self._revoking_is_told = self.phase is Phase.REVOKING
        return events

    def pass_deadlines(self, now_ms: int) -> None:
        """End what the clock ends: a session, a revocation that its owner did not answer.

        The session ends here before it can end at the coordinator: it is counted from
        when the last answered heartbeat was *sent*.
        """
        if self.phase in (Phase.STABLE, Phase.REVOKING) and now_ms >= self.session_ends_ms:
            self._lose("the coordinator has not answered for a whole session timeout")
            self.member_id = ""
        elif self.phase is Phase.REVOKING and now_ms >= self.revoke_until_ms:
            reason = "it was not given back before the deadline of its revocation"
            lost = self.holdings.known(self._giving_back)
            self._give_back(reason)
            if lost:
                self.events.append(Lost(lost, reason))

    def tick(self, now_ms: int, last_poll_ms: int) -> str | None:
        """Look at the clock. A text is the reason to leave the group with."""
        self.pass_deadlines(now_ms)
        limit_ms, waited_ms = self.config.max_poll_interval_ms, now_ms - last_poll_ms
        if limit_ms is None or self.phase in (Phase.IDLE, Phase.STOPPED) or waited_ms <= limit_ms:
            return None
        reason = f"no progress: no poll for {waited_ms} ms; max_poll_interval_ms is {limit_ms}"
        self._lose(reason)
        self.phase = Phase.IDLE
        return reason

    def unreachable(self, now_ms: int) -> None:
        """No coordinator answers: what is held is safe for the rest of the session only."""
        if self.phase in (Phase.JOINING, Phase.SYNCING) and self.assignment:
            if now_ms >= self.session_ends_ms:
                self._lose("no coordinator has answered for a whole session timeout")

    @property
    def is_between_assignments(self) -> bool:
        """True while a generation is being joined."""
        return self.phase in (Phase.JOINING, Phase.SYNCING)

    @property
    def session_ends_ms(self) -> int:
        """When the member has to take its session as ended."""
        return self._last_heard_ms + self.config.session_timeout_ms

    def left(self) -> None:
        """The group has been left: it does not know this member any more."""
        self.member_id = ""
        self.generation = -1

    def stop(self, reason: str) -> None:
        """The end: partitions still held are lost."""
        if self.phase is not Phase.STOPPED:
            self._lose(reason)
            self.phase = Phase.STOPPED
            self.events.append(Stopping(reason))

    # --- Inside ---

    @property
    def _is_cooperative(self) -> bool:
        """True if everything this member offers can hand over step by step."""
        return all(
            RebalanceProtocol.COOPERATIVE in by_name(name).protocols
            for name in self.config.assignors
        )

    def _rebalance(self, now_ms: int) -> None:
        if self._is_cooperative or not self.assignment:
            self.phase = Phase.JOINING
        else:
            self._revoke(self.assignment, now_ms)

    def _revoke(self, partitions: frozenset[TopicPartition], now_ms: int) -> None:
        """Have the owner give partitions back; what it does not know of goes at once."""
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
        """What was being revoked is the member's no more: join again."""
        self._withdraw(self._giving_back)
        self.holdings.end(self._giving_back, reason)
        self.assignment -= self._giving_back
        self._giving_back = _NOTHING
        self.phase = Phase.JOINING

    def _withdraw(self, partitions: frozenset[TopicPartition]) -> None:
        """Do not tell the owner that it has these, or is to give them back: neither holds."""
        events, self.events = self.events, []
        for event in events:
            if isinstance(event, Assigned | Revoking) and event.partitions & partitions:
                left = event.partitions - partitions
                if left:
                    self.events.append(replace(event, partitions=left))
            else:
                self.events.append(event)

    def _unsay(self, *kinds: type[RebalanceEvent]) -> None:
        """Events that the owner has not heard, and that do not hold any more."""
        self.events = [event for event in self.events if not isinstance(event, kinds)]

    def _refused(self, code: int, message: str) -> Next:
        name = ErrorCode.Name(ErrorCode.ValueType(code))
        if code in _FATAL:
            self.failure = FatalError(message, name)
            self.stop(name)
            return Next.GO_ON
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.phase = Phase.JOINING
            return Next.GO_ON
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._lose(name)
            self.left()
            return Next.GO_ON
        if code == ErrorCode.ILLEGAL_GENERATION:
            self._lose(name)
            self.generation = -1
            return Next.GO_ON
        return Next.REDISCOVER if code in _REDISCOVER else Next.PAUSE

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


def _assignment(member: Subscription, partitions: Sequence[TopicPartition]) -> Assignment:
    gives_back = not set(member.owned_partitions).issubset(partitions)
    return Assignment(tuple(partitions), user_data=_GIVES_BACK if gives_back else None)


def _subscription(member: pb.JoinGroupResponse.Member) -> Subscription:
    instance_id = member.group_instance_id if member.HasField("group_instance_id") else None
    return replace(decode_subscription(member.metadata), instance_id=instance_id)
