"""Commits count for the holding that the owner knows: slow handlers, slow polls, fast heirs."""

from __future__ import annotations

import pytest

from coordinator.client import CommitFailed, StaleMember
from coordinator.client.member.calls import CommitOffsets, Join, Sync
from coordinator.client.member.classic.membership import Phase
from coordinator.client.member.ledger import MEMBERSHIP
from coordinator.client.member.part import Leaving
from coordinator.v1 import group_pb2 as pb
from tests.client.kit import Granted, Lost, Player, Revoking, World, t

ASSIGNORS = ["range", "roundrobin", "sticky", "cooperative-sticky"]
EAGER, COOPERATIVE = "range", "cooperative-sticky"


@pytest.fixture(params=ASSIGNORS)
def world(request) -> World:
    return World(request.param)


def is_refused(world: World, player: Player, offsets: dict[int, int], **more) -> bool:
    """True if nothing was sent, and nothing is stored."""
    sent, stored = len(world.commits_sent), [world.stored(n) for n in offsets]
    with pytest.raises(StaleMember):
        player.commit(offsets, **more)
    assert len(world.commits_sent) == sent, "refused before any call"
    assert [world.stored(n) for n in offsets] == stored
    return True


def kinds(events: list) -> list[str]:
    return [type(event).__name__ for event in events]


def taken_from(slow: Player, quick: Player) -> int:
    """The number of a partition that the quick one holds and the slow one held."""
    return min(p.partition for p in quick.assignment)


def commit_from_outside():
    topic = {"name": "t", "partitions": [{"partition_index": 1, "committed_offset": 0}]}
    return pb.OffsetCommitRequest(group_id="g", generation_id=-1, topics=[topic])


def play_slow_handler(world: World) -> tuple[Player, Player, int]:
    """A handler runs through two members' rebalance; the second one has committed 500 already."""
    slow = world.member()
    world.share(slow)
    world.advance(50)
    quick = world.member()
    for _ in range(800):
        world.advance(10)
        quick.poll()
    moved = taken_from(slow, quick)
    quick.commit({moved: 500})
    return slow, quick, moved


def test_a_slow_handlers_late_commit_does_not_move_its_successors_offset_back(world):
    slow, _, moved = play_slow_handler(world)
    assert is_refused(world, slow, {moved: 10})
    assert world.stored(moved) == 500


def test_what_was_not_given_back_in_time_is_heard_as_lost(world):
    slow, _, moved = play_slow_handler(world)
    events = slow.poll()
    assert "Revoking" not in kinds(events)
    assert events[0] == Lost(events[0].partitions, events[0].reason)
    assert t(moved) <= events[0].partitions
    assert "deadline" in events[0].reason
    assert is_refused(world, slow, {moved: 10})


def test_having_heard_of_the_revocation_does_not_help_once_its_deadline_has_passed(world):
    slow = world.member()
    world.share(slow)
    quick = world.member()
    while not (events := slow.poll()):
        world.advance(10)
        quick.poll()
    (revoking,) = events
    assert isinstance(revoking, Revoking)
    world.advance(revoking.deadline_ms - world.now_ms - 10)
    assert slow.commit({min(revoking.partitions).partition: 7}) == 1, "before the deadline"
    slow.paused = True  # Its clock is looked at when it commits, not when the library ticks.
    world.advance(10)
    assert is_refused(world, slow, {min(revoking.partitions).partition: 8})
    slow.paused = False
    assert kinds(slow.poll())[0] == "Lost"


def test_a_commit_in_each_phase_of_a_revocation():
    """Eager: told; given back; joined again; handed out again."""
    world = World(EAGER)
    one = world.member()
    world.share(one)
    held = one.holding(0)
    two = world.member()
    world.advance(200)
    assert one.member.phase is Phase.REVOKING
    assert one.commit({0: 1}) == 1, "not told yet"
    assert kinds(one.poll()) == ["Revoking"]
    assert one.commit({0: 2}) == 1, "told"
    assert one.poll() == [], "it has given back itself: nothing is lost"
    assert is_refused(world, one, {0: 3})
    world.share(one, two)
    assert t(0) <= one.assignment
    assert one.commit({0: 4}) == 1, "a new holding"
    assert is_refused(world, one, {0: 5}, holdings=[held])
    assert one.commit({0: 6}, holdings=[one.holding(0)]) == 1


