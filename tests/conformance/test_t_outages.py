"""Beyond Kafka: outages after which all members of a Stable group go on, in the journal."""

from __future__ import annotations

import pytest

from coordinator.printable import printable
from coordinator.v1 import admin_pb2 as admin
from tests.conformance.kit import GROUP
from tests.conformance.test_r_last_work import Group, numbers, span

OUTAGE_MS = 5_500
"""Less than the members' session."""


@pytest.fixture
def g() -> Group:
    """Each member has committed its partition, the last of them just now."""
    group = Group()
    group.beats(2)
    commits(group, group.a, 0)
    group.advance(300)
    commits(group, group.b, 1)
    return group


def commits(g: Group, member_id: str, partition: int) -> None:
    codes = g.commit_codes({("t", partition): 5}, member_id=member_id, generation=g.generation)
    assert codes == ["NONE"]


def journal(g: Group) -> list[admin.Rebalance]:
    return list(g.send(admin.ListRebalancesRequest(group_id=GROUP)).response.rebalances)


def is_away(g: Group, for_ms: int = OUTAGE_MS) -> None:
    g.advance(for_ms)
    g.restart()


def test_an_outage_is_told_when_all_members_are_heard_again(g):
    last_ms = g.now
    is_away(g)
    taken_over_ms = g.now
    g.advance(200)
    g.beat(g.a, 1)
    assert len(journal(g)) == 1
    g.advance(300)
    assert g.c.shard.beat(GROUP, g.b, None, 1, g.now) is False, "it is more than a renewal"
    g.beat(g.b, 1)
    told, first = journal(g)
    assert (told.cause_code, told.outcome) == ("coordinator_returned", "completed")
    assert (told.generation_before, told.generation_after) == (1, 1)
    assert first.generation_after == 1
    assert (told.member_id, told.partitions_moved, told.unowned_partitions) == ("", 0, 2)
    assert told.ended_at_ms == g.now
    of_b, of_a = sorted(told.moves, key=numbers, reverse=True)
    assert (numbers(of_a), numbers(of_b)) == ([0], [1])
    assert (of_a.from_member_id, of_a.to_member_id, of_a.has_moved) == (g.a, g.a, False)
    # They may have worked on without a commit, and cannot have waited for longer.
    assert (span(of_a), span(of_b)) == ((0, g.now - last_ms + 300), (0, g.now - last_ms))
    assert of_a.known_by == "no_coordinator"
    assert not told.advice
    words = " ".join(map(printable, told.explanation))
    assert "the coordinator returned, without a rebalance, 2 members." in words
    assert "The group had no coordinator before, for up to 5.5 s" in words
    assert "2 partitions were not worked on" in words
    assert "6.3 s" in words
    assert taken_over_ms - last_ms == OUTAGE_MS
    for _ in range(2):
        g.advance(2_000)
        assert g.c.shard.beat(GROUP, g.a, None, 1, g.now)
        assert g.c.shard.beat(GROUP, g.b, None, 1, g.now)
    assert len(journal(g)) == 2


def test_a_short_absence_is_no_outage(g):
    is_away(g, 4_000)
    g.beats(2)
    assert len(journal(g)) == 1


def test_a_group_in_which_nobody_commits_is_not_told_of_outages():
    g = Group()
    g.beats(2)
    is_away(g)
    g.beats(2)
    assert len(journal(g)) == 1


def test_who_was_quiet_before_it_has_not_waited(g):
    for _ in range(32):
        g.beats(1)
        commits(g, g.b, 1)
    is_away(g)
    g.beats(1)
    told = journal(g)[0]
    assert told.cause_code == "coordinator_returned"
    assert [numbers(move) for move in told.moves] == [[1]]


def test_a_commit_is_a_sign_of_its_member_and_comes_after_the_outage(g):
    last_ms = g.now
    is_away(g)
    commits(g, g.b, 1)
    g.advance(100)
    commits(g, g.a, 0)
    assert journal(g)[0].unowned_ms_max == g.now - last_ms + 300


def test_a_rebalance_that_begins_before_all_are_heard_tells_it(g):
    is_away(g)
    g.beat(g.a, 1)
    g.rejoin(g.b)
    g.rejoin(g.a)
    g.share(a=b"", b=b"")
    assert [told.cause_code for told in journal(g)][1:] == ["member_joined"]
    g.beats(2)
    assert len(journal(g)) == 2


def test_an_outage_that_was_told_is_no_reason_for_what_comes_later(g):
    is_away(g)
    g.beats(1)
    g.leave(g.b)
    g.rejoin(g.a)
    g.share(a=b"")
    newest = journal(g)[0]
    assert newest.cause_code == "member_left"
    assert not any("had no coordinator" in sentence for sentence in newest.explanation)
