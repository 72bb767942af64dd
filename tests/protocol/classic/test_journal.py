"""Beyond Kafka: the rebalance journal. Who caused it, who was slow, what it cost."""

from __future__ import annotations

import pytest

from coordinator.assignors import TopicPartition
from coordinator.assignors.consumer_protocol import Assignment, encode_assignment
from coordinator.v1 import admin_pb2 as admin
from coordinator.v1 import group_pb2 as pb
from tests.kit.classic_scenario import GROUP, ClassicScenario, code


@pytest.fixture
def s() -> ClassicScenario:
    return ClassicScenario(group_rebalance_journal=True)


def parts(*numbers: int) -> bytes:
    return encode_assignment(Assignment(tuple(TopicPartition("t", n) for n in numbers)))


def journal(s: ClassicScenario, limit: int = 0, group: str = GROUP) -> list[admin.Rebalance]:
    """Newest first."""
    response = s.send(admin.ListRebalancesRequest(group_id=group, limit=limit)).response
    assert code(response) == "NONE"
    return list(response.rebalances)


def phase(s: ClassicScenario) -> admin.DescribePhaseResponse:
    return s.send(admin.DescribePhaseRequest(group_id=GROUP)).response


def test_the_first_members_of_a_group(s):
    a = s.f1(client_id="etl")
    (first,) = journal(s)
    assert (first.cause, first.outcome, first.was_initial) == ("member joined", "completed", True)
    assert (first.generation_before, first.generation_after, first.members) == (0, 1, 1)
    assert (first.member_id, first.client_id, first.client_host) == (a, "etl", "/127.0.0.1")
    assert (first.join_phase_ms, first.sync_phase_ms, first.durable_phase_ms) == (50, 0, 0)
    assert first.leader == a
    assert first.protocol == "range"


def test_phases_and_who_was_last_are_told(s):
    a = s.f1(client_id="one")
    began = s.c.now_ms
    call = s.join(client_id="two")
    s.advance(400)
    s.join(a, client_id="one")
    b = call.response.member_id
    s.advance(30)
    s.sync(b, 2)
    s.advance(20)
    s.c.hold_appends()
    s.sync(a, 2, {a: b"a0", b: b"b0"})
    s.advance(5)
    s.c.release_appends()
    newest = journal(s)[0]
    assert (newest.cause, newest.client_id) == ("member joined", "two")
    assert newest.started_at_ms == began
    assert (newest.join_phase_ms, newest.sync_phase_ms, newest.durable_phase_ms) == (400, 50, 5)
    assert [(m.client_id, m.joined_at_ms - began, m.synced_at_ms - began, m.is_new)
            for m in newest.participants] == [
        ("two", 0, 430, True), ("one", 400, 450, False),
    ]  # fmt: skip
    text = " ".join(newest.explanation)
    assert "because two (127.0.0.1) joined." in text
    assert "one (127.0.0.1) was last, 400 ms after the one before." in text
    assert "from the leader, one (127.0.0.1), after 50 ms and was durable 5 ms later." in text


def test_whose_session_expired_and_who_was_dropped(s):
    a, b = s.f2(client_id="worker")
    s.advance(400)
    assert s.beat(a, 2) == "NONE"
    s.advance(150)
    s.join(a)
    newest = [r for r in journal(s) if r.cause == "session expired"]
    assert newest == []  # It runs on until it is durable.
    s.sync(a, 3, {a: b"a0"})
    newest = journal(s)[0]
    assert (newest.cause, newest.member_id) == ("session expired", b)
    assert [(r.member_id, r.cause) for r in newest.removed] == [(b, "session expired")]
    assert newest.members == 1
    assert "Advice: sessions last 500 ms here" in newest.explanation[-1]


def test_one_that_never_rejoined_is_named(s):
    a, b = s.f2()
    c = s.join()
    s.advance(250)
    s.beat(b, 2)
    s.join(a)
    s.advance(250)
    assert c.response.generation_id == 3
    s.sync(a, 3, {a: b""})
    s.sync(c.response.member_id, 3)
    assert [(r.member_id, r.cause) for r in journal(s)[0].removed] == [
        (b, "did not re-join in time")
    ]


def test_a_rebalance_that_the_next_one_interrupts(s):
    a, b = s.f2()
    s.join()
    s.join(a), s.join(b)
    assert s.state == "CompletingRebalance"
    s.leave(b)
    newest = journal(s)[0]
    assert (newest.cause, newest.outcome) == ("member joined", "interrupted")
    assert (newest.generation_after, newest.sync_phase_ms, newest.durable_phase_ms) == (3, -1, -1)


def test_reasons_and_operators(s):
    a = s.f1(instance="box-1")
    s.leave(("", "box-1"))
    newest = journal(s)[0]
    assert (newest.cause, newest.member_id, newest.members) == ("removed by an operator", a, 0)


