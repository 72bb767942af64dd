"""Requests of operators about session groups: descriptions, policies, evictions."""

from __future__ import annotations

from dataclasses import replace

from coordinator.core.sessions import description
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.values import requests as o
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.ids import CallId
from coordinator.core.values.policy import Mode, Policy
from coordinator.core.values.records import Phase
from coordinator.core.values.replies import SessionGroupReply, SessionMemberState
from coordinator.core.values.requests import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    DescribePhase,
    ListGroups,
    ListRebalances,
    PartitionCommit,
)
from coordinator.core.values.session_messages import Order, Standing
from coordinator.shard.inputs import AppendFailure
from tests.kit.session_scenario import (
    GROUP,
    POLICY,
    SessionScenario,
    g1,
    g2,
    handing_over,
    with_policy,
)
from tests.kit.steps import a_step
from tests.unit.observe.test_session_metrics import PLAN, SWITCH


def ask(scenario: SessionScenario, kind: type, **fields):
    """Send a request; its reply, or None if there is none yet."""
    call = scenario.new_call()
    fields = fields if kind is ListGroups else {"group_id": GROUP, **fields}
    scenario.send(kind(call_id=call, **fields))
    return scenario.replies.get(call)


def describe(scenario: SessionScenario) -> SessionGroupReply:
    reply = ask(scenario, o.DescribeSessionGroup)
    assert isinstance(reply, SessionGroupReply)
    return reply


def row_of(
    scenario: SessionScenario, name: str, standing: Standing = Standing.MEMBER
) -> SessionMemberState:
    rows = describe(scenario).members
    return next(r for r in rows if r.record.name == name and r.standing is standing)


# --- Description ---


def test_a_group_is_described_with_its_holders_and_tokens():
    scenario, a, b = g2()
    described = describe(scenario)
    assert (described.state, described.policy, described.is_policy_stored) == (
        "Stable",
        POLICY,
        True,
    )
    [topic] = described.topics
    assert topic.declared == 3
    assert {holder: topic.holders.count(holder) for holder in topic.holders} == {
        a.member_id: 2,
        b.member_id: 1,
    }
    assert sorted(topic.tokens) == [1, 2, 3]
    assert {row.record.name: row.partitions for row in described.members} == {
        a.name: 2,
        b.name: 1,
    }
    assert not described.handoffs
    assert not described.free


def test_a_description_says_what_a_handoff_waits_for():
    scenario, a, b, partition = handing_over()
    scenario.to(6_000)
    [row] = describe(scenario).handoffs
    assert (row.topic_partition, row.phase) == (partition, Phase.DRAIN)
    assert (row.source, row.successor, row.waits_for) == (a.member_id, b.member_id, a.member_id)
    assert row.deadline_ms == 35_100
    scenario.hold()
    a.ack(partition)
    assert describe(scenario).handoffs[0].waits_for == ""


def test_a_description_names_suspects_and_waiting_processes():
    scenario, a, _ = g2()
    scenario.to(3_000)
    assert not row_of(scenario, a.name).is_suspect
    a.cut()
    row = row_of(scenario, a.name)
    assert row.is_suspect
    assert row.lease_ends_ms == 12_500
    scenario.member(a.name, {"t": 3}, "another").attach()
    waiting = row_of(scenario, a.name, Standing.WAITING)
    assert waiting.waits_for == a.member_id
    assert waiting.lease_ends_ms == 12_500
    assert not waiting.partitions


def test_free_partitions_are_listed_with_the_reason():
    scenario = SessionScenario()
    scenario.member("w-a", {"t": 4}).attach()
    assert [(row.why, row.ranges) for row in describe(scenario).free] == [("plan_due", ((0, 3),))]
    alone = SessionScenario()
    alone.member("w-a", {"t": 4}).attach(max_partitions=1)
    alone.to(100)
    [row] = describe(alone).free
    assert row.why == "capacity"
    assert sum(last - first + 1 for first, last in row.ranges) == 3
    assert describe(alone).state == "Stable"


def test_kept_partitions_are_listed_with_their_name():
    scenario, a, _ = g2()
    held = tuple(a.active)
    scenario.to(5_000)
    a.leave("return", 60_000)
    described = describe(scenario)
    assert [(row.name, row.partitions, row.until_ms) for row in described.reservations] == [
        (a.name, held, 65_000)
    ]
    assert not described.free


def test_describing_asks_for_a_session_group():
    scenario = SessionScenario()
    assert ask(scenario, o.DescribeSessionGroup).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert ask(scenario, o.EvictMember, member_id="m").error is ErrorCode.GROUP_ID_NOT_FOUND


