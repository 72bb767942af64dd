"""Beyond Kafka: how long nobody worked on partitions, for each way in which their owner stopped.

Times are of the virtual clock, so every number is exact.
"""

from __future__ import annotations

import pytest

from coordinator.assignors import Subscription, TopicPartition
from coordinator.assignors.consumer_protocol import (
    Assignment,
    encode_assignment,
    encode_subscription,
)
from coordinator.core.journal import last_work
from coordinator.printable import printable
from coordinator.v1 import admin_pb2 as admin
from coordinator.v1 import group_pb2 as pb
from tests.kit.classic_scenario import GROUP, ClassicScenario

SESSION_MS = 6_000
INTERVAL_MS = 2_000
COOPERATIVE = ("cooperative-sticky",)


def keys(*numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("t", n) for n in numbers)


def parts(*numbers: int) -> bytes:
    return encode_assignment(Assignment(keys(*numbers)))


def holding(*numbers: int) -> bytes:
    """Metadata of a consumer that holds these partitions."""
    return encode_subscription(Subscription(("t",), owned_partitions=keys(*numbers)))


class Group(ClassicScenario):
    """Members `a` and `b`, which hold partitions 0 and 1; `a` assigns."""

    def __init__(self, protocols=("range",)) -> None:
        super().__init__(group_rebalance_journal=True, group_max_size=1_000)
        self.how = {"protocols": protocols, "srt": SESSION_MS, "rt": 60_000}
        joining = self.join("", metadata=holding(), client_id="a", **self.how)
        second = self.join("", metadata=holding(), client_id="b", **self.how)
        self.advance(100)
        self.a, self.b = joining.response.member_id, second.response.member_id
        self.sync(self.b, 1)
        self.sync(self.a, 1, {self.a: parts(0), self.b: parts(1)})
        assert (self.state, self.generation) == ("Stable", 1)

    @property
    def now(self) -> int:
        return self.c.now_ms

    def beats(self, rounds: int) -> int:
        """Both beat in every interval; returns the time of the last time."""
        for _ in range(rounds):
            self.advance(INTERVAL_MS)
            assert self.beat(self.a, self.generation) == "NONE"
            assert self.beat(self.b, self.generation) == "NONE"
        return self.now

    def rejoin(self, member_id: str, *held: int):
        client_id = "a" if member_id == self.a else "b"
        return self.join(member_id, metadata=holding(*held), client_id=client_id, **self.how)

    def share(self, **assigned: bytes) -> None:
        """Everybody fetches its assignment, the leader last."""
        for name in assigned:
            if name != "a":
                self.sync(getattr(self, name), self.generation)
        shares = {getattr(self, name): share for name, share in assigned.items()}
        self.sync(self.a, self.generation, shares)
        assert self.state == "Stable"

    def newest(self) -> admin.Rebalance:
        return self.send(admin.ListRebalancesRequest(group_id=GROUP)).response.rebalances[0]


def span(move: admin.PartitionMove) -> tuple[int, int]:
    return move.unowned_ms_min, move.unowned_ms_max


def numbers(move: admin.PartitionMove) -> list[int]:
    return [n for some in move.partitions for n in range(some.first, some.last + 1)]


@pytest.fixture
def eager() -> Group:
    return Group()


@pytest.fixture
def cooperative() -> Group:
    return Group(COOPERATIVE)


def taken_over(g: Group) -> admin.PartitionMove:
    """The move of partition 1 from `b` to `a`, which is alone."""
    g.share(a=parts(0, 1))
    (move,) = [move for move in g.newest().moves if move.has_moved]
    assert (move.from_member_id, move.to_member_id) == (g.b, g.a)
    assert (move.from_client_id, move.to_client_id) == ("b", "a")
    assert (move.topic, numbers(move), move.partition_count) == ("t", [1], 1)
    assert move.is_fetched
    assert move.resumed_at_ms == g.now
    return move


def until_b_expires(g: Group, heard: int) -> None:
    """`a` goes on, until it hears that the session of `b` has ended, and joins."""
    while g.now < heard + SESSION_MS:
        g.advance(min(INTERVAL_MS, heard + SESSION_MS - g.now))
        g.beat(g.a, g.generation)
    assert g.state == "PreparingRebalance"
    g.rejoin(g.a, 0)


# --- Dead or paused ----------------------------------------------------------------------------


