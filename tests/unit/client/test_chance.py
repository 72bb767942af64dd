"""Machines whose messages are late, lost and out of order, for every seed: what holds throughout.

One owner a partition; a commit is sent only for holdings that last; none is stored for a partition
that somebody else has been handed; deadlines are exact.
"""

from __future__ import annotations

import random

import pytest

from coordinator.client import CoordinatorError
from coordinator.client.member.calls import CommitCall
from coordinator.client.member.ledger import MEMBERSHIP
from coordinator.client.member.part import Leaving
from tests.kit.client_scenario import ClientScenario, Letter, Lost, Player, Revoking

STEPS = 300
PARTITIONS = 3


class Chance:
    """Plays one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        assignor = self.dice.choice(["range", "cooperative-sticky", "sticky"])
        self.scenario = ClientScenario(assignor, PARTITIONS)
        self.players = [self.new_player() for _ in range(self.dice.choice([2, 2, 3]))]
        self.seen: set[Letter] = set()
        self.offsets = iter(range(1, 1_000_000))
        self.commits = self.stored = self.refused = self.revoked = self.lost = 0

    def play(self) -> None:
        for _ in range(STEPS):
            player = self.dice.choice(self.players)
            act = self.dice.choices(
                [
                    self.travel,
                    self.lose,
                    self.poll,
                    self.commit,
                    self.wait,
                    self.calm,
                    self.replace,
                ],
                [20, 1, 4, 6, 5, 1, 0.5],
            )[0]
            act(player)
            self.act_on_time()

    # --- What may happen ---

    def travel(self, player: Player) -> None:
        """Some messages travel, in any order."""
        for _ in range(self.dice.randint(1, 6)):
            letters = [letter for one in self.players for letter in one.letters]
            if letters:
                letter = self.dice.choice(letters)
                if letter.at_coordinator is None:
                    self.deliver(letter)
                elif letter.is_answered:
                    letter.hand_in()
                self.act_on_time()

    def deliver(self, letter: Letter) -> None:
        letter.deliver()
        if isinstance(letter.request, CommitCall) and letter.is_answered:
            (topic,) = letter.at_coordinator.response.topics
            if topic.partitions[0].error_code == 0:
                (partition,) = letter.request.commit.offsets
                others = [one for one in self.players if one is not letter.player]
                self.stored += 1
                assert not any(partition in one.assignment for one in others)

    def lose(self, player: Player) -> None:
        if player.letters:
            self.dice.choice(player.letters).fail()

    def poll(self, player: Player) -> None:
        for event in player.poll():
            self.revoked += isinstance(event, Revoking)
            self.lost += isinstance(event, Lost)

    def commit(self, player: Player) -> None:
        number = self.dice.randrange(PARTITIONS)
        try:
            player.begin_commit({number: next(self.offsets)})
        except CoordinatorError:
            self.refused += 1

    def wait(self, player: Player) -> None:
        """Time passes, deadline by deadline."""
        until_ms = self.scenario.now_ms + self.dice.choice([1, 5, 20, 20, 60, 120, 700, 2_100])
        while self.scenario.now_ms < until_ms:
            ends = [one.next_ms() for one in self.players]
            next_ms = min(end for end in (*ends, until_ms) if end is not None)
            for one in self.players:
                check_that_nothing_is_due_before(one, next_ms)
            self.scenario.coordinator.advance(max(1, next_ms - self.scenario.now_ms))
            for one in self.players:
                check_that_something_is_due(one, self.scenario.now_ms)
            self.act_on_time()

    def calm(self, player: Player) -> None:
        """Deliver all messages for a while."""
        for one in self.players:
            one.release()
        for _ in range(6):
            self.scenario.advance(50)
            self.poll(self.dice.choice(self.players))
        self.hold_all()

    def replace(self, player: Player) -> None:
        """A process dies or leaves, and another one comes."""
        if self.dice.random() < 0.5:
            player.kill()
        else:
            player.machine.close(Leaving("closed"), self.scenario.now_ms)
            player.release()
        self.players.remove(player)
        self.players.append(self.new_player())

    def new_player(self) -> Player:
        player = self.scenario.member(max_poll_interval_ms=self.dice.choice([None, 3_000]))
        player.hold(object)
        player.hold_answers(object)
        return player

    def hold_all(self) -> None:
        for player in self.players:
            player.hold(object)
            player.hold_answers(object)

    # --- What holds ---

    def act_on_time(self) -> None:
        """Everybody takes the steps that are due; nothing travels."""
        for player in self.players:
            player.turn()
            for letter in player.letters:
                if letter not in self.seen and isinstance(letter.request, CommitCall):
                    self.seen.add(letter)
                    self.commits += 1
                    check_that_its_holdings_last(letter)
        held = [p for player in self.players for p in player.assignment]
        assert len(held) == len(set(held)), "two owners"


def check_that_its_holdings_last(letter: Letter) -> None:
    if isinstance(letter.request, CommitCall):
        claimed = letter.call.requester.claimed
        assert {h.partition for h in claimed} == set(letter.request.commit.offsets) or {
            h.partition for h in claimed
        } == {MEMBERSHIP}
        assert all(map(letter.player.machine.ledger.lasts, claimed))
        assert letter.request.member.generation == letter.player.member.generation


def seen(player: Player) -> tuple:
    """All that an owner, or a driver, can see of a machine."""
    member = player.member
    return (
        member.phase, member.member_id, member.generation, member.assigned, player.assignment,
        tuple(player.machine.events), player.machine.next_deadline(),
    )  # fmt: skip


def check_that_nothing_is_due_before(player: Player, now_ms: int) -> None:
    deadline_ms = player.machine.next_deadline()
    before = seen(player)
    for early_ms in {now_ms, now_ms + 100_000 if deadline_ms is None else deadline_ms}:
        early_ms -= 1
        assert player.machine.next_action(early_ms) is None
        assert seen(player) == before


def check_that_something_is_due(player: Player, now_ms: int) -> None:
    """A driver that comes at the deadline does not come in vain."""
    if player.machine.next_deadline() is None or player.machine.next_deadline() > now_ms:
        return
    before, letters = seen(player), len(player.letters)
    player.turn()
    assert seen(player) != before or len(player.letters) != letters


@pytest.mark.parametrize("first", range(0, 24, 6))
def test_whatever_becomes_of_messages_the_claims_hold(first):
    chances = [Chance(seed) for seed in range(first, first + 6)]
    for chance in chances:
        chance.play()
        # Once messages travel again, everything is shared.
        for player in chance.players:
            player.release()
        chance.scenario.share(*chance.players)
    for what in ("commits", "stored", "refused", "revoked", "lost"):
        assert sum(getattr(chance, what) for chance in chances), what