def test_a_commit_in_each_phase_of_a_cooperative_revocation():
    """Cooperative: the same, and what stays is committed in every phase."""
    world = World(COOPERATIVE, partitions=4)
    one = world.member()
    world.share(one)
    held = {number: one.holding(number) for number in range(4)}
    two = world.member()
    world.until(lambda: one.member.phase is Phase.REVOKING)
    (revoking,) = one.machine.events
    moved = min(p.partition for p in revoking.partitions)
    stays = min({0, 1, 2, 3} - {p.partition for p in revoking.partitions})
    assert one.commit({moved: 1, stays: 1}) == 1, "not told yet"
    assert kinds(one.poll()) == ["Revoking"]
    assert one.commit({moved: 2, stays: 2}) == 1, "told"
    assert one.poll() == [], "it has given back itself: nothing is lost"
    assert is_refused(world, one, {moved: 3})
    assert is_refused(world, one, {moved: 3, stays: 3}), "both or none, as it was asked"
    one.commit({stays: 3})
    world.share(one, two)
    two.commit({moved: 500})
    assert is_refused(world, one, {moved: 4}, holdings=[held[moved]])
    one.commit({stays: 4}, holdings=[held[stays]])
    two.leave()
    world.share(one)
    assert is_refused(world, one, {moved: 5}, holdings=[held[moved]])
    assert world.stored(moved) == 500
    assert one.commit({moved: 501, stays: 5}) == 1, "a new holding"


def test_a_partition_that_went_and_came_back_between_two_polls_is_another_holding(world):
    slow, quick, moved = play_slow_handler(world)
    quick.leave()
    world.advance(8_000)
    assert slow.member.assigned == t(0, 1), "it has both again, and has not polled since"
    assert is_refused(world, slow, {moved: 10})
    held = slow.holding(moved)
    events = slow.poll()
    assert kinds(events) == ["Lost", "Granted"]
    assert t(moved) <= events[0].partitions & events[1].partitions
    assert is_refused(world, slow, {moved: 10}, holdings=[held])
    assert slow.commit({moved: 501}) == 1


def test_a_cooperative_round_that_leaves_a_partition_here_costs_no_commit():
    world = World(COOPERATIVE, partitions=4)
    one = world.member()
    world.share(one)
    held = one.holding(0)
    before = one.member.generation
    two = world.member()
    world.share(one, two)
    stays = min(p.partition for p in one.assignment)
    assert one.member.generation > before + 1
    assert one.commit({stays: 9}) == 1
    assert held.partition.partition == stays
    assert one.commit({stays: 10}, holdings=[held]) == 1
    assert world.commits_sent[-1].member.generation == one.member.generation


@pytest.mark.parametrize("has_heard", [False, True], ids=["join on the way", "syncing"])
def test_a_commit_that_meets_a_cooperative_round_waits_for_its_end(has_heard):
    """The group waits for its leader's SyncGroup when the follower commits."""
    world = World(COOPERATIVE, partitions=4)
    leader = world.member()
    world.share(leader)
    follower = world.member()
    world.share(leader, follower)
    kept = min(p.partition for p in follower.assignment)
    before = follower.member.generation
    world.member()
    leader.hold(Sync)
    if not has_heard:
        follower.hold_answers(Join)
    world.until(lambda: world.coordinator.generation("g") > before)
    world.settle()
    assert world.coordinator.state("g").value == "CompletingRebalance"
    assert follower.member.phase is (Phase.SYNCING if has_heard else Phase.JOINING)
    commit = follower.begin_commit({kept: 3})
    world.advance(500)
    assert commit.is_waiting
    leader.release()
    follower.release()
    world.settle()
    assert commit.is_done
    assert commit.error is None
    assert world.stored(kept) == 3
    generations = [sent.member.generation for sent in world.commits_sent[-2:]]
    assert generations == [before + has_heard, before + 1]


