"""Members come and come back: sessions, streams, what they claim, and who they say they are."""

from __future__ import annotations

import math

import pytest

from coordinator.core.sessions import restart_backoff
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.events import SessionMemberFlaps
from coordinator.core.values.policy import Policy
from coordinator.core.values.records import PartitionsGranted, PolicyStored, SessionMemberStored
from coordinator.core.values.session_messages import GoAway, GoAwayReason, Order, Standing
from coordinator.shard.inputs import AppendFailure
from tests.kit.session_scenario import (
    GROUP,
    ScenarioMember,
    SessionScenario,
    g1,
    g2,
    handing_over,
    with_policy,
)

SUPERSEDED = GoAway(GoAwayReason.SUPERSEDED)


def count(scenario: SessionScenario, kind: type) -> int:
    return sum(isinstance(record, kind) for record in scenario.records)


def granted(scenario: SessionScenario) -> int:
    return count(scenario, PartitionsGranted)


# --- Sessions ---


def test_an_admission_that_the_log_refuses_is_answered_and_leaves_no_group():
    scenario = SessionScenario()
    scenario.hold()
    a = scenario.member("w-a", {"t": 4}).attach()
    scenario.release(failing=AppendFailure.FENCED)
    assert a.reply.error is ErrorCode.NOT_COORDINATOR
    scenario = SessionScenario()
    scenario.hold()
    a = scenario.member("w-a", {"t": 4}).attach()
    scenario.release(failing=AppendFailure.TOO_LARGE)
    assert a.reply.error is not ErrorCode.NONE
    assert GROUP not in scenario.shard.machine.groups


@pytest.mark.parametrize("name", ["w-a", ""])
def test_a_process_that_asks_twice_during_its_admission_has_one_session(name):
    scenario = SessionScenario()
    scenario.member("w-first", {"t": 4}).attach(ready=False)
    scenario.hold()
    a = scenario.member(name, {"t": 4}, "i").attach()
    first = a.stream
    a.attach()
    scenario.release()
    scenario.to(200)
    assert count(scenario, SessionMemberStored) == len(scenario.group.members) == 2
    assert scenario.replies[first].session_id == a.reply.session_id
    assert len(a.active) == 4


def test_two_processes_of_one_name_during_an_admission_are_one_member_and_one_that_waits():
    scenario = SessionScenario()
    scenario.hold()
    scenario.member("w-a", {"t": 4}, "i-1").attach()
    second = scenario.member("w-a", {"t": 4}, "i-2").attach()
    scenario.release()
    assert second.reply.standing is Standing.WAITING
    assert len(scenario.group.members) == 1


def test_a_stream_that_ends_during_the_admission_leaves_a_suspect():
    scenario = SessionScenario()
    scenario.hold()
    a = scenario.member("w-a", {"t": 4}).attach()
    a.cut()
    scenario.release()
    scenario.to(200)
    member = next(iter(scenario.group.members.values()))
    assert member.is_suspect
    assert not scenario.group.held
    scenario.to(10_000)
    assert not scenario.group.members


@pytest.mark.parametrize("token", [0, 1, 99])
def test_a_claim_under_another_token_is_lost_and_granted_anew_under_a_new_one(token):
    scenario, a, b = g2()
    partition, other = a.active
    before = {held: a.orders[held].token for held in a.active}
    highest = scenario.shard.machine.numbers.last_token
    claims = ((*partition, token), (*other, before[other]))
    a.attach(held=claims)
    assert a.orders[partition].token > highest
    assert a.orders[other].token == before[other]
    assert len(b.active) == 1
    assert a.commit(5, partition, token=before[partition]) == [ErrorCode.FENCED_TOKEN]


def test_a_claim_of_a_heartbeat_under_another_token_is_granted_anew():
    scenario, a, _b = g2()
    partition, other = a.active
    before = a.orders[partition].token
    claims = ((*partition, before + 50), (*other, a.orders[other].token))
    a.beat(held=claims, applied=a.received[-1][1].version)
    assert a.orders[partition].token > before
    assert scenario.group.token(partition) == a.orders[partition].token


def test_a_claim_under_another_token_does_not_release_what_is_drained():
    scenario, a, b, partition = handing_over()
    a.attach(held=((*partition, 99),))
    assert scenario.group.holder(partition) == a.member_id
    assert a.orders[partition].order is Order.DRAIN
    assert partition not in b.active


def test_a_resume_waits_for_records_about_what_it_does_not_claim():
    scenario, a, b = g2()
    scenario.to(5_100)
    partition = a.active[0]
    token = a.orders[partition].token
    scenario.hold()
    scenario.move(partition, b)
    a.clock.stops((partition,))
    a.attach(held=[h for h in a.held if h[:2] != partition])
    assert a.reply is None
    scenario.release()
    assert a.reply.error is ErrorCode.NONE
    assert partition in b.active, "it was draining: released"
    assert b.orders[partition].token != token


