"""Each invariant of session groups, seen to fail on a group that was damaged."""

from __future__ import annotations

import pytest

from coordinator.core.sessions.holdings import Reservation
from coordinator.core.sessions.partition import Release
from coordinator.core.values.errors import InvariantViolated
from coordinator.core.values.ids import NO_TIME
from coordinator.core.values.requests import CommitOffsets, PartitionCommit
from coordinator.core.values.session_messages import (
    GoAway,
    GoAwayReason,
    HeartbeatAck,
    Order,
    OrderedPartition,
    Orders,
    ToMember,
)
from tests.kit.session_scenario import GROUP, g2, handing_over


def _stranger(scenario, a, b, partition):
    scenario.group.names["w-x"] = a.member_id


def _no_lease(scenario, a, b, partition):
    scenario.group.members[b.member_id].last_beat_ms = NO_TIME


def _no_token(scenario, a, b, partition):
    scenario.group.topics["t"].tokens[partition[1]] = 0


def _one_token_twice(scenario, a, b, partition):
    scenario.group.topics["t"].tokens[b.active[0][1]] = a.orders[partition].token


def _wrong_index(scenario, a, b, partition):
    scenario.group.held[b.member_id]["t"].add(partition[1])


def _nobody_prepares(scenario, a, b, partition):
    scenario.group.preparing[a.member_id] = {partition}


def _reserved_and_held(scenario, a, b, partition):
    scenario.group.topics["t"].reserved[partition[1]] = Reservation("w-x")


def _released_before(scenario, a, b, partition):
    scenario.group.state_to_change(partition).release = Release(a.orders[partition].token - 1)


def _no_id(scenario, a, b, partition):
    scenario.group.handoff(partition).handoff_id = 0


def _no_end(scenario, a, b, partition):
    scenario.group.handoff(partition).deadline_ms = NO_TIME


def _to_itself(scenario, a, b, partition):
    scenario.group.handoff(partition).successor = a.member_id


def _ended_and_not_written(scenario, a, b, partition):
    scenario.group.members[b.member_id].is_ended = True


def _undecided(scenario, a, b, partition):
    scenario.group.state_to_change(partition).release = Release(a.orders[partition].token)


def _overdue(scenario, a, b, partition):
    scenario.group.handoff(partition).is_overdue = True


def _free(scenario, a, b, partition):
    scenario.group._set(partition, "", 0)


def _never_lands(scenario, a, b, partition):
    scenario.group.note_write_pending((partition,))


def _other_state(scenario, a, b, partition):
    scenario.group.state = scenario.group.state.__class__("Empty")


def _no_lease_timer(scenario, a, b, partition):
    scenario.shard._group_timers.sessions.cancel_for_key(b.member_id)


def _no_phase_timer(scenario, a, b, partition):
    scenario.shard._group_timers.handoffs.cancel_for_key(GROUP)


def _no_plan_timer(scenario, a, b, partition):
    scenario.group.planning.requested_at_ms = scenario.now
    scenario.group.state = scenario.group.current_state()


def _token_to_come(scenario, a, b, partition):
    scenario.shard.machine.numbers.last_token = 1


def _stream_of_nobody(scenario, a, b, partition):
    scenario.group.members[b.member_id].stream_id = None


DAMAGES = {
    _stranger: "index of names",
    _no_lease: "does not run",
    _no_token: "without a token",
    _one_token_twice: "two grants",
    _wrong_index: "index of holdings",
    _nobody_prepares: "index of successors",
    _reserved_and_held: "reserved, and held",
    _released_before: "token that has ended",
    _no_id: "without an id",
    _no_end: "has no end",
    _to_itself: "to its holder",
    _ended_and_not_written: "is not written",
    _undecided: "nobody has decided",
    _overdue: "nobody has decided",
    _free: "may have it",
    _never_lands: "a write that there is not",
    _other_state: "not the current one",
    _no_lease_timer: "lease has no timer",
    _no_phase_timer: "the phase of .* has no timer",
    _no_plan_timer: "a plan is due, and has no timer",
    _token_to_come: "a token to come",
    _stream_of_nobody: "is nobody's",
}


@pytest.mark.parametrize(("damage", "message"), DAMAGES.items())
def test_damage_is_found(damage, message):
    scenario, a, b, partition = handing_over()
    scenario.to(6_000)
    scenario.shard.check()
    damage(scenario, a, b, partition)
    with pytest.raises(InvariantViolated, match=message):
        scenario.shard.check()


def _said(scenario, member, *orders, based_on=1):
    scenario.witness.told(GROUP, member.member_id, ToMember(None, Orders(2, based_on, orders)))


def test_what_is_told_is_in_the_log():
    scenario, a, b, partition = handing_over()
    token = a.orders[partition].token
    _said(scenario, a, OrderedPartition(*partition, Order.DRAIN, token))
    for each in (
        OrderedPartition(*partition, Order.ACTIVE, token),
        OrderedPartition(*partition, Order.DRAIN, token + 1),
        OrderedPartition(*partition, Order.WARM, handoff_id=1),
        OrderedPartition(*partition, Order.LOST, token),
        OrderedPartition(*partition, Order.LOST),
    ):
        with pytest.raises(InvariantViolated, match="is told"):
            _said(scenario, a, each)
    with pytest.raises(InvariantViolated, match="is not told of"):
        _said(scenario, a, based_on=-1)
    ack = ToMember(HeartbeatAck(1, (partition,)), None)
    with pytest.raises(InvariantViolated, match="are forced"):
        scenario.witness.told(GROUP, a.member_id, ack)
    with pytest.raises(InvariantViolated, match="has left"):
        scenario.witness.went_away(GROUP, b.member_id, GoAway(GoAwayReason.LEFT))


def test_a_commit_that_may_not_be_is_noticed():
    scenario, a, b, partition = handing_over()
    accepted = a.scenario.replies
    for member_id, token, why in (
        (b.member_id, a.orders[partition].token, "does not hold"),
        (a.member_id, 99, "is another"),
        ("nobody", 99, "has ended"),
    ):
        commit = CommitOffsets(
            call_id=scenario.new_call(),
            group_id=GROUP,
            partitions=(PartitionCommit(*partition, 5, token=token),),
            member_id=member_id,
        )
        scenario.witness.before(scenario.shard, commit)
        a.commit(6, partition)
        reply = accepted[max(accepted)]
        with pytest.raises(InvariantViolated, match=why):
            scenario.witness.replied(commit.call_id, reply)


def test_a_token_is_given_once():
    scenario, a, b = g2()
    partition = a.active[0]
    for holder, token in ((b.member_id, a.orders[partition].token), (a.member_id, 1)):
        scenario, a, b = g2()
        partition = a.active[-1]
        scenario.group.topics["t"].holders[partition[1]] = holder
        scenario.group.topics["t"].tokens[partition[1]] = token
        with pytest.raises(InvariantViolated, match="token"):
            scenario.witness._tokens.follow([scenario.group])


def test_who_may_still_work_is_not_followed_by_another():
    scenario, a, _b = g2()
    scenario.to(4_000)
    a.cut()
    scenario.shard.machine.context.streams.clear()
    partition = a.active[0]
    scenario.to(11_499)
    assert a.clock.works_on(partition, 11_499)
    assert not a.clock.works_on(partition, 11_500)