def test_a_cooperative_round_that_changes_nothing_gives_no_event():
    world = World(COOPERATIVE, partitions=1)
    one = world.member()
    world.share(one)
    generation = one.member.generation
    idle = world.member()
    world.advance(500)
    assert one.member.generation > generation
    assert one.poll() == []
    assert one.assignment == t(0)
    assert idle.poll() == [], "a member, with nothing"


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_member_that_gets_nothing_has_no_event_and_is_assigned(assignor):
    world = World(assignor, partitions=1)
    one, two = world.member(), world.member()
    heard = {one: [], two: []}
    for _ in range(60):
        world.advance(10)
        for member, events in heard.items():
            events += member.poll()
    idle = two if one.assignment else one
    assert idle.machine.state == "stable"
    assert all(event.partitions for events in heard.values() for event in events)
    assert "Granted" not in kinds(heard[idle])
    assert idle.machine.ledger.known((MEMBERSHIP,))


def test_assigned_lists_what_is_new_and_the_assignment_is_all():
    world = World(COOPERATIVE, partitions=4)
    one, two = world.member(), world.member()
    world.share(one, two)
    had = one.assignment
    two.leave()
    world.advance(500)
    (event,) = one.poll()
    assert event == Granted(t(0, 1, 2, 3) - had, one.member.generation)
    assert one.assignment == t(0, 1, 2, 3)


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_what_its_owner_was_never_told_of_is_given_back_at_once(assignor):
    """Partitions that no poll has handed out are given back without asking the owner."""
    world = World(assignor)
    asleep = world.member()
    world.advance(100)
    assert asleep.member.assigned == t(0, 1)
    assert asleep.assignment == frozenset()
    awake = world.member()
    world.advance(500)
    assert awake.member.assigned
    assert len(asleep.member.assigned) == 1
    events = asleep.poll()
    assert kinds(events) == ["Granted"]
    assert events[0].partitions == asleep.member.assigned == asleep.assignment


def test_two_partitions_of_which_one_is_held_are_refused_together(world):
    one, two = world.member(), world.member()
    world.share(one, two)
    (mine,), (theirs,) = one.assignment, two.assignment
    with pytest.raises(StaleMember, match=rf"t\[{theirs.partition}\]") as refused:
        one.commit({mine.partition: 1, theirs.partition: 1})
    assert f"t[{mine.partition}]" not in str(refused.value)
    assert world.stored(mine.partition) == -1


def test_commits_before_the_first_assignment_and_after_leaving_are_refused(world):
    world.coordinator.send(commit_from_outside())  # The group is there, and Empty.
    one = world.member()
    assert is_refused(world, one, {0: 1})
    assert is_refused(world, one, {}, manifest=b"m")
    world.advance(100)
    assert one.member.assigned == t(0, 1)
    assert is_refused(world, one, {0: 1}), "assigned, and not handed out"
    one.poll()
    assert one.commit({0: 1}) == 1
    assert one.commit({}, manifest=b"m") == 1
    one.leave()
    assert is_refused(world, one, {0: 2})
    assert is_refused(world, one, {}, manifest=b"n")
    assert kinds(one.poll()) == ["Lost", "Stopping"]
    assert is_refused(world, one, {0: 2})


@pytest.mark.parametrize("offset", [-1, -(2**63)])
def test_negative_offsets_are_refused_before_any_call(world, offset):
    one = world.member()
    world.share(one)
    with pytest.raises(CommitFailed, match=r"negative.*t\[1\]") as refused:
        one.commit({0: 5, 1: offset})
    assert refused.value.code == "INVALID_ARGUMENT"
    assert world.commits_sent == []


@pytest.mark.parametrize("more", [{}, {"atomic": True}, {"expected": {}}, {"manifest": b"m"}])
def test_every_kind_of_commit_is_refused_once_lost(world, more):
    one = world.member()
    world.share(one)
    one.paused = True
    world.advance(2_100)
    assert is_refused(world, one, {0: 1}, **more)
    assert kinds(one.poll())[0] == "Lost"
    assert is_refused(world, one, {0: 1}, **more)