def test_an_attach_that_was_overtaken_takes_nothing_from_the_newer_stream():
    scenario, a, b = g2()
    scenario.to(5_000)
    scenario.hold()
    topics = (("t", 3), ("u", 1))
    overtaken = a.attach(topics=topics).stream  # It is on record first, and answered then.
    a.attach(topics=topics)
    scenario.deaf.add(a.stream)
    partition = a.active[0]
    scenario.move(partition, b)
    scenario.release()
    scenario.to(5_200)
    assert scenario.replies[overtaken].error is ErrorCode.FENCED_INSTANCE_ID
    scenario.deaf.clear()
    a.beat()
    assert a.orders[partition].order is Order.DRAIN
    assert scenario.version_of(a) == a.received[-1][1].version


def test_an_unclaimed_partition_that_drains_counts_as_released():
    _scenario, a, b, partition = handing_over()
    a.clock.stops((partition,))
    a.attach(held=[h for h in a.held if h[:2] != partition])
    assert partition in b.active


def test_another_caller_gets_no_session_and_disturbs_nobody():
    scenario, a, _b = g2()
    lease = scenario.group.members[a.member_id].ends_at_ms
    thief = ScenarioMember(scenario, a.name, a.topics, a.incarnation)
    scenario.members.append(thief)
    thief.attach(principal="y", session_id=a.reply.session_id, stream_number=9)
    assert thief.reply.error is ErrorCode.FENCED_INSTANCE_ID
    member = scenario.group.members[a.member_id]
    assert (member.stream_id, member.ends_at_ms) == (a.stream, lease)
    assert len(a.active) == 2


def test_a_suspect_gets_nothing_and_nothing_is_taken_from_it():
    scenario, a, _b = g2()
    scenario.to(3_000)
    a.cut()
    plans = scenario.planned_at_ms
    assert scenario.state == "Stable", "no plan is due"
    c = scenario.member("w-c", {"t": 3}).attach()
    scenario.to(6_000)
    assert scenario.planned_at_ms > plans
    assert not list(scenario.group.open_handoffs())
    a.beats = True
    a.attach()
    a.releases = True
    scenario.to(8_000)
    assert len(c.active) == 1, "a plan was made without it: another one follows"


def test_a_return_that_changes_nothing_asks_for_no_plan():
    scenario, a, _ = g2()
    scenario.to(3_000)
    a.cut()
    a.beats = True
    scenario.to(4_000)
    records = len(scenario.records)
    a.attach()
    assert scenario.state == "Stable"
    assert len(scenario.records) == records


def test_a_return_with_other_topics_is_on_record_and_planned():
    scenario, a, _b = g2()
    scenario.to(3_000)
    a.topics = {"t": 3, "u": 2}
    a.attach(capacity=2.0, rack="r", revision="2", deployment="d")
    record = scenario.group.members[a.member_id].record
    assert record.topics == (("t", 3), ("u", 2))
    assert (record.rack, record.revision, record.deployment) == ("r", "2", "d")
    assert record.capacity == 2.0
    scenario.to(5_000)
    assert [partition for partition in a.active if partition[0] == "u"] == [("u", 0), ("u", 1)]


def test_a_grant_that_was_not_told_yet_is_not_granted_anew():
    scenario = SessionScenario()
    a = scenario.member("w-a", {"t": 4}).attach()
    scenario.deaf.add(a.stream)
    scenario.to(200)
    grants = granted(scenario)
    a.beat(held=(), applied=a.reply.orders.version)
    assert granted(scenario) == grants
    scenario.deaf.clear()
    a.beat()
    assert len(a.active) == 4


# --- Policy ---


def test_the_first_wishes_are_the_policy_and_later_ones_are_not():
    scenario = SessionScenario(with_policy(lease_ms=4_000))
    scenario.hold()
    a = scenario.member("w-a", {"t": 4}).attach()
    scenario.policy = with_policy(lease_ms=9_000)
    b = scenario.member("w-b", {"t": 4}).attach()
    scenario.release()
    assert a.reply.lease_ms == b.reply.lease_ms == 4_000
    assert count(scenario, PolicyStored) == 1


def test_wishes_out_of_bounds_are_refused():
    scenario = SessionScenario(Policy(lease_ms=1_999))
    a = scenario.member("w-a", {"t": 4}).attach()
    assert a.reply.error is ErrorCode.INVALID_REQUEST
    assert not scenario.records
    assert GROUP not in scenario.shard.machine.groups


# --- Bad input ---


