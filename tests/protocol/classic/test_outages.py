"""Beyond Kafka: outages and silences after which all members of a Stable group go on, in the
journal."""

from __future__ import annotations

import pytest

from coordinator.printable import printable
from coordinator.v1 import admin_pb2 as admin
from coordinator.v1 import group_pb2 as pb
from tests.kit.classic_scenario import GROUP, partition_codes
from tests.protocol.classic.test_last_work import Group, holding, numbers, parts, span

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


def commits(g: Group, member_id: str, partition: int, waited_ms: int = 0) -> None:
    each = {"partition_index": partition, "committed_offset": 5, "waited_ms": waited_ms}
    topics = [{"name": "t", "partitions": [each]}]
    member = {"member_id": member_id, "generation_id": g.generation}
    sent = g.send(pb.OffsetCommitRequest(group_id=GROUP, topics=topics, **member))
    assert partition_codes(sent.response) == ["NONE"]


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
    heard_ms = g.now
    g.advance(1_700)
    for member_id in (g.a, g.b):
        assert len(journal(g)) == 1, "what waits has two heartbeats of time to be committed"
        assert g.c.shard.beat(GROUP, member_id, None, 1, g.now) is False
        g.beat(member_id, 1)
    record, first = journal(g)
    assert (record.cause_code, record.outcome) == ("coordinator_returned", "completed")
    assert (record.generation_before, record.generation_after) == (1, 1)
    assert first.generation_after == 1
    assert (record.member_id, record.partitions_moved, record.unowned_partitions) == ("", 0, 2)
    assert record.ended_at_ms == g.now
    of_b, of_a = sorted(record.moves, key=numbers, reverse=True)
    assert (numbers(of_a), numbers(of_b)) == ([0], [1])
    assert (of_a.from_member_id, of_a.to_member_id, of_a.has_moved) == (g.a, g.a, False)
    # They may have worked on without a commit, and cannot have waited for longer.
    assert (span(of_a), span(of_b)) == ((0, heard_ms - last_ms), (0, heard_ms - last_ms))
    assert of_a.known_by == "no_coordinator"
    assert not record.advice
    words = " ".join(map(printable, record.explanation))
    assert "the coordinator returned, without a rebalance, 2 members." in words
    assert "The group had no coordinator before, for up to 5.5 s" in words
    assert "2 partitions were not worked on" in words
    assert "6.0 s" in words
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
    g.beats(2)
    record = journal(g)[0]
    assert record.cause_code == "coordinator_returned"
    assert [numbers(move) for move in record.moves] == [[1]]


def test_a_commit_is_a_sign_of_its_member_and_comes_after_the_outage(g):
    last_ms = g.now
    is_away(g)
    commits(g, g.b, 1)
    g.advance(100)
    commits(g, g.a, 0)
    heard_ms = g.now
    g.beats(2)
    assert journal(g)[0].unowned_ms_max == heard_ms - last_ms + 300


@pytest.mark.parametrize("is_first", [True, False])
def test_a_commit_that_had_no_answer_says_since_when_its_owner_waits(g, is_first):
    """Whether it comes before the first heartbeat after the outage or after it."""
    last_ms = g.now
    is_away(g)
    if not is_first:
        g.beats(1)
    g.advance(100)
    waited_ms = g.now - last_ms - 400
    commits(g, g.b, 1, waited_ms)
    g.advance(500)
    commits(g, g.b, 1, 10_000)
    g.beats(1 if journal(g)[1:] or not is_first else 2)
    (of_b,) = [move for move in journal(g)[0].moves if numbers(move) == [1]]
    assert (of_b.known_by, span(of_b)) == ("said_by_member", (waited_ms, waited_ms))
    assert of_b.stopped_latest_ms == last_ms + 400
    words = " ".join(map(printable, journal(g)[0].explanation))
    assert "b said after the outage that it stopped at " in words


def test_a_member_that_lost_its_session_in_an_outage_says_when_it_stopped(g):
    is_away(g)
    g.advance(300)
    topics = [{"name": "t", "partitions": [{"partition_index": 1, "stopped_ms_ago": 4_000}]}]
    stopped_ms = g.now - 4_000
    g.join(g.b, metadata=holding(), client_id="b", stopped=topics, **g.how)
    g.advance(200)
    g.rejoin(g.a)
    g.share(a=parts(0), b=parts(1))
    of_b = next(move for move in g.newest().moves if numbers(move) == [1])
    assert of_b.known_by == "said_by_member"
    assert (of_b.stopped_earliest_ms, of_b.stopped_latest_ms) == (stopped_ms, stopped_ms)


@pytest.mark.parametrize("ago_ms", [-5, 2**31 - 1])
def test_nobody_stopped_before_its_generation_or_after_now(g, ago_ms):
    is_away(g)
    topics = [{"name": "t", "partitions": [{"partition_index": 1, "stopped_ms_ago": ago_ms}]}]
    g.join(g.b, metadata=holding(), client_id="b", stopped=topics, **g.how)
    joined_ms = g.now
    g.rejoin(g.a)
    g.share(a=parts(0), b=parts(1))
    of_b = next(move for move in g.newest().moves if numbers(move) == [1])
    assert 0 <= joined_ms - of_b.stopped_latest_ms < 60_000