def test_after_a_pause_longer_than_the_session_the_first_commit_is_refused_here(world):
    """SIGSTOP, SIGCONT, and the handler goes on: the library has not had a turn yet."""
    one = world.member()
    world.share(one)
    one.paused = True
    world.advance(1_900)
    assert one.commit({0: 1}) == 1, "the session lasts"
    world.advance(300)
    assert is_refused(world, one, {0: 2})


def test_a_pause_after_which_it_has_joined_again_before_the_handler_commits(world):
    one = world.member()
    world.share(one)
    held = one.holding(0)
    one.paused = True
    world.advance(2_500)
    one.paused = False
    world.advance(500)
    assert one.member.assigned == t(0, 1)
    assert is_refused(world, one, {0: 1})
    assert is_refused(world, one, {0: 1}, holdings=[held])
    assert kinds(one.poll()) == ["Lost", "Granted"]
    assert is_refused(world, one, {0: 1}, holdings=[held])
    assert one.commit({0: 2}) == 1


def test_a_pause_in_the_middle_of_a_revocation_loses_what_stays_too():
    """Both clocks have run out: the session's is the one that counts."""
    world = World(COOPERATIVE, partitions=4)
    one = world.member()
    world.share(one)
    world.member()
    while one.member.phase is not Phase.REVOKING:
        world.advance(10)
    one.paused = True
    world.advance(4_000)
    stays = min(p.partition for p in one.assignment)
    assert is_refused(world, one, {stays: 1})


def test_having_finished_with_one_revocation_says_nothing_of_the_next():
    """Told of the first, it polls when the second is there: that poll is not for the second."""
    world = World(EAGER)
    one = world.member()
    world.share(one)
    two = world.member()
    while not one.poll():
        world.advance(10)
        two.poll()
    for _ in range(400):  # The first one's deadline passes; it is given something again.
        world.advance(10)
        two.poll()
    assert kinds(one.poll()) == ["Lost", "Granted"]
    assert one.commit({min(one.assignment).partition: 1}) == 1
    two.leave()
    world.advance(200)
    assert one.member.phase is Phase.REVOKING
    assert kinds(one.poll()) == ["Revoking"]
    assert one.member.phase is Phase.REVOKING, "until the next poll"


def test_a_commit_on_the_way_when_its_holding_ends_is_the_servers_to_judge(world):
    one = world.member()
    world.share(one)
    one.hold_answers(CommitOffsets)
    answered, unanswered = one.begin_commit({0: 5}), one.begin_commit({1: 6})
    one.machine.close(Leaving("closed"), world.now_ms)
    one.turn()
    first, second = one.letters
    first.hand_in()
    assert answered.is_done
    assert answered.error is None
    second.fail()
    world.advance(100)
    assert isinstance(unanswered.error, StaleMember), "it is not sent a second time"
    assert len(world.commits_sent) == 2
    assert one.machine.is_closed


def test_plain_tuples_are_partitions(world):
    one = world.member()
    world.share(one)
    assert one.holding(0) == one.machine.ledger.of(("t", 0))


def test_shown_holdings_cover_every_partition_of_the_commit(world):
    one = world.member()
    world.share(one)
    assert is_refused(world, one, {0: 1, 1: 1}, holdings=[one.holding(0)])
    assert is_refused(world, one, {0: 1}, holdings=[])
    assert one.commit({0: 1, 1: 1}, holdings=[one.holding(0), one.holding(1)]) == 1


def test_a_holding_that_was_not_handed_out_cannot_be_had(world):
    one = world.member()
    with pytest.raises(StaleMember, match="not assigned"):
        one.holding(0)
    world.advance(100)
    with pytest.raises(StaleMember, match="no poll"):
        one.holding(0)


def test_one_that_stands_in_a_poll_hears_at_once_and_gives_back_with_the_next(world):
    one = world.member()
    world.share(one)
    two = world.member()
    began_ms = world.now_ms
    assert kinds(one.stand_in_poll(10_000)) == ["Revoking"]
    assert world.now_ms - began_ms <= 200, "with the heartbeat after"
    assert kinds(one.stand_in_poll(10_000))[-1:] in (["Granted"], [])
    world.share(one, two)
