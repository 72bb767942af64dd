"""Random histories of a member in both protocols, beside a reference ledger of a few lines.

Owners commit for what they were handed out, long ago or just now, or for holdings that they show.
Every commit that leaves the machine counts for holdings that last at that moment and were handed
out to its owner, under their tokens or the member's generation; and one that the reference allows
is not refused. `HISTORIES=1000` plays so many seeds of each protocol.
"""

from __future__ import annotations

import contextvars
import os
import random
import threading
from collections import Counter
from collections.abc import Iterable

import pytest

from coordinator.assignors import TopicPartition
from coordinator.client.errors import StaleMember
from coordinator.client.member import calls, owners
from coordinator.client.member import machine as machine_module
from coordinator.client.member.calls import CommitCall
from coordinator.client.member.ledger import MEMBERSHIP, Holding, Ledger
from coordinator.client.member.machine import MemberMachine
from coordinator.client.member.operations import CommitOperation
from coordinator.client.member.part import Leaving
from coordinator.client.offsets import Commit
from coordinator.v1 import errors_pb2
from coordinator.v1 import session_pb2 as pb
from tests.kit.client_scenario import Player, told
from tests.kit.session_member import ACTIVE, DRAIN
from tests.unit.client.sessions.kit import orders_message
from tests.unit.client.sessions.test_member_machine import Driven
from tests.unit.client.test_chance import PARTITIONS, Chance

SEEDS = int(os.environ.get("HISTORIES", "48"))
PARTS = 6
T = [TopicPartition("t", number) for number in range(PARTITIONS)]


class Task:
    """A caller that is no thread."""


class Reference(Ledger):
    """A ledger, and beside it what has become of each holding, in the plainest way."""

    def __init__(self) -> None:
        super().__init__()
        self.lasting: set[Holding] = set()
        self.given_up: set[Holding] = set()
        self.told: dict[TopicPartition, Holding] = {}

    def begin(self, holdings: Iterable[Holding]) -> None:
        begun = list(holdings)
        self.end([h.partition for h in begun], "it began anew")
        self.lasting.update(begun)
        super().begin(begun)

    def end(self, partitions: Iterable[TopicPartition], reason: str) -> None:
        ended = set(partitions)
        self.lasting = {h for h in self.lasting if h.partition not in ended}
        super().end(ended, reason)

    def give_up(self, holding: Holding, reason: str) -> None:
        self.given_up.add(holding)
        super().give_up(holding, reason)

    def hand_out(self, granted: Iterable[Holding] = ()) -> None:
        news = list(granted)
        membership = [h for h in self.lasting if h.partition == MEMBERSHIP]
        self.told = {**self.told, **{h.partition: h for h in (*news, *membership)}}
        super().hand_out(news)


class Checker:
    """The owners of one member, and the claim about each of their commits."""

    def __init__(self, machine: MemberMachine, dice: random.Random, seen: Counter[str]) -> None:
        self.machine, self.dice, self.seen = machine, dice, seen
        self.ledger: Reference = machine.ledger
        self.owners = owners.Owners(machine.ledger)
        self.is_thread = dice.random() < 0.5
        self.poller = threading.Thread() if self.is_thread else Task()
        self.context = contextvars.Context()
        self.made: list[tuple[contextvars.Context, dict]] = []
        self.shown: list[Holding] = []
        self.claims: dict[CommitOperation, frozenset[Holding]] = {}
        self.polled = False

    def poll(self, hand_out) -> list:
        """The poller polls; now and then it makes a task."""
        events = self._run(self.poller, self.context, self._poll, hand_out)
        self.polled = True
        self.shown += [h for h in self.ledger.told.values() if h.partition != MEMBERSHIP]
        self.shown = list(dict.fromkeys(self.shown))[-12:]
        if self.dice.random() < 0.5:
            self.made.append((self.context.copy(), self.ledger.told))
        return events

    def _poll(self, hand_out) -> list:
        poll = self.owners.poll_begins()
        events = hand_out()
        self.owners.poll_ends(poll)
        return events

    def _run(self, caller: object, context: contextvars.Context, act, *args):
        self.caller = caller
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owners, "_caller", lambda: self.caller)
            return context.run(act, *args)

    def commit(self, now_ms: int) -> None:
        """An owner commits: the poller, a task that it has made, another, or one that shows."""
        wants = self.dice.sample(T, self.dice.choice([0, 1, 1, 1, 2]))
        kind = self.dice.choice(["poller", "task", "task", "other", "shows", "shows"])
        caller, context, handed_out, shown = Task(), contextvars.Context(), {}, None
        if kind == "poller":
            caller, context, handed_out = self.poller, self.context, self.ledger.told
        elif kind == "task" and self.made:
            context, handed_out = self.dice.choice(self.made)
        elif kind == "shows" and self.shown and wants:
            shown = self.dice.sample(self.shown, min(len(self.shown), 3))
            handed_out = {h.partition: h for h in shown}
        elif not (self.polled and self.is_thread):
            handed_out = self.ledger.told  # Made before the first poll.
        if shown is not None:
            kind = "shows"
        claimed = [handed_out.get(p) for p in wants or [MEMBERSHIP]]
        lasts = all(h in self.ledger.lasting - self.ledger.given_up for h in claimed)
        commit = Commit(dict.fromkeys(wants, 7), manifest=b"" if wants else b"x")
        try:
            begun = self._run(
                caller, context, lambda: self.machine.commit(
                    commit, shown, now_ms, handed_out=self.owners.handed_out
                )
            )  # fmt: skip
        except StaleMember as error:
            begun = error
        if isinstance(begun, StaleMember):
            closes = self.machine.leaving is not None
            assert closes or not lasts, f"{kind} may commit {claimed}: {begun}"
            self.seen[f"{kind} refused"] += 1
            return
        assert None not in claimed, f"{kind} was never handed out {wants}"
        given_up = self.ledger.given_up & self.ledger.lasting & set(claimed)
        assert not given_up, f"{kind} has given up {given_up}"
        self.claims[begun] = frozenset(claimed)
        self.seen[f"{kind} {'begun' if lasts else 'too late'}"] += 1

    def sent(self, call: calls.MemberCall) -> None:
        """A commit leaves the machine."""
        claimed = self.claims[call.requester]
        assert claimed <= self.ledger.lasting, f"ended: {claimed - self.ledger.lasting}"
        request = call.request
        assert set(request.commit.offsets) == {h.partition for h in claimed} - {MEMBERSHIP}
        tokens = {h.partition: h.token for h in claimed if h.token}
        assert dict(request.tokens or {}) == tokens
        assert request.member.generation == self.machine.part.status().generation
        self.seen["sent"] += 1

    def look(self, now_ms: int) -> None:
        """Commits that were refused after they had begun."""
        for begun in [one for one in self.claims if one.is_done]:
            claimed = self.claims.pop(begun)
            message = str(begun.error)
            if isinstance(begun.error, StaleMember) and "nothing was sent" in message:
                in_doubt = "is suspended" in message and self.machine.commits.suspended(
                    claimed, now_ms
                )
                assert in_doubt or not claimed <= self.ledger.lasting, message
                self.seen["refused while under way"] += 1


