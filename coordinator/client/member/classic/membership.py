"""A member's state in its group: its phase, its requests, and what answers change.

    JOINING ──► SYNCING ──► STABLE ──► REVOKING ──► JOINING      a rebalance
       ▲           │           │           │
       └───────────┴───────────┴───────────┘                     lost, fenced off, expired
                               └──► IDLE                         no progress: left the group
    any ──► STOPPED                                              closed, or refused for good

With an eager assignor a member gives everything back before it joins again. With a cooperative one
it joins with what it has, and then gives back what the new assignment takes away, each partition as
soon as its owner has finished with it; until then the member takes part in rebalances as the holder
(`revocations.py`). The leader marks such an assignment, so that a process which takes the member's
place meanwhile joins again as well.

The owner learns of changes later, from `hand_out`. Partitions that it was never handed are given
back without asking it. Those that it did not give back in time are reported to it as `Lost`.

Source: KIP-429, KIP-394; Kafka `AbstractCoordinator`, `ConsumerCoordinator`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from enum import Enum

from coordinator.assignors import Subscription, TopicPartition
from coordinator.assignors.consumer_protocol import PreviousAssignment, decode_subscription
from coordinator.assignors.partitions import spelled
from coordinator.client.errors import FatalError
from coordinator.client.member import calls
from coordinator.client.member.calls import Code, Level, Next
from coordinator.client.member.classic.assigning import (
    ReadAssignment,
    read_assignment,
    share_out,
    subscriptions,
)
from coordinator.client.member.classic.assignor_choice import AssignorChoice
from coordinator.client.member.classic.revocations import Revocations
from coordinator.client.member.events import Granted, Lost, MemberEvent, Revoking, Stopping
from coordinator.client.member.ledger import FOREVER_MS, MEMBERSHIP, Holding, Ledger
from coordinator.client.member.part import HoldingRules, PartContext, Status
from coordinator.client.settings.configs import ClassicConfig

_NOTHING: frozenset[TopicPartition] = frozenset()
TOPICS_CHANGED = "the topics have changed"
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


class MembershipPhase(Enum):
    """Phase of a member in its group; the transitions are drawn above."""

    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    REVOKING = "revoking"
    IDLE = "idle"
    STOPPED = "stopped"


class Membership(HoldingRules):
    """The rules of the classic protocol, for one member; its requests are scheduled elsewhere."""

    def __init__(self, config: ClassicConfig, machine: PartContext) -> None:
        self.config, self.machine = config, machine
        self.member_id, self.generation, self.is_leader = "", -1, False
        self.phase = MembershipPhase.JOINING
        self.assigned = _NOTHING
        """The newest assignment, without what is being revoked."""
        self.assignors = AssignorChoice(config.assignors, config.fallback_assignor)
        self.revocations = Revocations()
        self.is_draining = False
        """True if the member takes no more partitions: it subscribes to nothing."""
        self.keeps_place = False
        """True if a static member's process is about to end: what its owner has finished with stays
        assigned, for the next process of its name."""
        self.must_join_again = False
        """True if partitions were given back that the join under way says are held."""
        self._claimed = _NOTHING
        self._subscribed: frozenset[str] = frozenset()
        """Topics of the last join."""
        self._last_seen_ms = 0
        self._joined = calls.Joined()
        self._read = ReadAssignment()
        """The newest assignment, as the leader wrote it."""
        self._warned_of: frozenset[str] = frozenset()
        self._reason = ""
        self._stopped: dict[TopicPartition, int] = {}
        """Partitions that an outage has cost, and when the owner stopped to work on them."""
        self._previous, self._previous_generation = _NOTHING, -1

    def state(self) -> str:
        """See `ProtocolPart`."""
        if self.is_between_assignments and not self.machine.discovery.is_connected:
            return "connecting"
        return self.phase.value

    def status(self) -> Status:
        """See `Status`. What was lost is its failure until the member is back."""
        config, is_stopped = self.config, self.phase is MembershipPhase.STOPPED
        return Status(
            ids=(self.member_id, config.instance_id, config.client_id),
            failure="" if is_stopped else self._reason,
            member_id=self.member_id,
            generation=self.generation,
            is_leader=self.is_leader,
            is_assigned=bool(self._ledger.known((MEMBERSHIP,))),
            is_between_assignments=self.is_between_assignments,
            is_waiting=False,
        )

    # --- Until when work may go on ---

    def ends_ms(self, holding: Holding) -> int:
        """See `HoldingRules`. While a generation is joined, the coordinator counts no session."""
        if not self._ledger.lasts(holding):
            return 0
        return self.session_ends_ms if self.is_in_session else FOREVER_MS

    def deadline_of(self, holding: Holding) -> int | None:
        return self.revocations.deadline_of(holding.partition)

    # --- Requests ---

    def identity(self) -> calls.Identity:
        config = self.config
        return calls.Identity(config.group_id, self.generation, self.member_id, config.instance_id)

    def join(self, now_ms: int) -> calls.Join:
        """A JoinGroup with the partitions that the member holds."""
        config = self.config
        self.must_join_again = False
        self._subscribed = frozenset(config.topics)
        self._claimed = self.assigned | self.revocations.partitions
        held = Subscription(
            topics=() if self.is_draining else tuple(sorted(config.topics)),
            owned_partitions=tuple(sorted(self._claimed)),
            generation=self.generation,
            rack=config.rack,
            unwanted=tuple(self.machine.unwanted()),
        )
        previous = PreviousAssignment(tuple(sorted(self._previous)), self._previous_generation)
        return calls.Join(
            member=self.identity(),
            protocols=subscriptions(self.assignors.names, held, previous, config.topics),
            protocol_type=config.protocol_type,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.rebalance_timeout_ms,
            client_id=config.client_id,
            reason=self._reason,
            stopped={p: now_ms - at_ms for p, at_ms in self._stopped.items()},
        )

    def sync(self) -> calls.Sync:
        """A SyncGroup; the leader's has the assignments of all members."""
        config = self.config
        assignments: tuple[tuple[str, bytes], ...] = ()
        joined = self._joined
        if self.is_leader and not joined.skip_assignment:
            division = share_out(
                joined.protocol_name, self.member_id, config.topics, joined.members
            )
            assignments = division.assignments
            self._warn_of(division.warnings)
        return calls.Sync(self.identity(), config.protocol_type, joined.protocol_name, assignments)

    def beat(self) -> calls.Beat:
        """A Heartbeat of the current generation."""
        return calls.Beat(self.identity())

    def leave_request(self, reason: str) -> calls.LeaveCall | None:
        """A LeaveGroup; None if the group does not know the member."""
        return calls.LeaveCall(self.identity(), reason) if self.member_id else None

    # --- Answers ---

    def joined(self, reply: calls.Joined) -> Next:
        """Take in the answer to a JoinGroup."""
        if self.phase is not MembershipPhase.JOINING:
            return Next.GO_ON
        if reply.code == Code.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            return Next.GO_ON
        if reply.code == Code.INCONSISTENT_GROUP_PROTOCOL:
            self._assignors_refused(reply.message)
            return Next.GO_ON
        if reply.code != Code.NONE:
            return self._refused(reply.code, reply.message)
        self.assignors.accepted()
        self.member_id = reply.member_id
        self.generation = reply.generation
        self.is_leader = reply.leader == reply.member_id
        self._joined = reply
        self._reason = ""
        self._stopped.clear()
        self.phase = MembershipPhase.SYNCING
        leads = f", as leader of {len(reply.members)}" if self.is_leader else ""
        self.machine.log(
            Level.INFO, f"joined generation {reply.generation}{leads}: {reply.protocol_name}"
        )
        return Next.GO_ON

    def synced(self, reply: calls.Synced, sent_at_ms: int, now_ms: int) -> Next:
        """Take in the answer to a SyncGroup sent at `sent_at_ms`."""
        if self.phase is not MembershipPhase.SYNCING:
            return Next.GO_ON
        if reply.code != Code.NONE:
            return self._refused(reply.code, reply.message)
        self._last_seen_ms = sent_at_ms
        read = read_assignment(reply.assignment)
        assigned, gives_back = read.partitions, read.gives_back
        self._previous, self._previous_generation = assigned, self.generation
        revoked = self._still_revoked(assigned)
        taken = self.assigned - assigned
        new = assigned - self.assigned - revoked
        freed = self._claimed - assigned - self.assigned - revoked
        self.phase = MembershipPhase.REVOKING if revoked else MembershipPhase.STABLE
        self.assigned = assigned - revoked
        granted = new if self.assignors.is_cooperative else assigned
        if not self.assignors.is_cooperative:
            self._unsay(Granted)
        self._begin(new if self._ledger.are_of_a_member else new | {MEMBERSHIP})
        if granted:
            self._emit(Granted(self._ledger.current(granted)))
        self.machine.log(
            Level.INFO, f"assigned {spelled(granted)}" if granted else "assigned nothing new"
        )
        if taken:
            # Only a cooperative assignor gets here with something in hand.
            self._revoke(taken, now_ms)
        if freed or (gives_back and self.assignors.is_cooperative and not (taken or revoked)):
            # Given back since the join, or the process that held them is gone (a static member has
            # restarted, say): they are free, and only this member can have them assigned.
            self.phase = MembershipPhase.JOINING
        topics = self.config.topics
        self._read = read
        if self._subscribed != topics.keys() or self._counts_otherwise():
            # They changed since they were sent, or while the member's place was empty: one that is
            # static and restarts is given the assignment of its predecessor.
            self._join_with_topics(now_ms)
        return Next.GO_ON

    def heartbeat_answered(self, reply: calls.Acknowledged, sent_at_ms: int, now_ms: int) -> Next:
        """Take in the answer to a Heartbeat sent at `sent_at_ms`."""
        if not self.is_in_session:
            return Next.GO_ON
        if reply.code not in (Code.NONE, Code.REBALANCE_IN_PROGRESS):
            return self._refused(reply.code, reply.message)
        self._last_seen_ms = max(self._last_seen_ms, sent_at_ms)
        if reply.code == Code.REBALANCE_IN_PROGRESS:
            self.rebalance(now_ms)
        return Next.GO_ON

    def rebalance(self, now_ms: int) -> None:
        """Begin a rebalance: revoke with an eager assignor, else join again."""
        if self.is_draining:
            self._let_go_of_finished()
        if self.is_in_session and self.assignors.is_cooperative:
            self.phase = MembershipPhase.JOINING
        elif self.phase is MembershipPhase.STABLE:
            self._revoke(self.assigned, now_ms)

    # --- The owner, and time ---

    def polled(self, now_ms: int, *, gives_back: bool) -> None:
        """The owner polled; `gives_back`: it released what it was asked to revoke."""
        self.pass_deadlines(now_ms)
        if gives_back and (notified := self.revocations.notified):
            self.machine.log(Level.INFO, f"gives back {spelled(notified)}")
            self._let_go(notified, "it was given back")
        if self.phase is MembershipPhase.IDLE:
            self.phase = MembershipPhase.JOINING

    def give_back_partitions(
        self, partitions: frozenset[TopicPartition], now_ms: int, refused: str = ""
    ) -> None:
        """Give back single partitions that the owner has finished with, asked to or not.

        With an eager assignor the others follow before the member joins again; but a member that
        drains keeps them until it leaves. One that keeps its place gives back only those that the
        group has taken away, and one that drains while nobody else takes partitions none.

        Args:
            refused: why the owner will not have them now; the group is notified.
        """
        self.pass_deadlines(now_ms)
        partitions &= self.assigned | self.revocations.partitions
        drains_last = self.is_draining and self._takes_alone
        if self.keeps_place or drains_last:
            self._ledger.end(partitions, "it was given back")
            partitions = _NOTHING if drains_last else partitions & self.revocations.partitions
        if not partitions:
            return
        stops = "it stops: " if self.is_draining else ""
        why = f": {refused}" if refused else ""
        self._reason = self._reason or f"{stops}partitions are given back{why}"
        self._let_go(partitions, "it was given back")
        if self.phase is MembershipPhase.STABLE and not (
            self.assignors.is_cooperative or self.is_draining
        ):
            self._revoke(self.assigned, now_ms)

    def subscribe(self, topics: Mapping[str, int], now_ms: int) -> None:
        """Change the topics or their numbers of partitions.

        Joins again with other topics, and with numbers that the leader neither knows nor has
        divided: of the members that find new partitions only the first one does.
        Source: Kafka `ConsumerCoordinator.rejoinNeededOrPending`.
        """
        before, self.config = self.config.topics, replace(self.config, topics=dict(topics))
        if before.keys() != topics.keys() or self._counts_otherwise():
            self._join_with_topics(now_ms)

    def _counts_otherwise(self) -> bool:
        return not (self.is_draining or self._read.knows(self.config.topics))

    def _join_with_topics(self, now_ms: int) -> None:
        if self.is_in_session:
            self._reason = self._reason or TOPICS_CHANGED
        self.rebalance(now_ms)

    def pass_deadlines(self, now_ms: int) -> None:
        """Expire the session, or a revocation that the owner did not answer.

        The session ends here before it can end at the coordinator, since it is counted from the
        time at which the last answered heartbeat was *sent*. The id stays until the group says that
        it is unknown: after an outage the coordinator still has it, and the next generation would
        wait for it.
        """
        if self.is_in_session and now_ms >= self.session_ends_ms:
            self._lose_in_outage("the coordinator has not answered", now_ms)
        elif overdue := self.revocations.overdue(now_ms):
            reason = "it was not given back before the deadline of its revocation"
            lost = self._ledger.known(overdue)
            if lost:
                self.machine.log(Level.WARNING, f"late poll, lost {spelled(lost)}: {reason}")
                self._emit(Lost(self._ledger.current(lost), reason))
            self._let_go(overdue, reason)  # Some may be assigned again: the owner hears of it next.

    def next_expiry(self) -> int | None:
        """Time of the next expiry in `pass_deadlines`; None: there is none."""
        session_ends_ms = self.session_ends_ms if self.is_in_session else None
        ends = (session_ends_ms, self.revocations.next_deadline())
        return min((end for end in ends if end is not None), default=None)

    def give_up(self, reason: str) -> None:
        """Lose everything and be IDLE until the next poll, since the owner makes no progress."""
        lost = spelled(self._ledger.known(self.assigned | self.revocations.partitions))
        self.machine.log(
            Level.WARNING,
            f"late poll,{f' lost {lost},' if lost else ''} leaves and joins again with the next "
            f"poll: {reason}",
        )
        self._lose(reason, is_reported=False)
        self.phase = MembershipPhase.IDLE

    def unreachable(self, now_ms: int) -> None:
        """Lose everything if no coordinator has answered for a whole session while joining."""
        if self.is_between_assignments and self.assigned:
            if now_ms >= self.session_ends_ms:
                self._lose_in_outage("no coordinator has answered", now_ms)

    @property
    def is_between_assignments(self) -> bool:
        """True while a generation is being joined."""
        return self.phase in (MembershipPhase.JOINING, MembershipPhase.SYNCING)

    @property
    def session_ends_ms(self) -> int:
        """Time at which the member must consider its session expired."""
        return self._last_seen_ms + self.config.session_timeout_ms

    @property
    def is_in_session(self) -> bool:
        """True while the member sends heartbeats."""
        return self.phase in (MembershipPhase.STABLE, MembershipPhase.REVOKING)

    def left(self) -> None:
        """Forget member id and generation after the group has been left."""
        self.member_id = ""
        self.generation = -1

    def stop(self, reason: str) -> None:
        """Stop; partitions still held are lost."""
        if self.phase is not MembershipPhase.STOPPED:
            self._lose(reason, is_reported=self.machine.failure is not None)
            self.phase = MembershipPhase.STOPPED
            self._emit(Stopping(reason))

    # --- Inside ---

    def _warn_of(self, warnings: tuple[str, ...]) -> None:
        """Log what a leader has noticed, once as long as it stays true."""
        for text in warnings:
            if text not in self._warned_of:
                self.machine.log(Level.WARNING, text)
        self._warned_of = frozenset(warnings)

    def _still_revoked(self, assigned: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """Partitions that are being revoked although an assignment may give them back.

        The owner keeps those that it was never handed.
        """
        revocations = self.revocations
        unsent = (assigned & revocations.partitions) - revocations.notified
        revocations.end(unsent)
        self._withdraw(unsent)
        self.assigned |= unsent
        revocations.returned = assigned & revocations.partitions
        return revocations.partitions

    def _revoke(self, partitions: frozenset[TopicPartition], now_ms: int) -> None:
        """Revoke partitions; those that the owner was never handed are given back at once."""
        known = self._ledger.known(partitions)
        if known:
            until_ms = now_ms + self.config.rebalance_timeout_ms // 2
            self.revocations.begin(known, until_ms)
            self._emit(Revoking(self._ledger.current(known), until_ms))
            self.phase = MembershipPhase.REVOKING
            left_ms = until_ms - now_ms
            self.machine.log(
                Level.INFO, f"revoking {spelled(known)}, to be given back within {left_ms} ms"
            )
        if partitions - known or not known:
            self._let_go(partitions - known, "it was taken away before a poll handed it out")

    def _let_go(self, partitions: frozenset[TopicPartition], reason: str) -> None:
        """End the holdings of partitions, and join again if that is all it takes."""
        self._withdraw(partitions)
        self._ledger.end(partitions, reason)
        self.assigned -= partitions
        returned = self.revocations.end(partitions)
        if returned:
            self.assigned |= returned
            self._begin(returned)
            self._emit(Granted(self._ledger.current(returned)))
        if returned == partitions != _NOTHING:
            if self.is_in_session:
                self.phase = (
                    MembershipPhase.REVOKING
                    if self.revocations.partitions
                    else MembershipPhase.STABLE
                )
        elif self._may_join_now():
            self.must_join_again = self.phase is MembershipPhase.JOINING
            self.phase = MembershipPhase.JOINING

    def _let_go_of_finished(self) -> None:
        """Hold no partition any more that was kept since nobody else took any."""
        held = self.assigned | self.revocations.partitions
        finished = held - self._ledger.known(held)
        self.assigned -= finished
        self.revocations.end(finished)

    @property
    def _takes_alone(self) -> bool:
        """True if no other member of the generation takes partitions; known to its leader."""
        if not self.is_leader or self.is_between_assignments:
            return False
        others = (m for m in self._joined.members if m.member_id != self.member_id)
        return not any(decode_subscription(m.metadata).topics for m in others)

    def _may_join_now(self) -> bool:
        if self.phase is MembershipPhase.SYNCING:
            return False  # The answer shows that the group has to be notified.
        return self.assignors.is_cooperative or not (self.assigned or self.revocations.partitions)

    def _withdraw(self, partitions: frozenset[TopicPartition]) -> None:
        """Remove these partitions from events that the owner has not been given."""
        for event in self.machine.take_events():
            if isinstance(event, Granted | Revoking) and event.partitions & partitions:
                left = tuple(held for held in event.holdings if held.partition not in partitions)
                if left:
                    self._emit(replace(event, holdings=left))
            else:
                self._emit(event)

    def _unsay(self, *kinds: type[MemberEvent]) -> None:
        """Drop events of these kinds that the owner has not been given."""
        events = self.machine.take_events()
        self.machine.events.extend(event for event in events if not isinstance(event, kinds))

    def _emit(self, event: MemberEvent) -> None:
        self.machine.events.append(event)

    @property
    def _ledger(self) -> Ledger:
        return self.machine.ledger

    def _begin(self, partitions: Collection[TopicPartition]) -> None:
        self._ledger.begin(Holding(partition, self.generation) for partition in partitions)

    def _assignors_refused(self, message: str) -> None:
        """The group follows none of the member's assignors: try the other ones, or stop.

        Whatever it held is lost first.
        """
        code, refused = Code.INCONSISTENT_GROUP_PROTOCOL, ", ".join(self.assignors.names)
        if not self.assignors.refused():
            self.machine.fail(FatalError(f"{message}. {self.assignors.way_in()}", code), code)
            return
        self._lose(code)
        self.generation = -1
        self.machine.log(
            Level.WARNING,
            f"the group refuses {refused} ({message}): joins with "
            f"{', '.join(self.assignors.names)} instead. {self.assignors.way_over()}",
        )

    def _refused(self, code: str, message: str) -> Next:
        if code in _FATAL:
            self.machine.fail(FatalError(message, code), code)
        elif code == Code.REBALANCE_IN_PROGRESS:
            self.phase = MembershipPhase.JOINING
        elif code == Code.UNKNOWN_MEMBER_ID:
            self._lose(code)
            self.left()
        elif code == Code.ILLEGAL_GENERATION:
            self._lose(code)
            self.generation = -1
        else:
            return Next.REDISCOVER if code in calls.ELSEWHERE else Next.PAUSE
        return Next.GO_ON

    def _lose_in_outage(self, reason: str, now_ms: int) -> None:
        """Lose everything, and note when the owner stopped: with the first commit of a partition
        that had no answer, and else now."""
        waiting = self.machine.waiting()
        known = self._ledger.known(self.assigned | self.revocations.partitions)
        self._stopped = {partition: waiting.get(partition, now_ms) for partition in sorted(known)}
        self._lose(f"{reason} for a whole session timeout")

    def _lose(self, reason: str, *, is_reported: bool = True) -> None:
        lost = self._ledger.known(self.assigned | self.revocations.partitions)
        held = self._ledger.current(lost)
        self._ledger.end_all(reason)
        self._unsay(Granted, Revoking)
        self.assigned = self._claimed = _NOTHING
        self.revocations.end_all()
        if lost:
            self._emit(Lost(held, reason))
            if is_reported:
                self.machine.log(Level.WARNING, f"lost {spelled(lost)}: {reason}")
        self._reason = reason
        if self.phase is not MembershipPhase.STOPPED:
            self.phase = MembershipPhase.JOINING