def test_one_that_died_worked_until_it_was_heard_or_until_its_next_heartbeat_was_due(eager):
    heard = eager.beats(3)
    until_b_expires(eager, heard)
    eager.advance(30)
    move = taken_over(eager)
    assert (move.stopped_earliest_ms, move.stopped_latest_ms) == (heard, heard + INTERVAL_MS)
    assert span(move) == (SESSION_MS + 30 - INTERVAL_MS, SESSION_MS + 30)
    assert move.known_by == "last_seen"
    newest = eager.newest()
    assert newest.unowned_ms_max == SESSION_MS + 30
    assert newest.unowned_ms_max_at_least == SESSION_MS + 30 - INTERVAL_MS
    (gone,) = newest.removed
    assert (gone.code, gone.last_seen_ms, gone.heartbeat_interval_ms) == (
        "session_expired", heard, INTERVAL_MS,
    )  # fmt: skip
    assert gone.removed_at_ms == heard + SESSION_MS


def test_a_commit_after_the_last_heartbeat_is_a_sign_of_life_too(eager):
    beaten = eager.beats(3)
    eager.advance(700)
    assert eager.commit_codes({("t", 1): 5}, member_id=eager.b, generation=1) == ["NONE"]
    until_b_expires(eager, beaten + 700)
    move = taken_over(eager)
    assert (move.stopped_earliest_ms, move.stopped_latest_ms) == (
        beaten + 700, beaten + INTERVAL_MS,
    )  # fmt: skip


def test_the_fast_path_of_heartbeats_measures_their_interval_too(eager):
    eager.beats(1)
    for _ in range(2):
        eager.advance(1_500)
        for member_id in (eager.a, eager.b):
            assert eager.c.shard.beat(GROUP, member_id, None, 1, eager.now)
    heard = eager.now
    until_b_expires(eager, heard)
    move = taken_over(eager)
    assert (move.stopped_earliest_ms, move.stopped_latest_ms) == (heard, heard + 1_500)


