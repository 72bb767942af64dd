"""Beyond Kafka: static members that return to a Stable group, in the journal."""

from __future__ import annotations

import pytest

from coordinator.printable import printable
from coordinator.v1 import admin_pb2 as admin
from tests.kit.classic_scenario import GROUP, ClassicScenario
from tests.protocol.classic.test_last_work import INTERVAL_MS, SESSION_MS, holding, numbers, parts

LONG_SESSION_MS = 5 * SESSION_MS


class Named(ClassicScenario):
    """Static members `x`, which assigns, and `y`; they hold partitions 0 and 1."""

    def __init__(self) -> None:
        super().__init__(group_rebalance_journal=True)
        first, second = self.come("x"), self.come("y")
        self.advance(100)
        self.ids = {"x": first.response.member_id, "y": second.response.member_id}
        self.sync(self.ids["y"], 1, instance="y")
        shares = {self.ids["x"]: parts(0), self.ids["y"]: parts(1)}
        self.sync(self.ids["x"], 1, shares, instance="x")
        assert self.state == "Stable"
        for _ in range(2):
            self.advance(INTERVAL_MS)
            for name, member_id in self.ids.items():
                self.beat(member_id, 1, instance=name)
        self.heard = self.c.now_ms

    def come(self, name: str):
        return self.come_again(name, "")

    def come_again(self, name: str, member_id: str):
        how = {"protocols": ("range",), "srt": LONG_SESSION_MS, "rt": 60_000}
        return self.join(member_id, instance=name, client_id=name, metadata=holding(), **how)

    def returns(self, name: str) -> str:
        """A new process has joined, and has not asked for its assignment yet."""
        return self.come(name).response.member_id

    def fetches(self, name: str, member_id: str) -> None:
        assert self.sync(member_id, self.generation, instance=name).response.assignment

    def journal(self) -> list[admin.Rebalance]:
        return list(self.send(admin.ListRebalancesRequest(group_id=GROUP)).response.rebalances)


@pytest.fixture
def g() -> Named:
    return Named()


def test_a_return_is_counted_from_the_last_sign_to_the_assignment_of_the_new_process(g):
    g.advance(INTERVAL_MS + 500)
    new = g.returns("y")
    g.advance(30)
    assert len(g.journal()) == 1
    g.fetches("y", new)
    record, first = g.journal()
    assert (record.cause_code, record.outcome) == ("static_member_returned", "completed")
    assert (record.generation_before, record.generation_after) == (1, 1)
    assert first.generation_after == 1
    assert (record.member_id, record.client_id) == (new, "y")
    assert (record.started_at_ms, record.ended_at_ms) == (g.heard, g.c.now_ms)
    assert (record.join_phase_ms, record.sync_phase_ms, record.durable_phase_ms) == (-1, -1, -1)
    (move,) = record.moves
    assert (numbers(move), move.has_moved, move.is_fetched) == ([1], False, True)
    assert (move.from_member_id, move.to_member_id) == (g.ids["y"], new)
    assert (move.unowned_ms_min, move.unowned_ms_max) == (530, INTERVAL_MS + 530)
    assert not record.advice
    words = [printable(sentence) for sentence in record.explanation]
    assert "the static member y returned, without a rebalance, 2 members." in words[0]
    assert "1 partition was not worked on for between" in " ".join(words)


def test_each_return_is_an_entry_that_ends_the_idle_time_of_its_own_partitions(g):
    g.advance(400)
    new_x, new_y = g.returns("x"), g.returns("y")
    g.fetches("x", new_x)
    g.advance(100)
    g.fetches("y", new_y)
    of_y, of_x, _ = g.journal()
    assert [(numbers(move), move.unowned_ms_max) for move in of_x.moves] == [([0], 400)]
    assert [(numbers(move), move.unowned_ms_max) for move in of_y.moves] == [([1], 500)]


def test_a_process_that_dies_before_it_has_its_assignment_lets_the_partitions_rest_on(g):
    g.advance(400)
    g.returns("y")
    g.advance(700)
    g.fetches("y", g.returns("y"))
    record, _ = g.journal()
    assert [move.unowned_ms_max for move in record.moves] == [1_100]


def test_a_rebalance_before_the_assignment_takes_the_rest_in(g):
    g.advance(400)
    x, y = g.ids["x"], g.returns("y")
    g.advance(100)
    g.come("z")
    g.come_again("x", x)
    g.come_again("y", y)
    g.sync(y, 2, instance="y")
    g.sync(x, 2, {x: parts(0), y: parts(1)}, instance="x")
    newest, _ = g.journal()
    assert newest.cause_code == "member_joined"
    assert {numbers(move)[0]: move.unowned_ms_max for move in newest.moves}[1] == 500


def test_a_second_sync_of_a_member_is_no_return(g):
    g.fetches("y", g.ids["y"])
    assert len(g.journal()) == 1


def test_a_return_is_no_rebalance_in_a_listing(g):
    ended = g.journal()[0].ended_at_ms
    g.advance(400)
    g.fetches("y", g.returns("y"))
    (listed,) = g.send(admin.ListGroupsRequest()).response.groups
    assert listed.last_rebalance_ms == ended
