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
from tests.unit.core.sessions.kit import GROUP, g2, handing_over


def _stranger(world, a, b, partition):
    world.group.names["w-x"] = a.member_id


def _no_lease(world, a, b, partition):
    world.group.members[b.member_id].last_beat_ms = NO_TIME


def _no_token(world, a, b, partition):
    world.group.topics["t"].tokens[partition[1]] = 0


def _one_token_twice(world, a, b, partition):
    world.group.topics["t"].tokens[b.active[0][1]] = a.orders[partition].token


def _wrong_index(world, a, b, partition):
    world.group.held[b.member_id]["t"].add(partition[1])


def _nobody_prepares(world, a, b, partition):
    world.group.preparing[a.member_id] = {partition}


def _reserved_and_held(world, a, b, partition):
    world.group.topics["t"].reserved[partition[1]] = Reservation("w-x")


def _released_before(world, a, b, partition):
    world.group.state_to_change(partition).release = Release(a.orders[partition].token - 1)


def _no_id(world, a, b, partition):
    world.group.handoff(partition).handoff_id = 0


def _no_end(world, a, b, partition):
    world.group.handoff(partition).deadline_ms = NO_TIME


def _to_itself(world, a, b, partition):
    world.group.handoff(partition).successor = a.member_id


def _ended_and_not_written(world, a, b, partition):
    world.group.members[b.member_id].is_ended = True


def _undecided(world, a, b, partition):
    world.group.state_to_change(partition).release = Release(a.orders[partition].token)


def _overdue(world, a, b, partition):
    world.group.handoff(partition).is_overdue = True


def _free(world, a, b, partition):
    world.group._set(partition, "", 0)


def _never_lands(world, a, b, partition):
    world.group.note_write_pending((partition,))


def _other_state(world, a, b, partition):
    world.group.state = world.group.state.__class__("Empty")


def _no_lease_timer(world, a, b, partition):
    world.shard._group_timers.sessions.cancel_for_key(b.member_id)


def _no_phase_timer(world, a, b, partition):
    world.shard._group_timers.handoffs.cancel_for_key(GROUP)


def _no_plan_timer(world, a, b, partition):
    world.group.planning.requested_at_ms = world.now
    world.group.state = world.group.current_state()


def _token_to_come(world, a, b, partition):
    world.shard.machine.numbers.last_token = 1


def _stream_of_nobody(world, a, b, partition):
    world.group.members[b.member_id].stream_id = None


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
    world, a, b, partition = handing_over()
    world.to(6_000)
    world.shard.check()
    damage(world, a, b, partition)
    with pytest.raises(InvariantViolated, match=message):
        world.shard.check()


def _said(world, member, *orders, based_on=1):
    world.witness.told(GROUP, member.member_id, ToMember(None, Orders(2, based_on, orders)))


def test_what_is_told_is_in_the_log():
    world, a, b, partition = handing_over()
    token = a.orders[partition].token
    _said(world, a, OrderedPartition(*partition, Order.DRAIN, token))
    for each in (
        OrderedPartition(*partition, Order.ACTIVE, token),
        OrderedPartition(*partition, Order.DRAIN, token + 1),
        OrderedPartition(*partition, Order.WARM, handoff_id=1),
        OrderedPartition(*partition, Order.LOST, token),
        OrderedPartition(*partition, Order.LOST),
    ):
        with pytest.raises(InvariantViolated, match="is told"):
            _said(world, a, each)
    with pytest.raises(InvariantViolated, match="is not told of"):
        _said(world, a, based_on=-1)
    ack = ToMember(HeartbeatAck(1, (partition,)), None)
    with pytest.raises(InvariantViolated, match="are forced"):
        world.witness.told(GROUP, a.member_id, ack)
    with pytest.raises(InvariantViolated, match="has left"):
        world.witness.went_away(GROUP, b.member_id, GoAway(GoAwayReason.LEFT))


def test_a_commit_that_may_not_be_is_noticed():
    world, a, b, partition = handing_over()
    accepted = a.world.replies
    for member_id, token, why in (
        (b.member_id, a.orders[partition].token, "does not hold"),
        (a.member_id, 99, "is another"),
        ("nobody", 99, "has ended"),
    ):
        commit = CommitOffsets(
            call_id=world.new_call(),
            group_id=GROUP,
            partitions=(PartitionCommit(*partition, 5, token=token),),
            member_id=member_id,
        )
        world.witness.before(world.shard, commit)
        a.commit(6, partition)
        reply = accepted[max(accepted)]
        with pytest.raises(InvariantViolated, match=why):
            world.witness.replied(commit.call_id, reply)


def test_a_token_is_given_once():
    world, a, b = g2()
    partition = a.active[0]
    for holder, token in ((b.member_id, a.orders[partition].token), (a.member_id, 1)):
        world, a, b = g2()
        partition = a.active[-1]
        world.group.topics["t"].holders[partition[1]] = holder
        world.group.topics["t"].tokens[partition[1]] = token
        with pytest.raises(InvariantViolated, match="token"):
            world.witness._tokens.follow([world.group])


def test_who_may_still_work_is_not_followed_by_another():
    world, a, _b = g2()
    world.to(4_000)
    a.cut()
    world.shard.machine.context.streams.clear()
    partition = a.active[0]
    world.to(11_499)
    assert a.clock.works_on(partition, 11_499)
    assert not a.clock.works_on(partition, 11_500)