@pytest.mark.parametrize(
    "fields",
    [
        {"topics": (("t", 10**9),)},
        {"topics": (("t", -1),)},
        {"topics": (("t", 1), ("t", 2))},
        {"capacity": math.nan},
        {"capacity": math.inf},
        {"capacity": -1.0},
        {"max_partitions": -1},
        {"drain_ms": -1},
        {"held": (("t", -1, 5),)},
        {"incarnation": ""},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_bad_attaches_are_refused_before_anything_is_kept(fields):
    scenario = SessionScenario()
    bad = scenario.member("w-x", {"t": 3})
    bad.incarnation = fields.pop("incarnation", "i")
    bad.attach(**fields)
    assert bad.reply.error is ErrorCode.INVALID_REQUEST
    assert not scenario.records
    assert not scenario.shard.machine.groups


def test_a_group_has_so_many_partitions_and_no_more_over_all_its_members():
    scenario = SessionScenario(max_group_partitions=10)
    scenario.member("w-a", {"t": 9}).attach(ready=False)
    many = scenario.member("w-b", {"u": 2}).attach()
    assert many.reply.error is ErrorCode.INVALID_REQUEST
    assert many.reply.message == "11 partitions; a group may have 10 (max_group_partitions)"
    few = scenario.member("w-b", {"u": 1}).attach()
    assert few.reply.error is ErrorCode.NONE
    few.topics = {"u": 1, "v": 1}
    few.attach()
    assert few.reply.error is ErrorCode.INVALID_REQUEST


def test_rows_of_topics_that_nobody_declares_any_more_are_given_back():
    scenario, a, _ = g2()
    for number in range(20):
        other = scenario.member(f"x-{number}", {f"topic-{number}": 100, "t": 50}).attach(
            ready=False
        )
        other.leave("now")
    assert list(scenario.group.topics) == ["t"]
    assert len(scenario.group.topics["t"].holders) == 3
    assert not scenario.group.changed_since_sent
    assert len(a.active) == 2


def test_what_makes_no_sense_is_ignored():
    scenario, a, b = g2()
    scenario.to(1_000)
    records = len(scenario.records)
    a.ack(("t", 10**9), "released", token=5)
    a.ack(("nothing", 0), "ready", handoff_id=12)
    a.ack(("t", -1), "refused", handoff_id=12)
    a.beat(held=(("t", -5, 1), ("x", 10**9, 4), *a.held), applied=99)
    assert len(scenario.records) == records
    number = a.number
    a.number = -10
    a.beat()
    a.number = number
    assert [ack.number for _, ack in a.acks][-1] == number
    assert len(a.active) + len(b.active) == 3


def test_streams_that_flap_are_asked_to_wait_and_the_session_lives():
    scenario, a, _ = g2()
    refused = 0
    for _ in range(20):
        a.attach()
        refused += a.reply.error is not ErrorCode.NONE
        scenario.to(scenario.now + 10)
    assert refused
    assert len(scenario.group.members) == 2
    scenario.to(scenario.now + 1_000)
    a.attach()
    assert a.reply.error is ErrorCode.NONE


def test_a_name_that_flaps_is_told_of_once_a_minute():
    scenario, a, _ = g2()
    begun = scenario.now
    while scenario.now < begun + 80_000:
        a.attach().cut()
        scenario.to(scenario.now + 200)
    told = [event for event in scenario.events if isinstance(event, SessionMemberFlaps)]
    assert [event.name for event in told] == [a.name] * 2
    assert told[0].times == restart_backoff.FREE_RESTARTS + 1
    assert told[1].times > told[0].times


def test_a_few_flaps_are_not_told_of():
    scenario, a, _ = g2()
    for _ in range(restart_backoff.FREE_RESTARTS):
        a.attach()
    assert not [event for event in scenario.events if isinstance(event, SessionMemberFlaps)]


def test_many_names_that_flap_cost_bounded_memory():
    scenario, _a, _ = g2()
    for number in range(restart_backoff.KEYS + 20):
        each = scenario.member(f"x-{number}", {"t": 1}).attach(ready=False)
        each.leave("now")
    assert len(scenario.group.restart_backoffs) <= restart_backoff.KEYS


def test_a_new_owner_goes_on_from_the_newest_record_of_a_member():
    scenario, a = g1()
    a.attach(capacity=2.0)
    scenario.to(200)
    assert scenario.group.members[a.member_id].record.capacity == 2.0
    scenario.restart()
    member = scenario.group.members[a.member_id]
    assert member.decided == member.record
    a.attach()
    assert scenario.group.members[a.member_id].record.capacity == 1.0


def test_a_claim_under_another_token_is_told_the_one_that_counts() -> None:
    scenario = SessionScenario()
    member = scenario.member("w-a", {"t": 3}).attach()
    scenario.to(200)
    claims = [list(claim) for claim in member.held]
    claims[1][2] += 7
    member.beat(applied=99, held=tuple(map(tuple, claims)))
    _, orders = member.received[-1]
    [message] = orders.partitions
    assert (message.partition, message.order, message.token) == (1, Order.ACTIVE, member.held[1][2])