@pytest.fixture(autouse=True)
def reference(monkeypatch):
    monkeypatch.setattr(machine_module, "Ledger", Reference)


# --- Classic: members, a coordinator, and messages that are late, lost and out of order ---


class ClassicHistory(Chance):
    """A history of chance, whose owners are late."""

    def __init__(self, seed: int, seen: Counter[str]) -> None:
        self.counted, self.checkers = seen, {}
        super().__init__(seed)

    def checker(self, player: Player) -> Checker:
        if player not in self.checkers:
            self.checkers[player] = Checker(player.machine, self.dice, self.counted)
        return self.checkers[player]

    def deliver(self, letter) -> None:
        letter.deliver()

    def poll(self, player: Player) -> None:
        part, now_ms = player.machine.part, self.scenario.now_ms
        part.poll_begins(now_ms, gives_back=True)
        part.progress.poll_ends(now_ms)
        self.checker(player).poll(lambda: list(map(told, player.machine.hand_out(now_ms))))

    def commit(self, player: Player) -> None:
        if self.dice.random() < 0.1:
            held = player.machine.ledger.current(player.assignment)
            player.machine.give_back(held[:1], self.scenario.now_ms)
        self.checker(player).commit(self.scenario.now_ms)
        player.turn()

    def act_on_time(self) -> None:
        for player in self.players:
            player.turn()
            checker = self.checker(player)
            for letter in player.letters:
                if letter not in self.seen and isinstance(letter.request, CommitCall):
                    self.seen.add(letter)
                    checker.sent(letter.call)
            checker.look(self.scenario.now_ms)


def play_classic(seed: int, seen: Counter[str]) -> None:
    ClassicHistory(seed, seen).play()


# --- Sessions: orders, leases, streams that end ---