def test_session_groups_are_in_the_list_and_in_describe_groups():
    scenario, a, b = g2()
    [row] = ask(scenario, ListGroups, types=("Session",)).groups
    assert (row.group_id, row.group_type, row.state, row.member_count) == (
        GROUP,
        "session",
        "Stable",
        2,
    )
    assert row.protocol_type == "consumer"
    described = ask(scenario, DescribeGroup)
    assert (described.state, described.group_type) == ("Stable", "session")
    assert {m.instance_id: len(m.holds) for m in described.members} == {a.name: 2, b.name: 1}


def test_a_group_that_was_read_from_the_log_is_not_empty():
    scenario, _, _ = g2()
    scenario.restart()
    assert describe(scenario).state == "Assigning"
    assert ask(scenario, DeleteGroup).error is ErrorCode.NON_EMPTY_GROUP
    assert ask(scenario, ListGroups).groups[0].state == "Assigning"


# --- Policy ---


def test_a_changed_lease_holds_from_the_next_attach():
    scenario, a, _ = g2(with_policy(lease_ms=45_000))
    scenario.to(10_000)
    reply = ask(scenario, o.SetGroupPolicy, changes=(("lease_ms", 3_000),))
    assert (reply.error, reply.policy.lease_ms) == (ErrorCode.NONE, 3_000)
    assert reply.policy.join_quiet_ms == 0
    assert row_of(scenario, a.name).lease_ms == 45_000
    scenario.to(20_000)
    a.beats = False
    a.attach()
    assert a.reply.lease_ms == 3_000
    assert row_of(scenario, a.name).lease_ms == 45_000  # It may not have heard of the new one.
    scenario.to(20_500)
    a.beat()
    assert row_of(scenario, a.name).lease_ms == 3_000
    assert row_of(scenario, a.name).lease_ends_ms == 23_500


def test_a_policy_is_answered_when_it_is_durable():
    scenario, _, _ = g2()
    scenario.hold()
    call = scenario.new_call()
    scenario.send(o.SetGroupPolicy(call_id=call, group_id=GROUP, changes=(("mode", Mode.WARM),)))
    assert call not in scenario.replies
    assert describe(scenario).policy.mode is Mode.SIMPLE
    scenario.release()
    assert scenario.replies[call].policy.mode is Mode.WARM
    assert describe(scenario).policy.mode is Mode.WARM


def test_two_changes_at_a_time_both_count():
    scenario, _, _ = g2()
    scenario.hold()
    calls = [scenario.new_call(), scenario.new_call()]
    changes = ("lease_ms", 5_000), ("max_idle_ms", 7_000)
    for call, change in zip(calls, changes, strict=True):
        scenario.send(o.SetGroupPolicy(call_id=call, group_id=GROUP, changes=(change,)))
    scenario.release()
    assert all(scenario.replies[call].error is ErrorCode.NONE for call in calls)
    policy = describe(scenario).policy
    assert (policy.lease_ms, policy.max_idle_ms) == (5_000, 7_000)


def test_a_policy_that_is_not_stored_changes_nothing():
    scenario, _, _ = g2()
    scenario.hold()
    call = scenario.new_call()
    scenario.send(o.SetGroupPolicy(call_id=call, group_id=GROUP, changes=(("lease_ms", 5_000),)))
    scenario.release(failing=AppendFailure.TOO_LARGE)
    assert scenario.replies[call].error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert describe(scenario).policy == POLICY
    assert ask(scenario, o.SetGroupPolicy, changes=(("lease_ms", 5_000),)).policy.lease_ms == 5_000


def test_a_policy_may_come_before_the_first_member_and_outlives_a_restart():
    scenario = SessionScenario()
    assert ask(scenario, o.SetGroupPolicy, changes=(("lease_ms", 4_000),)).error is ErrorCode.NONE
    scenario.restart()
    a = scenario.member("w-a", {"t": 2}).attach()
    assert a.reply.lease_ms == 4_000  # Not what the member wishes.
    assert describe(scenario).policy == Policy(lease_ms=4_000)
    reply = ask(scenario, o.SetGroupPolicy, defaults=("lease_ms",))
    assert reply.policy.lease_ms == 10_000


# --- Eviction ---


def test_nobody_is_waited_for_to_prepare_who_is_evicted():
    scenario, a, b, partition = handing_over(with_policy(mode=Mode.WARM))
    assert b.orders[partition].order is Order.WARM
    ask(scenario, o.EvictMember, member_id=b.member_id)
    assert scenario.group.handoff(partition) is None
    assert partition not in b.orders
    assert partition in a.active


def test_an_eviction_goes_on_after_a_restart():
    scenario, a, _ = g2()
    scenario.to(5_000)
    scenario.hold()
    call = scenario.new_call()
    scenario.send(o.EvictMember(call_id=call, group_id=GROUP, member_name=a.name))
    assert call not in scenario.replies
    # The order is durable, and the coordinator dies before a partition is forced.
    held, scenario.held = scenario.held, []
    scenario._append(held[0])
    assert scenario.replies[call].error is ErrorCode.NONE
    scenario.restart()
    a.attach()
    assert {order.order for order in a.orders.values()} == {Order.LOST}