def test_one_that_dies_before_its_second_heartbeat_is_said_to_beat_three_times_a_session(eager):
    heard = eager.now
    until_b_expires(eager, heard)
    move = taken_over(eager)
    assert (move.stopped_earliest_ms, move.stopped_latest_ms) == (heard, heard + SESSION_MS // 3)
    assert move.known_by == "last_seen_interval_unknown"
    assert eager.newest().removed[0].heartbeat_interval_ms == -1


def test_the_interval_of_earlier_generations_is_remembered(eager):
    eager.beats(1)
    for _ in range(2):
        eager.advance(1_500)
        assert eager.c.shard.beat(GROUP, eager.b, None, 1, eager.now)
    eager.rejoin(eager.a), eager.rejoin(eager.b)
    eager.share(a=parts(0), b=parts(1))
    heard = eager.now
    until_b_expires(eager, heard)
    move = taken_over(eager)
    assert (move.stopped_latest_ms, move.known_by) == (heard + 1_500, "last_seen")


def test_a_heartbeat_that_comes_early_does_not_shorten_the_interval(eager):
    eager.beats(3)
    eager.advance(300)
    eager.beat(eager.b, 1)
    heard = eager.now
    until_b_expires(eager, heard)
    assert taken_over(eager).stopped_latest_ms == heard + INTERVAL_MS


def test_of_one_not_heard_since_a_fail_over_the_longest_time_is_unknown(eager):
    eager.beats(2)
    eager.restart()
    loaded = eager.now
    until_b_expires(eager, loaded)
    move = taken_over(eager)
    assert (move.stopped_earliest_ms, move.known_by) == (-1, "not_seen_since_take_over")
    assert span(move) == (SESSION_MS - SESSION_MS // 3, -1)
    newest = eager.newest()
    assert newest.removed[0].last_seen_ms == -1
    text = " ".join(newest.explanation)
    assert "at least 4.0 s" in text
    assert "was not heard since this node took the group over" in text


def test_one_removed_by_an_operator_and_not_heard_since_a_fail_over_may_have_been_dead(eager):
    eager.beats(2)
    eager.restart()
    eager.beat(eager.a, 1)
    eager.advance(500)
    eager.send(admin.RemoveMembersRequest(group_id=GROUP, members=[{"member_id": eager.b}]))
    eager.rejoin(eager.a)
    move = taken_over(eager)
    assert (move.stopped_earliest_ms, move.known_by) == (-1, "not_seen_since_take_over")
    assert span(move) == (0, -1)
    assert any("not worked on for an unknown time" in s for s in eager.newest().explanation)


def test_a_commit_since_a_fail_over_is_a_sign_of_life(eager):
    eager.beats(2)
    eager.restart()
    eager.advance(400)
    eager.commit({("t", 1): 1}, member_id=eager.b, generation=1)
    committed = eager.now
    until_b_expires(eager, committed)
    move = taken_over(eager)
    assert (move.stopped_earliest_ms, move.known_by) == (committed, "last_seen_interval_unknown")


def test_a_static_member_that_misses_a_join_phase_was_not_heard_in_it(eager):
    g = eager
    g.how |= {"rt": 3_000}
    fixed = g.join("", instance="fixed", metadata=holding(), client_id="f", **g.how)
    g.rejoin(g.a), g.rejoin(g.b)
    g.f = fixed.response.member_id
    g.share(a=parts(0), b=parts(1), f=parts(2))
    g.advance(INTERVAL_MS)
    g.beat(g.f, 2, instance="fixed")
    heard = g.now
    g.advance(500)
    g.rejoin(g.a), g.rejoin(g.b)
    g.advance(3_000)
    assert (g.state, g.generation) == ("CompletingRebalance", 3)
    g.leave(("", "fixed"))
    g.rejoin(g.a), g.rejoin(g.b)
    g.share(a=parts(0, 2), b=parts(1))
    (move,) = [move for move in g.newest().moves if move.has_moved]
    assert (numbers(move), move.stopped_earliest_ms) == ([2], heard)
    assert move.stopped_latest_ms == heard + INTERVAL_MS


def test_a_join_phase_is_no_interval_between_heartbeats(cooperative):
    """Members send heartbeats before it, and again until they have their assignment."""
    g = cooperative
    g.beats(3)
    new = g.join("", metadata=holding(), client_id="c", **g.how)
    g.rejoin(g.b, 1)
    for _ in range(4):
        g.advance(INTERVAL_MS)
        g.beat(g.a, 1)
    g.rejoin(g.a, 0)
    g.advance(INTERVAL_MS)
    assert g.beat(g.b, 2) == "NONE"
    g.c_id = new.response.member_id
    g.share(a=parts(0), b=parts(1), c_id=parts())
    heard = g.now
    while g.state == "Stable":
        g.advance(INTERVAL_MS)
        g.beat(g.a, 2), g.beat(g.c_id, 2)
    g.rejoin(g.a, 0)
    g.join(g.c_id, metadata=holding(), client_id="c", **g.how)
    g.share(a=parts(0, 1), c_id=parts())
    (move,) = [move for move in g.newest().moves if move.has_moved]
    assert (move.stopped_earliest_ms, move.stopped_latest_ms) == (heard, heard + INTERVAL_MS)


# --- Gone --------------------------------------------------------------------------------------


def test_one_that_leaves_worked_until_then(eager):
    eager.beats(2)
    eager.advance(300)
    left = eager.now
    eager.leave(eager.b)
    eager.advance(40)
    eager.rejoin(eager.a)
    eager.advance(20)
    move = taken_over(eager)
    assert (move.stopped_earliest_ms, move.stopped_latest_ms) == (left, left)
    assert (span(move), move.known_by) == ((60, 60), "left")


def test_one_that_commits_its_partitions_one_after_the_other_may_have_ended_them_so(eager):
    eager.rejoin(eager.a), eager.rejoin(eager.b)
    eager.share(a=parts(0), b=parts(1, 2))
    eager.beats(2)
    eager.commit({("t", 1): 5, ("t", 2): 5}, member_id=eager.b, generation=2)
    eager.advance(1_000)
    eager.commit({("t", 1): 6}, member_id=eager.b, generation=2)
    drained = eager.now
    eager.advance(3_000)
    eager.commit({("t", 2): 6}, member_id=eager.b, generation=2)
    eager.leave(eager.b)
    left = eager.now
    eager.rejoin(eager.a)
    eager.share(a=parts(0, 1, 2))
    first, second = [move for move in eager.newest().moves if move.has_moved]
    assert (numbers(first), first.stopped_earliest_ms) == ([1], drained)
    assert (numbers(second), second.stopped_earliest_ms) == ([2], left)
    assert first.stopped_latest_ms == second.stopped_latest_ms == left


@pytest.mark.parametrize(
    "reason", ["no progress: no poll for 5000 ms", "consumer poll timeout has expired."]
)
def test_one_that_leaves_because_it_does_not_poll_worked_until_its_last_commit(eager, reason):
    eager.beats(2)
    eager.commit({("t", 1): 5}, member_id=eager.b, generation=1)
    committed = eager.now
    eager.beats(3)
    eager.send(
        pb.LeaveGroupRequest(group_id=GROUP, members=[{"member_id": eager.b, "reason": reason}])
    )
    left = eager.now
    eager.rejoin(eager.a)
    move = taken_over(eager)
    assert (move.stopped_earliest_ms, move.stopped_latest_ms) == (committed, left)
    assert move.known_by == "gave_up"
    text = " ".join(eager.newest().explanation)
    assert "b gave up by itself at" in text
    assert printable(reason) in text


def test_a_question_about_the_journal_waits_for_what_is_on_its_way_and_no_longer(eager):
    eager.rejoin(eager.a), eager.rejoin(eager.b)
    eager.sync(eager.b, 2)
    eager.c.hold_appends()
    eager.sync(eager.a, 2, {eager.a: parts(0), eager.b: parts(1)})
    eager.c.release_appends(hold_on=True)  # The assignment is durable, its entry is not.
    assert eager.state == "Stable"
    asked = eager.send(admin.ListRebalancesRequest(group_id=GROUP))
    assert not asked.done
    eager.advance(1_999)
    assert not asked.done
    eager.advance(1)
    assert [rebalance.generation_after for rebalance in asked.response.rebalances] == [1]
    eager.c.release_appends()
    assert eager.newest().generation_after == 2


def test_a_stable_group_waits_for_a_member_whose_heartbeat_is_late(eager):
    heard = eager.beats(3)
    eager.advance(INTERVAL_MS)
    eager.beat(eager.a, 1)
    eager.advance(INTERVAL_MS // 4)
    assert not eager.send(admin.DescribePhaseRequest(group_id=GROUP)).response.awaited
    eager.advance(1)
    phase = eager.send(admin.DescribePhaseRequest(group_id=GROUP)).response
    (awaited,) = phase.awaited
    assert (awaited.member_id, awaited.last_seen_ms) == (eager.b, heard)
    assert (phase.since_ms, phase.deadline_ms) == (heard, heard + SESSION_MS)


def test_one_that_commits_all_at_once_works_until_it_leaves(eager):
    eager.rejoin(eager.a), eager.rejoin(eager.b)
    eager.share(a=parts(0), b=parts(1, 2))
    eager.beats(2)
    eager.commit({("t", 1): 5, ("t", 2): 5}, member_id=eager.b, generation=2)
    eager.advance(1_000)
    eager.leave(eager.b)
    eager.rejoin(eager.a)
    eager.share(a=parts(0, 1, 2))
    (move,) = [move for move in eager.newest().moves if move.has_moved]
    assert move.stopped_earliest_ms == move.stopped_latest_ms == eager.now


def test_a_partition_without_rows_for_long_is_not_said_to_have_stood_idle(eager):
    eager.rejoin(eager.a), eager.rejoin(eager.b)
    eager.share(a=parts(0), b=parts(1, 2))
    eager.advance(10)
    eager.commit({("t", 1): 5}, member_id=eager.b, generation=2)
    eager.beats(31)
    eager.commit({("t", 2): 5}, member_id=eager.b, generation=2)
    eager.leave(eager.b)
    eager.rejoin(eager.a)
    eager.share(a=parts(0, 1, 2))
    (move,) = [move for move in eager.newest().moves if move.has_moved]
    assert (numbers(move), span(move)) == ([1, 2], (0, 0))


def test_one_that_does_not_join_in_time_works_until_it_hears_of_that(eager):
    eager.beats(2)
    new = eager.join("", metadata=holding(), client_id="c", **eager.how)
    eager.rejoin(eager.a)
    began = eager.now
    eager.advance(INTERVAL_MS)
    assert eager.beat(eager.b, 1) == "REBALANCE_IN_PROGRESS"
    heard_ms = eager.now
    while not new.done:
        eager.advance(INTERVAL_MS)
        eager.beat(eager.b, 1)
    assert eager.now >= began + 60_000
    removed = began + 60_000
    eager.c_id = new.response.member_id
    eager.share(a=parts(0), c_id=parts(1))
    (move,) = [move for move in eager.newest().moves if move.has_moved]
    assert move.known_by == "removed"
    assert move.stopped_earliest_ms == heard_ms
    assert removed <= move.stopped_latest_ms <= removed + INTERVAL_MS
    assert eager.newest().removed[0].code == "join_timed_out"


def test_one_that_died_before_it_could_join_stopped_before_its_next_heartbeat(eager):
    """The rebalance times out before the session does."""
    eager.how |= {"rt": 3_000}
    eager.rejoin(eager.a)
    eager.rejoin(eager.b)
    eager.share(a=parts(0), b=parts(1))
    heard = eager.beats(3)
    eager.rejoin(eager.a)
    eager.advance(4_000)
    assert eager.state == "CompletingRebalance"
    move = taken_over(eager)
    assert (move.stopped_earliest_ms, move.stopped_latest_ms) == (heard, heard + INTERVAL_MS)
    assert move.known_by == "last_seen"


def test_one_that_an_operator_removes_works_until_its_next_heartbeat():
    g = Group()
    g.beats(2)
    b = g.join("", instance="fixed", metadata=holding(), client_id="b", **g.how)
    g.rejoin(g.a), g.rejoin(g.b)
    g.b, gone = b.response.member_id, g.b
    g.sync(gone, g.generation)
    g.share(a=parts(0), b=parts(1))
    for _ in range(2):
        g.advance(INTERVAL_MS)
        g.beat(g.a, g.generation), g.beat(gone, g.generation)
        g.beat(g.b, g.generation, instance="fixed")
    heard = g.now
    g.advance(500)
    removed = g.now
    g.leave(("", "fixed"))
    g.rejoin(g.a), g.rejoin(gone)
    g.sync(gone, g.generation)
    move = taken_over(g)
    assert (move.stopped_earliest_ms, move.stopped_latest_ms) == (removed, heard + INTERVAL_MS)
    assert move.known_by == "removed"
    assert g.newest().removed[0].code == "admin"


# --- Eager rebalances --------------------------------------------------------------------------


def kept(g: Group, member_id: str) -> admin.PartitionMove:
    (move,) = [m for m in g.newest().moves if m.to_member_id == member_id and not m.has_moved]
    return move


def test_an_eager_member_stops_between_hearing_of_a_rebalance_and_joining(eager):
    eager.beats(2)
    eager.rejoin(eager.a)
    joined = eager.now
    eager.advance(INTERVAL_MS)
    assert eager.beat(eager.b, 1) == "REBALANCE_IN_PROGRESS"
    heard_ms = eager.now
    eager.advance(3_000)
    eager.beat(eager.b, 1)
    eager.rejoin(eager.b)
    eager.advance(10)
    eager.share(a=parts(0), b=parts(1))
    slow = kept(eager, eager.b)
    assert (slow.stopped_earliest_ms, slow.stopped_latest_ms) == (heard_ms, heard_ms + 3_000)
    assert (span(slow), slow.known_by) == ((10, 3_010), "rejoined")
    quick = kept(eager, eager.a)
    assert quick.stopped_latest_ms == joined
    assert quick.unowned_ms_min == INTERVAL_MS + 3_010


def test_a_commit_shows_that_the_partition_was_still_worked_on(eager):
    eager.beats(2)
    eager.rejoin(eager.a)
    eager.beat(eager.b, 1)
    eager.advance(2_500)
    eager.commit({("t", 1): 9}, member_id=eager.b, generation=1)
    committed = eager.now
    eager.advance(500)
    eager.rejoin(eager.b)
    eager.share(a=parts(0), b=parts(1))
    move = kept(eager, eager.b)
    assert (move.stopped_earliest_ms, move.stopped_latest_ms) == (committed, committed + 500)


def test_a_member_that_has_not_fetched_its_assignment_is_named(eager):
    eager.beats(2)
    eager.leave(eager.b)
    new = eager.join("", metadata=holding(), client_id="c", **eager.how)
    eager.rejoin(eager.a)
    eager.sync(eager.a, eager.generation, {eager.a: parts(0), new.response.member_id: parts(1)})
    (move,) = [move for move in eager.newest().moves if move.has_moved]
    assert not move.is_fetched
    assert any("c had not fetched its assignment yet" in s for s in eager.newest().explanation)


# --- Cooperative rebalances --------------------------------------------------------------------


def test_a_cooperative_member_stops_between_the_assignment_and_its_join_without_it(cooperative):
    g = cooperative
    g.beats(2)
    new = g.join("", metadata=holding(), client_id="c", **g.how)
    g.rejoin(g.a, 0), g.rejoin(g.b, 1)
    g.c_id = new.response.member_id
    g.share(a=parts(0), b=parts(), c_id=parts())
    first, taken_at = g.newest(), g.now
    assert (first.cooperative_round, first.partitions_taken_away) == (1, 1)
    assert (first.unowned_partitions, list(first.moves)) == (0, [])
    assert any("It took 1 partition away; round 2 hands out" in s for s in first.explanation)
    g.advance(1_200)
    g.rejoin(g.b)
    given_back = g.now
    g.advance(300)
    g.rejoin(g.a, 0)
    g.join(g.c_id, metadata=holding(), client_id="c", **g.how)
    g.advance(5)
    g.share(a=parts(0), b=parts(), c_id=parts(1))
    second = g.newest()
    (move,) = second.moves
    assert (move.stopped_earliest_ms, move.stopped_latest_ms) == (taken_at, given_back)
    assert (span(move), move.known_by) == ((305, 1_505), "taken_away")
    assert (second.cooperative_round, second.partitions_moved) == (2, 1)
    assert second.explanation[1].startswith("It is round 2 of a cooperative rebalance: b (127")


def test_a_member_that_gives_back_part_goes_on_with_the_rest(cooperative):
    g = cooperative
    g.rejoin(g.a, 0), g.rejoin(g.b, 1)
    g.share(a=parts(0), b=parts(1, 2))
    g.beats(2)
    g.advance(100)
    g.commit({("t", 1): 1, ("t", 2): 1}, member_id=g.b, generation=2)
    g.advance(50)
    g.rejoin(g.b, 2)
    stopped = g.now
    g.advance(400)
    g.rejoin(g.a, 0)
    g.share(a=parts(0, 1), b=parts(2))
    (move,) = g.newest().moves
    assert (numbers(move), span(move)) == ([1], (400, 450))  # It was not told to.
    assert (move.stopped_latest_ms, move.has_moved, move.known_by) == (stopped, True, "gave_up")


def test_a_cooperative_member_that_works_on_is_not_said_to_stand_idle(cooperative):
    cooperative.beats(1)
    cooperative.rejoin(cooperative.a, 0)
    cooperative.advance(5_000)
    cooperative.beat(cooperative.b, 1)
    cooperative.rejoin(cooperative.b, 1)
    cooperative.share(a=parts(0), b=parts(1))
    assert (cooperative.newest().unowned_partitions, list(cooperative.newest().moves)) == (0, [])


def test_one_that_dies_before_it_gives_back_what_was_taken_away(cooperative):
    g = cooperative
    g.beats(2)
    g.rejoin(g.a, 0), g.rejoin(g.b, 1)
    g.share(a=parts(0), b=parts())
    heard = g.beats(2)
    until_b_expires(g, heard)
    move = taken_over(g)
    assert (move.stopped_earliest_ms, move.stopped_latest_ms) == (heard, heard + INTERVAL_MS)
    assert g.newest().cooperative_round == 2


def test_rounds_end_with_the_one_that_takes_nothing_away(cooperative):
    """Partition 1 is read by nobody any more, so that it never goes to anybody."""
    g = cooperative
    g.rejoin(g.a, 0), g.rejoin(g.b, 1)
    g.share(a=parts(0), b=parts())
    rounds = [g.newest().cooperative_round]
    for _ in range(3):
        g.rejoin(g.a, 0), g.rejoin(g.b)
        g.share(a=parts(0), b=parts())
        rounds.append(g.newest().cooperative_round)
    assert rounds == [1, 2, 0, 0]


def test_one_that_still_claims_what_was_taken_away_is_not_said_to_have_given_it_back(cooperative):
    g = cooperative
    g.beats(2)
    g.rejoin(g.a, 0), g.rejoin(g.b, 1)
    g.share(a=parts(0), b=parts())
    g.advance(500)
    g.rejoin(g.a, 0), g.rejoin(g.b, 1)
    g.share(a=parts(0, 1), b=parts())
    (move,) = g.newest().moves
    assert (span(move), move.known_by, move.stopped_latest_ms) == ((0, 500), "taken_away", -1)
    assert "b had not given back yet what was taken at 00:00:04.100 UTC." in g.newest().explanation


def test_the_journal_survives_with_all_of_it(eager):
    heard = eager.beats(3)
    until_b_expires(eager, heard)
    taken_over(eager)
    before = eager.newest()
    eager.restart()
    assert eager.newest() == before


def test_of_partitions_that_nobody_gets_the_latest_are_remembered(cooperative, monkeypatch):
    """An assignor may hand out other partitions each time."""
    monkeypatch.setattr(last_work, "OWNED_MAX", 3)
    g = cooperative
    for number in range(1, 8):
        g.rejoin(g.a, 0), g.rejoin(g.b, number)
        g.share(a=parts(0), b=parts(number + 1))
    assert list(g.group().account.idle_spans.of) == [("t", 5), ("t", 6), ("t", 7)]


# --- Much of it --------------------------------------------------------------------------------


def test_a_large_group_makes_a_small_record():
    """The assignment of three thousand partitions is interleaved, and every member stops."""
    g = ClassicScenario(group_rebalance_journal=True, group_max_size=1_000)
    how = {"srt": 6_000, "rt": 60_000}
    calls = [g.join("", metadata=holding(), **how) for _ in range(60)]
    g.advance(1_000)
    ids = [call.response.member_id for call in calls]
    shares = {m: parts(*range(n, 3_000, 60)) for n, m in enumerate(ids)}
    for _ in range(2):
        for member_id in ids[1:]:
            g.sync(member_id, g.generation)
        g.sync(ids[0], g.generation, shares)
        for number, member_id in enumerate(ids):
            g.advance(number % 7)
            g.join(member_id, metadata=holding(), **how)
        shares = dict(zip(ids, [*list(shares.values())[1:], shares[ids[0]]], strict=True))
    newest = g.send(admin.ListRebalancesRequest(group_id=GROUP)).response.rebalances[0]
    assert newest.partitions_moved == newest.unowned_partitions == 3_000
    assert len(newest.moves) == 32
    assert newest.partitions_left_out == 3_000 - 32 * 50
    assert {(move.partition_count, len(move.partitions)) for move in newest.moves} == {(50, 32)}
    assert len(newest.SerializeToString()) < 40_000


def test_sixty_leavers_are_one_line(eager):
    many = [eager.join("", metadata=holding(), client_id="w", **eager.how) for _ in range(60)]
    eager.rejoin(eager.a), eager.rejoin(eager.b)
    ids = [call.response.member_id for call in many]
    for member_id in (*ids, eager.b):
        eager.sync(member_id, eager.generation)
    eager.sync(eager.a, eager.generation, {eager.a: parts(0, 1)})
    leaving = [{"member_id": member_id, "reason": "scaled down"} for member_id in ids]
    eager.send(pb.LeaveGroupRequest(group_id=GROUP, members=leaving))
    eager.rejoin(eager.a), eager.rejoin(eager.b)
    eager.share(a=parts(0, 1), b=parts())
    newest = eager.newest()
    assert newest.removed_count == 60
    lines = [s for s in newest.explanation if "left" in s]
    assert len(lines) == 2, "the cause, and all the others"
    assert lines[1] == "59 × w (127.0.0.1) left and said: scaled down."


def test_an_advice_is_given_once_until_something_changes(eager):
    def advice_of_an_expiry() -> list[str]:
        b = eager.join("", metadata=holding(), client_id="b", **eager.how)
        eager.rejoin(eager.a)
        eager.b = b.response.member_id
        eager.share(a=parts(0), b=parts(1))
        until_b_expires(eager, eager.now)
        eager.share(a=parts(0, 1))
        newest = eager.newest()
        assert [a.text for a in newest.advice] == [
            s for s in newest.explanation if s.startswith("Advice")
        ]
        return [advice.code for advice in newest.advice]

    until_b_expires(eager, eager.now)
    eager.share(a=parts(0, 1))
    (first,) = eager.newest().advice
    assert (first.code, first.duration_ms) == ("short_session", SESSION_MS)
    assert advice_of_an_expiry() == []
    eager.how |= {"srt": 5_000}
    assert "short_session" in advice_of_an_expiry()
