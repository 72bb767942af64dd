"""Hand-offs: every phase, whoever dies, and when time is up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.core.pauses import Pause
from coordinator.core.sessions.handoff import phases
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.events import PartitionRefused
from coordinator.core.values.policy import Mode
from coordinator.core.values.records import Phase
from coordinator.core.values.requests import CommitOffsets, PartitionCommit
from coordinator.core.values.session_messages import Order
from coordinator.shard.inputs import AppendFailure
from tests.kit.session_scenario import GROUP, SessionScenario, g1, g2, handing_over, with_policy
from tests.kit.steps import a_step

WARM = with_policy(mode=Mode.WARM)
COPY = with_policy(mode=Mode.COPY)


def order(member, partition):
    found = member.orders.get(partition)
    return None if found is None else found.order


def phase(scenario, partition):
    handoff = scenario.group.handoff(partition)
    return None if handoff is None else handoff.phase


# --- Simple ---


def test_nothing_is_told_before_its_record_is_durable():
    scenario, a, b = g2()
    scenario.to(5_050)
    scenario.hold()
    partition = a.active[0]
    scenario.move(partition, b)
    assert order(a, partition) is Order.ACTIVE
    scenario.release()
    assert order(a, partition) is Order.DRAIN
    scenario.hold()
    a.ack(partition)
    assert partition not in b.active
    scenario.release()
    assert partition in b.active


def test_a_heartbeat_may_not_have_seen_the_newest_grant():
    scenario, a = g1()
    scenario.to(1_000)
    version = scenario.version_of(a)
    records = len(scenario.records)
    a.beat(held=(), applied=version - 1)
    assert len(scenario.records) == records
    a.beat(held=(), applied=version)
    assert len(scenario.records) == records + 1
    assert {order.token for order in a.orders.values()} == {5, 6, 7, 8}


def test_claims_that_are_made_up_leave_nothing_behind():
    scenario, a = g1()
    for topic in range(20):
        a.beat(held=((f"made up {topic}", 1, 7), *a.held), applied=0)
    assert set(scenario.group.members[a.member_id].mailbox.sent) <= set(a.active)


# --- Deadlines and force ---


def test_a_forced_record_that_is_late_counts_from_the_last_renewal():
    scenario, a, b, partition = handing_over()
    scenario.to(35_050)
    scenario.hold()
    scenario.to(37_999)
    assert order(a, partition) is Order.DRAIN
    assert all(partition not in ack.expiring for _, ack in a.acks)
    heard = scenario.group.members[a.member_id].last_beat_ms
    scenario.release()
    assert order(a, partition) is Order.LOST
    scenario.to(heard + 9_999)
    assert partition not in b.active
    scenario.to(heard + 10_000)
    assert partition in b.active
    assert len(a.active) == 1


def test_commits_count_until_the_switch():
    scenario, a, b, partition = handing_over()
    scenario.to(36_000)
    assert a.commit(5, partition) == [ErrorCode.NONE]
    token = a.orders[partition].token
    scenario.to(46_000)
    assert partition in b.active
    assert a.commit(6, partition, token=token) == [ErrorCode.FENCED_TOKEN]


@pytest.mark.parametrize("is_atomic", [False, True])
def test_a_partition_without_a_token_is_refused_by_itself(is_atomic):
    scenario, a, _b = g2()
    first, second = a.active
    partitions = (
        PartitionCommit(*first, 5, token=a.orders[first].token),
        PartitionCommit(*second, 5),
    )
    call = scenario.new_call()
    scenario.send(
        CommitOffsets(
            call_id=call,
            group_id=GROUP,
            partitions=partitions,
            member_id=a.member_id,
            atomic=is_atomic,
        )
    )
    assert {
        (result.topic, result.partition): result.error for result in scenario.replies[call].results
    } == {
        first: ErrorCode.INVALID_REQUEST if is_atomic else ErrorCode.NONE,
        second: ErrorCode.INVALID_REQUEST,
    }


# --- Warm and copy ---


def test_a_successor_that_declares_the_partition_no_more_is_not_waited_for():
    scenario, a, b, partition = handing_over(WARM)
    scenario.to(6_000)
    b.attach(topics=(("t", partition[1]),))
    assert phase(scenario, partition) is None
    assert partition in a.active
    assert order(b, partition) is None


def test_three_refusals_leave_a_partition_alone_for_a_while():
    scenario, a = g1()
    scenario.to(1_000)
    partition = ("t", 0)
    for attempt in range(3):
        a.ack(partition, "refused", reason="no disk")
        scenario.ask_again()
        scenario.to(scenario.now + 1_100)
        assert (partition in a.active) is (attempt < 2)
    scenario.to(scenario.now + 10_000)
    assert partition in a.active


def test_three_that_will_not_prepare_end_a_hand_off_and_nobody_else_is_asked():
    scenario = SessionScenario(WARM)
    a = scenario.member("w-a", {"t": 1}).attach()
    scenario.to(200)
    others = [scenario.member(f"w-{name}", {"t": 1}).attach() for name in "bcdef"]
    scenario.to(5_000)
    partition = ("t", 0)
    scenario.move(partition, others[0])
    for _ in range(3):
        (asked,) = (other for other in others if order(other, partition) is Order.WARM)
        asked.ack(partition, "refused", token=0)
    assert scenario.group.handoff(partition) is None
    assert partition in a.active
    (event,) = (each for each in scenario.events if isinstance(each, PartitionRefused))
    assert (event.topic, event.partition, event.wait_ms) == (*partition, 10_000)


def test_nobody_is_asked_for_what_a_leaver_holds_after_three_refusals_in_a_row():
    scenario = SessionScenario(WARM)
    a = scenario.member("w-a", {"t": 1}).attach()
    scenario.to(200)
    others = [scenario.member(f"w-{name}", {"t": 1}).attach() for name in "bcdef"]
    scenario.to(5_000)
    partition = ("t", 0)
    a.leave("drain", 60_000)
    scenario.to(5_100)
    for _ in range(3):
        (asked,) = (other for other in others if order(other, partition) is Order.WARM)
        asked.ack(partition, "refused", token=0)
        refused_at = scenario.now
        scenario.to(refused_at + 100)
    assert phase(scenario, partition) is None
    scenario.to(refused_at + 9_999)
    assert phase(scenario, partition) is None
    scenario.to(refused_at + 10_100)
    assert phase(scenario, partition) is Phase.PREPARE


def test_refusals_with_a_hand_over_between_them_are_not_in_a_row():
    scenario, a = g1()
    scenario.to(1_000)
    partition = ("t", 0)
    for kind in ("refused", "refused", "released", "refused"):
        assert partition in a.active
        a.ack(partition, kind)
        scenario.ask_again()
        scenario.to(scenario.now + 1_100)
    assert partition in a.active


@pytest.mark.parametrize("cause", ["its time is up", "it shall not have it"])
def test_copy_goes_to_another_one_if_the_first_is_not_ready(cause):
    scenario, a, b, partition = handing_over(with_policy(mode=Mode.COPY, warm_timeout_ms=60_000))
    a.ack(partition, position=70)
    if cause == "its time is up":
        scenario.to(5_100 + 60_000 - 1)
        assert (order(b, partition), order(a, partition)) == (Order.WARM, None)
        scenario.to(5_100 + 60_000)
    else:
        b.attach(topics=(("t", partition[1]),))
    assert (order(b, partition), order(a, partition)) == (None, Order.WARM)
    assert phase(scenario, partition) is Phase.COPY
    assert a.orders[partition].position == 70
    a.ack(partition, "ready")
    assert partition in a.active


def test_copy_without_another_one_to_ask_leaves_the_partition_free_when_its_time_is_up():
    scenario, a, b, partition = handing_over(with_policy(mode=Mode.COPY, warm_timeout_ms=60_000))
    a.ack(partition)
    a.leave("now")
    scenario.to(5_100 + 60_000 - 1)
    assert phase(scenario, partition) is Phase.COPY
    scenario.to(5_100 + 60_000)
    assert (phase(scenario, partition), scenario.group.holder(partition)) == (None, "")
    scenario.to(5_100 + 61_100)
    assert partition in b.active


# --- Leases ---


def test_a_node_that_stood_still_grants_a_quarter_once():
    scenario, a, b = g2()
    scenario.to(7_600)
    a.beats = False
    scenario.now = 18_000
    scenario.pauses = (Pause(7_600, 18_000),)
    b.beat()
    scenario.to(20_499)
    assert a.member_id in scenario.group.members
    scenario.to(20_500)
    assert a.member_id not in scenario.group.members
    assert b.member_id in scenario.group.members


# --- Windows and budgets ---


# --- Names ---


# --- Kinds ---


@pytest.mark.parametrize("failure", [AppendFailure.UNAVAILABLE, AppendFailure.AMBIGUOUS])
def test_a_refusal_stands_while_the_switch_is_tried_again(failure):
    scenario, a, b, partition = handing_over()
    a.commit(70, partition)
    scenario.hold()
    a.ack(partition)
    assert a.commit(80, partition) == [ErrorCode.FENCED_TOKEN]
    scenario.release(failing=failure)
    assert a.commit(80, partition) == [ErrorCode.FENCED_TOKEN]
    scenario.to(scenario.now + 2_000)
    assert b.orders[partition].offset == 70


def test_outsiders_compare_and_set_every_partition_while_the_group_has_members():
    """Same rule as in classic groups (decision 0008): a sink that decides, and its files."""
    scenario, _, _ = g2()

    def refused(*, atomic: bool, expected: int | None) -> ErrorCode:
        call = scenario.new_call()
        files = PartitionCommit("other", 0, 7, expected=expected)
        scenario.send(
            CommitOffsets(call_id=call, group_id=GROUP, partitions=(files,), atomic=atomic)
        )
        return scenario.replies[call].results[0].error

    assert refused(atomic=False, expected=-1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(atomic=True, expected=None) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(atomic=True, expected=-1) is ErrorCode.NONE
    assert refused(atomic=True, expected=-1) is ErrorCode.OFFSET_MISMATCH


def outside(scenario: SessionScenario, *commits: PartitionCommit, **fields) -> ErrorCode:
    call = scenario.new_call()
    scenario.send(
        CommitOffsets(call_id=call, group_id=GROUP, partitions=commits, atomic=True, **fields)
    )
    return scenario.replies[call].results[0].error


def test_outsiders_do_not_move_the_offset_of_a_live_holder_without_its_token():
    scenario, a, _ = g2()
    topic, partition = topic_partition = a.active[0]
    a.commit(5, topic_partition)
    token = a.orders[topic_partition].token
    back = PartitionCommit(topic, partition, 1, expected=5)
    assert outside(scenario, back) is ErrorCode.UNKNOWN_MEMBER_ID
    files = PartitionCommit("other", 0, 7, expected=-1)
    assert outside(scenario, files, back) is ErrorCode.UNKNOWN_MEMBER_ID
    assert outside(scenario, replace(back, token=token - 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scenario.group.offsets[topic_partition].offset == 5
    assert outside(scenario, replace(back, offset=6, token=token)) is ErrorCode.NONE
    assert scenario.group.offsets[topic_partition].offset == 6


def test_a_reset_that_requires_an_empty_group_is_refused_while_there_are_members():
    scenario, _, _ = g2()
    files = PartitionCommit("other", 0, 7, expected=-1)
    assert outside(scenario, files, requires_empty=True) is ErrorCode.NON_EMPTY_GROUP


def test_outsiders_move_the_offset_of_a_partition_that_nobody_holds():
    scenario = SessionScenario()
    a = scenario.member("w-a", {"t": 2}).attach(max_partitions=1)
    scenario.to(100)
    (free,) = {0, 1} - {partition for _, partition in a.active}
    assert outside(scenario, PartitionCommit("t", free, 3, expected=-1)) is ErrorCode.NONE


def test_a_decision_of_a_sink_moves_offsets_forwards_for_their_holders():
    scenario, a, _ = g2()
    topic, partition = topic_partition = a.active[0]
    a.commit(5, topic_partition)
    decided = PartitionCommit("__manifests", 0, 1, expected=-1)
    back = PartitionCommit(topic, partition, 1, expected=5)
    assert outside(scenario, decided, back) is ErrorCode.UNKNOWN_MEMBER_ID
    assert outside(scenario, decided, replace(back, offset=9)) is ErrorCode.NONE
    assert scenario.group.offsets[topic_partition].offset == 9


def test_a_drain_is_not_redirected_to_its_holder():
    scenario, a, b, partition = handing_over()
    step = a_step()
    phases.redirect(scenario.group, partition, a.member_id, step)
    assert not step.out.writes
    phases.redirect(scenario.group, partition, b.member_id, step)
    assert step.out.writes