def test_a_dry_run_changes_nothing():
    scenario, a, _ = g2()
    records = len(scenario.records)
    reply = ask(scenario, o.EvictMember, member_name=a.name, is_dry_run=True, is_gone=True)
    assert (reply.member_id, reply.partitions) == (a.member_id, 2)
    assert len(scenario.records) == records
    a.leave("return", 60_000)
    records = len(scenario.records)
    assert ask(scenario, o.EvictMember, member_name=a.name, is_dry_run=True).partitions == 2
    assert len(scenario.records) == records


def test_nobody_is_evicted_twice_or_by_a_wrong_name():
    scenario, _, _ = g2()
    reply = ask(scenario, o.EvictMember, member_name="w-z")
    assert reply.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert "w-z" in reply.message
    assert ask(scenario, o.EvictMember, member_id="x").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert ask(scenario, o.EvictMember).error is ErrorCode.INVALID_REQUEST, "it names nobody"


def test_offsets_are_deleted_after_the_commits_of_them_that_are_in_flight():
    scenario, a = g1()
    a.leave("now")
    scenario.hold()
    commit = scenario.new_call()
    partitions = (PartitionCommit("t", 0, 7),)
    scenario.send(CommitOffsets(call_id=commit, group_id=GROUP, partitions=partitions))
    delete = scenario.new_call()
    scenario.send(DeleteOffsets(call_id=delete, group_id=GROUP, partitions=(("t", 0),)))
    assert delete not in scenario.replies
    scenario.release()
    for call in (commit, delete):
        assert [result.error for result in scenario.replies[call].results] == [ErrorCode.NONE]
    assert not scenario.group.offsets


# --- Journal and phase ---


def test_the_journal_is_listed_newest_first():
    group = SessionGroup(GROUP, 0)
    later = replace(PLAN, made_at_ms=2_000)
    for record in (PLAN, later, SWITCH):
        group.apply(record)
    request = ListRebalances(call_id=CallId(1), group_id=GROUP)
    step = a_step()
    description.list_journal(group, request, step)
    [(_, reply)] = step.out.replies
    assert reply.plans == (later, PLAN)
    assert reply.handoffs == (SWITCH,)
    assert not reply.rebalances


def test_the_phase_names_the_members_whose_word_is_awaited():
    scenario, a, _, _ = handing_over()
    scenario.to(6_000)
    reply = ask(scenario, DescribePhase)
    assert (reply.state, reply.deadline_ms) == ("Reconciling", 35_100)
    [awaited] = reply.awaited
    assert (awaited.member_id, awaited.client_id) == (a.member_id, a.name)
    assert awaited.last_seen_ms == 5_000


def test_a_group_waits_for_a_member_whose_lease_runs_out():
    scenario, a, _ = g2()
    scenario.to(5_000)
    a.cut()
    scenario.to(7_000)
    reply = ask(scenario, DescribePhase)
    assert (reply.state, reply.since_ms, reply.deadline_ms) == ("Stable", 5_000, 15_000)
    [awaited] = reply.awaited
    assert (awaited.member_id, awaited.last_seen_ms) == (a.member_id, 5_000)


def test_a_question_about_plans_waits_for_the_one_that_is_on_its_way():
    scenario, a, _ = g2()
    scenario.to(5_000)
    a.ack(a.active[0])
    scenario.hold()
    scenario.to(5_200)
    call = scenario.new_call()
    scenario.send(ListRebalances(call_id=call, group_id="g"))
    assert call not in scenario.replies
    scenario.release()
    assert len(scenario.replies[call].plans) == 2


def test_the_phase_of_a_group_that_plans_is_the_time_of_the_plan():
    scenario = SessionScenario()
    scenario.member("w-a", {"t": 2}).attach()
    reply = ask(scenario, DescribePhase)
    assert (reply.state, reply.since_ms, reply.deadline_ms) == ("Assigning", 0, 100)
    assert not reply.awaited
    scenario.to(100)
    assert ask(scenario, DescribePhase).deadline_ms == -1


def test_a_policy_out_of_bounds_is_refused():
    scenario = SessionScenario()
    reply = ask(scenario, o.SetGroupPolicy, changes=(("lease_ms", 1_000),))
    assert reply.error is ErrorCode.INVALID_REQUEST
    assert "lease_ms" in reply.message
    assert ask(scenario, o.SetGroupPolicy, defaults=("lease",)).error is ErrorCode.INVALID_REQUEST
    assert not scenario.shard.machine.groups


def test_checked_tokens_free_what_is_forced_at_once():
    scenario, a, b, partition = handing_over()
    scenario.to(36_000)
    assert describe(scenario).handoffs[0].phase is Phase.FORCED
    ask(scenario, o.SetGroupPolicy, changes=(("sinks_check_tokens", True),))
    assert partition in b.active
    assert partition not in a.active
