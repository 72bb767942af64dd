"""Members of the library against a virtual coordinator, message by message, on virtual time.

A `Player` is a member's machine with an owner that the test plays. What it asks becomes letters,
which travel at once, unless the test holds them: requests (`hold`) or answers (`hold_answers`) of a
kind, to be delivered one by one, in any order, or dropped. Time moves only when the test says so. A
player may be paused, as by SIGSTOP: nothing happens then, while the others go on.

Model: the `Pair` of quinn-proto's tests.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple

from coordinator.assignors import TopicPartition
from coordinator.client.member import events
from coordinator.client.member.calls import (
    Answer,
    CallUnanswered,
    Cancel,
    CommitCall,
    Failure,
    FindCoordinator,
    Found,
    HangUp,
    Join,
    Level,
    LogMessage,
    MemberCall,
)
from coordinator.client.member.classic.part import ClassicPart
from coordinator.client.member.ledger import Holding
from coordinator.client.member.machine import MemberMachine
from coordinator.client.member.operations import GIVE_UP_MS, CommitOperation
from coordinator.client.member.part import Leaving
from coordinator.client.offsets import Commit
from coordinator.client.settings.configs import ClassicConfig
from coordinator.client.transport.wire import decode, encode
from coordinator.testing import VirtualCall, VirtualCoordinator
from coordinator.v1 import group_pb2 as pb
from coordinator.v1.errors_pb2 import ErrorCode

GROUP = "g"
STEP_MS = 10
TURNS_MAX = 1_000
HALF = 0.5  # Random number of all machines, so that equal pauses have equal lengths.


def t(*numbers: int) -> frozenset[TopicPartition]:
    """Partitions of the topic `t`."""
    return frozenset(TopicPartition("t", number) for number in numbers)


class Granted(NamedTuple):
    """A `Granted` as tests compare it: by partitions, not by holdings."""

    partitions: frozenset[TopicPartition]
    generation: int


class Revoking(NamedTuple):
    """A `Revoking` as tests compare it."""

    partitions: frozenset[TopicPartition]
    deadline_ms: int


class Lost(NamedTuple):
    """A `Lost` as tests compare it."""

    partitions: frozenset[TopicPartition]
    reason: str


def told(event: events.MemberEvent):
    """An event of a classic group, comparable."""
    match event:
        case events.Granted():
            return Granted(event.partitions, event.generation)
        case events.Revoking(_, deadline_ms):
            return Revoking(event.partitions, deadline_ms)
        case events.Lost(_, reason):
            return Lost(event.partitions, reason)
    return event


@dataclass(eq=False)
class Letter:
    """A call under way: not delivered yet, with the coordinator, or answered and not handed in."""

    player: Player
    call: MemberCall
    sent_at_ms: int
    at_coordinator: VirtualCall | None = None

    @property
    def request(self) -> object:
        return self.call.request

    @property
    def is_answered(self) -> bool:
        return self.at_coordinator is not None and self.at_coordinator.done

    def deliver(self) -> None:
        """Have the coordinator read it."""
        if isinstance(self.request, CommitCall):
            self.player.scenario.commits_sent.append(self.request)
        message = encode(self.request)
        if isinstance(self.request, Join):
            message.require_known_member_id = self.player.two_phase
        self.at_coordinator = self.player.scenario.coordinator.send(message, self.player.host)

    def hand_in(self) -> None:
        """Have the machine hear the answer."""
        assert self.is_answered, "there is no answer yet"
        self.player.receive(self, decode(self.at_coordinator.response))

    def fail(self, failure: Failure | None = None) -> None:
        """Have the machine hear of a failure; as if it was lost on the way, or its answer was."""
        if self.at_coordinator is not None and not self.at_coordinator.done:
            self.at_coordinator.cancel()
        self.player.receive(self, failure or CallUnanswered("lost"))


class Player:
    """One member. Made by `World.member`."""

    def __init__(self, scenario: ClientScenario, config: ClassicConfig) -> None:
        self.scenario = scenario
        self.machine = MemberMachine(ClassicPart, config, ["a:1", "b:2"], lambda: HALF)
        self.member = self.machine.part.membership
        self.paused = False
        self.host = "/127.0.0.1"
        self.two_phase = False
        self.letters: list[Letter] = []
        self.left_because: list[str] = []
        self.logged: list[tuple[Level, str]] = []
        self.hang_ups = 0
        self._held: set[type] = set()
        self._held_answers: set[type] = set()
        self.machine.start(scenario.now_ms)

    # --- Its owner ---

    def poll(self) -> list:
        """Events, as `Member.poll(timeout=0)` returns them: no message arrives meanwhile."""
        now_ms = self.scenario.now_ms
        self.machine.part.poll_begins(now_ms, gives_back=True)
        self.machine.part.progress.poll_ends(now_ms)
        return self.look()

    def look(self) -> list:
        """Events since the last call."""
        return list(map(told, self.machine.hand_out(self.scenario.now_ms)))

    def stand_in_poll(self, ms: int) -> list:
        """Events, as `poll(timeout=...)` returns them: as soon as there are some."""
        self.machine.part.poll_begins(self.scenario.now_ms, gives_back=True)
        until_ms = self.scenario.now_ms + ms
        while not self.machine.events and self.scenario.now_ms < until_ms:
            self.scenario.advance(STEP_MS)
        self.machine.part.progress.poll_ends(self.scenario.now_ms)
        return self.look()

    @property
    def warnings(self) -> list[str]:
        return [text for level, text in self.logged if level is Level.WARNING]

    def alive(self) -> None:
        self.machine.progress.alive(self.scenario.now_ms)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self.machine.part.assignment

    def holding(self, number: int) -> Holding:
        return self.machine.ledger.of(TopicPartition("t", number))

    def begin_commit(
        self, offsets: dict[int, int], *, holdings=None, timeout_ms=GIVE_UP_MS, **more
    ) -> CommitOperation:
        """A commit whose letters are left to the test."""
        commit = Commit({TopicPartition("t", n): o for n, o in offsets.items()}, **more)
        operation = self.machine.commit(commit, holdings, self.scenario.now_ms, timeout_ms)
        self.turn(resumed=True)
        return operation

    def commit(self, offsets: dict[int, int], *, holdings=None, **more):
        """Offsets by number of partition; returns how many calls it took. Raises as `commit`."""
        before = len(self.scenario.commits_sent)
        operation = self.begin_commit(offsets, holdings=holdings, **more)
        while not operation.is_done:
            self.scenario.advance(STEP_MS)
        if operation.error is not None:
            raise operation.error
        return len(self.scenario.commits_sent) - before

    def leave(self) -> None:
        """Close the member and leave the group."""
        self.machine.close(Leaving("closed"), self.scenario.now_ms)
        self.turn()
        assert self.machine.is_closed

    def kill(self) -> None:
        """Stop for ever without leaving, as by SIGKILL."""
        self.paused = True
        for letter in self.letters:
            if letter.at_coordinator is not None:
                letter.at_coordinator.cancel()
        self.letters.clear()

    # --- Its letters ---

    def hold(self, *kinds: type) -> None:
        """Do not deliver requests of these kinds; `object`: of any, but to bootstrap addresses."""
        self._held |= set(kinds)

    def hold_answers(self, *kinds: type) -> None:
        """Deliver requests of these kinds, and do not hand in their answers."""
        self._held_answers |= set(kinds)

    def deliver(self, *kinds: type) -> None:
        """Stop holding requests of these kinds."""
        self._held -= set(kinds)

    def release(self) -> None:
        """Stop holding requests and answers."""
        self._held.clear()
        self._held_answers.clear()
        self.turn()

    def letter(self, kind: type) -> Letter:
        """The one letter of a kind that is under way."""
        (found,) = (one for one in self.letters if isinstance(one.request, kind))
        return found

    def receive(self, letter: Letter, result) -> None:
        self.letters.remove(letter)
        self.machine.handle(Answer(letter.call, result), self.scenario.now_ms)

    def turn(self, *, resumed: bool = False) -> bool:
        """Do everything that can happen now; False: there was nothing.

        Args:
            resumed: its owner works, though it is paused: commits travel.
        """
        for number in range(TURNS_MAX):
            if not self._turn_once(resumed):
                return number > 0
        raise AssertionError("it never stops talking")

    def next_ms(self) -> int | None:
        """Time at which it acts without an input, or a call times out."""
        if self.paused:
            return None
        ends = [letter.sent_at_ms + letter.call.timeout_ms for letter in self.letters]
        ends.append(self.machine.next_deadline())
        return min((end for end in ends if end is not None), default=None)

    def _turn_once(self, resumed: bool) -> bool:
        if self.paused and not resumed:
            return False
        now_ms = self.scenario.now_ms
        acted = False
        while (action := self.machine.next_action(now_ms)) is not None:
            acted = True
            self._carry_out(action, now_ms)
        kinds = (CommitCall,) if self.paused else (object,)
        for letter in [one for one in self.letters if isinstance(one.request, kinds)]:
            acted = (letter in self.letters and self._move(letter, now_ms)) or acted
        return acted

    def _carry_out(self, action, now_ms: int) -> None:
        match action:
            case MemberCall(FindCoordinator(address=address)):
                self.letters.append(Letter(self, action, now_ms))
                if FindCoordinator not in self._held:
                    self.receive(self.letters[-1], Found(address))
            case MemberCall():
                self.letters.append(Letter(self, action, now_ms))
            case Cancel(call):
                (cancelled,) = (one for one in self.letters if one.call is call)
                self.letters.remove(cancelled)
                if cancelled.at_coordinator is not None:
                    cancelled.at_coordinator.cancel()
            case HangUp():
                self.hang_ups += 1
                for letter in list(self.letters):
                    letter.fail(CallUnanswered("hung up"))
            case LogMessage(level, text, _, _):
                self.logged.append((level, text))
                if "next poll: " in text:
                    self.left_because.append(text.partition("next poll: ")[2])

    def _move(self, letter: Letter, now_ms: int) -> bool:
        kind = type(letter.request)
        if now_ms >= letter.sent_at_ms + letter.call.timeout_ms:
            letter.fail(CallUnanswered("Deadline Exceeded"))
        elif letter.at_coordinator is None and not self._held & {kind, object}:
            letter.deliver()
        elif letter.is_answered and not self._held_answers & {kind, object}:
            letter.hand_in()
        else:
            return False
        return True


class ClientScenario:
    """One coordinator and its members. Heartbeats every 100 ms, sessions of 2 s, rebalances of 4 s:
    so a revocation has 2 s."""

    def __init__(self, assignor: str, partitions: int = 2) -> None:
        self.coordinator = VirtualCoordinator(
            group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=10
        )
        self.players: list[Player] = []
        self.commits_sent: list[CommitCall] = []
        self._assignor = assignor
        self._partitions = partitions

    @property
    def now_ms(self) -> int:
        return self.coordinator.now_ms

    def member(self, **settings) -> Player:
        """One that begins to join now."""
        defaults = {
            "group_id": GROUP,
            "topics": {"t": self._partitions},
            "assignors": (self._assignor,),
            "session_timeout_ms": 2_000,
            "rebalance_timeout_ms": 4_000,
            "heartbeat_interval_ms": 100,
        }
        player = Player(self, ClassicConfig(**{**defaults, **settings}))
        self.players.append(player)
        return player

    def settle(self) -> None:
        """Exchange messages until no member has anything to do at this time."""
        for _ in range(TURNS_MAX):
            if sum(player.turn() for player in self.players) == 0:
                return
        raise AssertionError("they never stop talking")

    def advance(self, ms: int, *, step_ms: int = STEP_MS) -> None:
        """Let time pass. Members act at their deadlines, and hear answers every so often."""
        until_ms = self.now_ms + ms
        self.settle()
        while self.now_ms < until_ms:
            ends = [player.next_ms() for player in self.players]
            next_ms = min(end for end in (*ends, self.now_ms + step_ms) if end is not None)
            assert next_ms > self.now_ms, "a deadline has passed, and nothing has come of it"
            self.coordinator.advance(min(next_ms, until_ms) - self.now_ms)
            self.settle()

    def until(self, condition, *, polling: tuple[Player, ...] = ()) -> None:
        """Let time pass until a condition holds."""
        for _ in range(TURNS_MAX):
            if condition():
                return
            self.advance(STEP_MS)
            for player in polling:
                player.poll()
        raise AssertionError("it never is")

    def share(self, *players: Player) -> None:
        """Poll until these hold all partitions, and each some."""
        self.until(lambda: self._is_shared(players), polling=players)

    def _is_shared(self, players: tuple[Player, ...]) -> bool:
        held = list(itertools.chain.from_iterable(player.assignment for player in players))
        shared = sorted(held) == sorted(t(*range(self._partitions)))
        return shared and all(player.assignment for player in players)

    def stored(self, number: int = 0) -> int:
        """The offset of a partition of `t`; -1: none."""
        request = pb.OffsetFetchRequest(
            group_id=GROUP, topics=[{"name": "t", "partition_indexes": [number]}]
        )
        response = self.coordinator.send(request).response
        assert response.error_code == ErrorCode.NONE
        return response.topics[0].partitions[0].committed_offset