def test_members_that_an_operator_removed(s):
    a, b = s.f2(client_id="etl")
    c_call = s.join()
    s.join(a), s.join(b)
    c = c_call.response.member_id
    s.sync(a, 3, {}), s.sync(b, 3), s.sync(c, 3)
    members = [{"member_id": b}, {"member_id": c}]
    request = admin.RemoveMembersRequest(group_id=GROUP, members=members, reason="it hangs")
    s.send(request)
    s.join(a)
    s.sync(a, 4, {})
    newest = journal(s)[0]
    assert (newest.cause, newest.member_id) == ("removed by an operator", b)
    assert newest.reason == "it hangs"
    assert {(r.member_id, r.cause) for r in newest.removed} == {
        (b, "by an operator"),
        (c, "by an operator"),
    }
    assert "an operator removed etl" in newest.explanation[1]
    assert "said: it hangs" in newest.explanation[1]


def test_partitions_that_moved_and_how_long_nobody_had_them(s):
    call = s.join()
    s.advance(50)
    a = call.response.member_id
    s.sync(a, 1, {a: parts(0, 1, 2)})
    joining = s.join()
    s.advance(100)
    s.join(a)  # An eager member gives everything up here.
    b = joining.response.member_id
    s.advance(40)
    s.sync(a, 2, {a: parts(0, 1), b: parts(2)})
    s.sync(b, 2)
    newest = journal(s)[0]
    assert newest.partitions_moved == 1
    assert (newest.unowned_partitions, newest.unowned_ms_max, newest.unowned_ms_total) == (
        3,
        40,
        120,
    )
    s.leave(b)
    s.advance(60)
    s.join(a)
    s.sync(a, 3, {a: parts(0, 1, 2)})
    newest = journal(s)[0]
    assert (newest.partitions_moved, newest.unowned_partitions) == (1, 3)
    assert (newest.unowned_ms_max, newest.unowned_ms_total) == (60, 60)


def test_cooperative_members_keep_what_they_have(s):
    how = {"protocols": ("cooperative-sticky",)}
    call = s.join(**how)
    s.advance(50)
    a = call.response.member_id
    s.sync(a, 1, {a: parts(0, 1)})
    joining = s.join(**how)
    s.advance(100)
    s.join(a, **how)
    b = joining.response.member_id
    s.sync(a, 2, {a: parts(0), b: parts()})  # Partition 1 is given up first,
    s.sync(b, 2)
    assert journal(s)[0].unowned_partitions == 0
    s.advance(70)
    s.join(a, **how, metadata=b"again")
    s.join(b, **how)
    s.sync(a, 3, {a: parts(0), b: parts(1)})  # and then handed out.
    newest = journal(s)[0]
    assert (newest.unowned_partitions, newest.unowned_ms_max) == (1, 70)
    assert newest.partitions_moved == 1, "it was taken away in the rebalance before"


def test_who_joined_and_left_while_others_joined_is_told_with_reasons(s):
    a, b = s.f2()
    s.join(a, metadata=b"other")
    joining = s.join(client_id="new")
    leaving = {"member_id": b, "reason": "stopped by SIGTERM"}
    s.send(pb.LeaveGroupRequest(group_id=GROUP, members=[leaving]))
    assert joining.done
    new = joining.response.member_id
    s.sync(a, 3, {a: parts(0), new: parts(1)})
    newest = journal(s)[0]
    assert [gone.cause for gone in newest.removed] == ["left and said: stopped by SIGTERM"]
    text = " ".join(newest.explanation)
    assert "left and said: stopped by SIGTERM. new (127.0.0.1) joined." in text
    assert "was removed" not in text


def test_the_journal_is_bounded_and_survives_a_restart(s):
    a = s.f1()
    for generation in range(2, 30):
        s.join(a, metadata=f"{generation}".encode())
        s.sync(a, generation, {a: b"x"})
    before = journal(s)
    assert [r.generation_after for r in before] == list(range(29, 9, -1))
    assert journal(s, limit=2) == before[:2]
    s.restart()
    assert journal(s) == before


def test_a_group_without_a_journal(s):
    response = s.send(admin.ListRebalancesRequest(group_id="nobody")).response
    assert code(response) == "GROUP_ID_NOT_FOUND"
    quiet = ClassicScenario(group_rebalance_journal=False)
    quiet.f1()
    assert journal(quiet) == []


def test_whom_a_phase_waits_for(s):
    a, b = s.f2()
    assert (phase(s).group_state, list(phase(s).awaited)) == ("Stable", [])
    began = s.c.now_ms
    s.join(two_phase=True)
    s.join(b, metadata=b"new")
    s.advance(20)
    waiting = phase(s)
    assert (waiting.group_state, waiting.since_ms) == ("PreparingRebalance", began)
    assert waiting.deadline_ms == began + 500
    assert waiting.awaited[0].member_id == a
    assert len(waiting.awaited) == 2  # And the id that was handed out.
    assert waiting.awaited[0].is_leader