def test_a_rebalance_that_begins_before_all_are_heard_tells_it(g):
    is_away(g)
    g.beat(g.a, 1)
    g.rejoin(g.b)
    g.rejoin(g.a)
    g.share(a=b"", b=b"")
    assert [record.cause_code for record in journal(g)][1:] == ["member_joined"]
    g.beats(2)
    assert len(journal(g)) == 2


def test_a_rebalance_that_begins_after_all_were_heard_comes_after_it(g):
    """Members are heard once, and what they had is divided anew before they beat again."""
    is_away(g)
    g.beats(1)
    g.rejoin(g.a)
    assert [record.cause_code for record in journal(g)] == ["coordinator_returned", "member_joined"]
    g.rejoin(g.b)
    g.share(a=b"", b=b"")
    codes = [record.cause_code for record in journal(g)]
    assert codes == ["leader_rejoined", "coordinator_returned", "member_joined"]
    g.beats(3)
    assert len(journal(g)) == 3


def test_an_outage_that_was_told_is_no_reason_for_what_comes_later(g):
    is_away(g)
    g.beats(2)
    g.leave(g.b)
    g.rejoin(g.a)
    g.share(a=b"")
    newest = journal(g)[0]
    assert newest.cause_code == "member_left"
    assert not any("had no coordinator" in sentence for sentence in newest.explanation)


# --- Silences shorter than a session --------------------------------------------------------------

SILENT_MS = 5_200


def is_renewed(g: Group, member_id: str) -> bool:
    """True if the heartbeat needs no more than the fast path."""
    return g.c.shard.beat(GROUP, member_id, None, 1, g.now)


def test_a_silence_is_told_when_the_member_is_heard_again(g):
    last_ms = g.now
    g.advance(700)
    for _ in range(2):
        assert is_renewed(g, g.a)
        g.advance(1_000)
    g.advance(SILENT_MS - 2_700)
    assert is_renewed(g, g.a)
    assert not is_renewed(g, g.b)
    g.beat(g.b, 1)
    record, _ = journal(g)
    assert (record.cause_code, record.outcome) == ("member_seen_again", "completed")
    assert (record.generation_before, record.generation_after) == (1, 1)
    assert (record.member_id, record.partitions_moved, record.unowned_partitions) == (g.b, 0, 1)
    assert (record.started_at_ms, record.ended_at_ms) == (last_ms, g.now)
    (move,) = record.moves
    assert (numbers(move), move.known_by) == ([1], "silent")
    assert (move.from_member_id, move.to_member_id, move.has_moved) == (g.b, g.b, False)
    # It may have been cut off, and have worked on.
    assert span(move) == (0, SILENT_MS)
    words = " ".join(map(printable, record.explanation))
    assert (
        "b (127.0.0.1) was heard again, after it had missed heartbeats, without a rebalance"
        in words
    )
    assert "it may have worked without commits meanwhile" in words
    assert "5.2 s" in words
    g.advance(2_000)
    assert is_renewed(g, g.b)
    assert len(journal(g)) == 2


def test_a_silence_ends_with_a_commit_too(g):
    g.advance(SILENT_MS)
    commits(g, g.b, 1)
    assert journal(g)[0].unowned_ms_max == SILENT_MS
    g.beat(g.b, 1)
    assert len(journal(g)) == 2


def test_each_of_two_silent_members_is_told(g):
    g.advance(SILENT_MS)
    for member_id in (g.a, g.b):
        g.beat(member_id, 1)
    found = {record.member_id: record.unowned_ms_max for record in journal(g)[:2]}
    assert found == {g.a: SILENT_MS + 300, g.b: SILENT_MS}


def test_a_heartbeat_that_is_a_little_late_is_no_silence(g):
    g.advance(3_900)
    g.beat(g.b, 1)
    assert len(journal(g)) == 1


def test_of_a_silence_in_which_nothing_was_due_nothing_is_told():
    g = Group()
    g.beats(2)
    g.advance(SILENT_MS)
    g.beat(g.b, 1)
    assert len(journal(g)) == 1


def test_a_member_that_is_heard_during_a_rebalance_is_told_by_that(g):
    g.advance(SILENT_MS)
    g.rejoin(g.a)
    g.beat(g.b, 1)
    g.rejoin(g.b)
    g.share(a=b"", b=b"")
    assert [record.cause_code for record in journal(g)] == ["leader_rejoined", "member_joined"]


def test_of_many_that_were_silent_only_some_are_told():
    g = Group()
    new = [g.join("", metadata=holding(), client_id="c", **g.how) for _ in range(10)]
    joining = [g.rejoin(g.a), g.rejoin(g.b), *new]
    members = [one.response.member_id for one in joining]
    for member_id in members[1:]:
        g.sync(member_id, 2)
    g.sync(g.a, 2, {member_id: parts(n) for n, member_id in enumerate(members)})
    for _ in range(2):
        g.advance(2_000)
        for n, member_id in enumerate(members):
            g.beat(member_id, 2)
            g.commit_codes({("t", n): 5}, member_id=member_id, generation=2)
    g.advance(SILENT_MS)
    for member_id in members:
        g.beat(member_id, 2)
    silences = [record for record in journal(g) if record.cause_code == "member_seen_again"]
    assert len(silences) == 8