class SessionHistory(Driven):
    """A session member, and a coordinator that is drawn."""

    def __init__(self, seed: int, seen: Counter[str]) -> None:
        self.dice, self.now_ms, self.version, self.epoch = random.Random(seed), 0, 1, 8
        self.has_stream = True
        self.token = 2
        self.orders: dict[int, tuple[int, int]] = {0: (ACTIVE, 1), 1: (ACTIVE, 2)}
        self.checker = None
        super().__init__()
        self.checker = Checker(self.machine, self.dice, seen)
        self.poll()

    def turn(self, now_ms: int) -> None:
        before = len(self.calls)
        self.opened = getattr(self, "stream", None)
        super().turn(now_ms)
        if getattr(self, "stream", None) is not self.opened:
            self.has_stream = True
        for call in self.calls[before:]:
            if isinstance(call.request, CommitCall):
                self.checker.sent(call)
        if self.checker is not None:
            self.checker.look(now_ms)

    def play(self) -> None:
        acts = {
            self.poll: 5, self.commit: 8, self.tell: 6, self.answers: 5, self.wait: 4,
            self.beat: 6, self.end_stream: 1, self.give_back: 2, self.expire: 0.5,
            self.close: 0.05,
        }  # fmt: skip
        for _ in range(120):
            (act,) = self.dice.choices(list(acts), list(acts.values()))
            act()
            self.turn(self.now_ms)

    def poll(self) -> None:
        gives_back = self.dice.random() < 0.5
        self.machine.part.poll_begins(self.now_ms, gives_back=gives_back)
        self.checker.poll(lambda: self.machine.hand_out(self.now_ms))

    def commit(self) -> None:
        self.checker.commit(self.now_ms)

    def tell(self) -> None:
        """Grant, grant anew, drain, or take away; or only say it, and forget it."""
        number = self.dice.randrange(PARTITIONS)
        order, token = self.orders.get(number, (0, 0))
        match self.dice.choice(["grant", "grant", "drain", "lose"]):
            case "grant":
                self.token += 1
                self.orders[number] = ACTIVE, self.token
            case "drain" if order == ACTIVE:
                self.orders[number] = DRAIN, token
            case "lose":
                self.orders.pop(number, None)
        self.version += 1
        if self.has_stream and self.dice.random() < 0.8:
            remaining_ms = self.dice.choice([500, 30_000])
            self.receive(self.now_ms, orders=self.whole(remaining_ms=remaining_ms))

    def whole(self, **more) -> pb.Orders:
        orders = [(n, *order) for n, order in sorted(self.orders.items())]
        return orders_message(self.version, *orders, **more)

    def beat(self) -> None:
        """A heartbeat, and a whole state that answers it, in time."""
        number = self.part.stream._number
        if self.has_stream:
            ack = pb.SessionHeartbeatAck(number=number, coordinator_epoch=self.epoch)
            self.receive(self.now_ms, heartbeat_ack=ack)
            self.version += 1
            self.receive(self.now_ms, orders=self.whole(answers=number))

    def wait(self) -> None:
        until_ms = self.now_ms + self.dice.choice([10, 100, 1_000, 3_000, 9_500])
        while self.now_ms < until_ms:
            next_ms = self.machine.next_deadline()
            self.now_ms = min(until_ms, max(self.now_ms + 1, next_ms or until_ms))
            self.turn(self.now_ms)
            self.has_stream = self.has_stream and self.part.stream.has_stream

    def answers(self) -> None:
        """The oldest call is answered, or fails."""
        if not self.calls:
            return
        match self.calls[0].request:
            case calls.FindCoordinator():
                self.answer(calls.Found("a:1"), self.now_ms)
                self.attach_anew()
            case CommitCall(commit=commit):
                codes = ("NONE",) * max(1, len(commit.offsets))
                result = self.dice.choice(
                    [calls.Committed(codes=codes), calls.Dropped("?"), calls.CallUnanswered("?")]
                )
                self.answer(result, self.now_ms)

    def attach_anew(self) -> None:
        if self.has_stream and self.part.stream.has_stream and not self.part.stream._is_attached:
            self.version += 1
            attached = pb.Attached(
                session_id=self.part.stream.session_id or f"s{self.token}", member_id="m",
                coordinator_epoch=self.epoch, lease_ms=10_000, heartbeat_interval_ms=2_500,
                orders=self.whole(),
            )  # fmt: skip
            self.receive(self.now_ms, attached=attached)

    def end_stream(self) -> None:
        if self.has_stream:
            self.has_stream = False
            ended = calls.StreamClosed(self.stream, calls.CallUnanswered("cut"))
            self.machine.received(ended, self.now_ms)

    def expire(self) -> None:
        """The session has ended, and another begins under other tokens, before the next poll."""
        if self.has_stream and self.part.stream._is_attached:
            self.has_stream = False
            refused = pb.SessionRefused(error_code=errors_pb2.UNKNOWN_MEMBER_ID)
            self.receive(self.now_ms, refused=refused)
            for number in self.orders:
                self.token += 1
                self.orders[number] = ACTIVE, self.token
            self.now_ms = max(self.now_ms, self.machine.next_deadline() or 0)
            self.turn(self.now_ms)
            self.attach_anew()

    def give_back(self) -> None:
        if self.checker.shown:
            holding = self.dice.choice(self.checker.shown)
            refused = self.dice.choice(["", "no disk"])
            self.release(self.now_ms, holding, refused=refused)
            number, order = holding.partition.partition, self.orders.get(holding.partition[1])
            if order is not None and order[1] == holding.token:
                del self.orders[number]

    def close(self) -> None:
        self.machine.close(Leaving("closed"), self.now_ms)


def play_session(seed: int, seen: Counter[str]) -> None:
    SessionHistory(seed, seen).play()


# --- The claim ---


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("play", [play_classic, play_session], ids=["classic", "session"])
def test_commits_count_for_what_lasts_and_was_handed_out_to_their_owner(play, part):
    seen: Counter[str] = Counter()
    for seed in range(part, SEEDS, PARTS):
        print(f"seed {seed}")  # pytest shows the last one.
        play(seed, seen)
    for kind in ("poller", "task", "other", "shows"):
        assert seen[f"{kind} refused"], seen
        assert seen[f"{kind} begun"], seen
    assert seen["task too late"], seen
    assert seen["sent"], seen
    assert seen["refused while under way"], seen
