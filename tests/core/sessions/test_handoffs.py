"""Hand-offs: every phase, whoever dies, and when time is up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.core.errors import ErrorCode
from coordinator.core.outcome import Outcome
from coordinator.core.pauses import Pause
from coordinator.core.requests import CommitOffsets, PartitionCommit
from coordinator.core.session_values.events import PartitionRefused
from coordinator.core.session_values.messages import Order
from coordinator.core.session_values.policy import Mode, OnStall
from coordinator.core.session_values.records import Phase, PolicyStored
from coordinator.core.session_values.requests import Standing
from coordinator.core.sessions.handoff import phases
from coordinator.shard.outbox import AppendFailure
from tests.core.sessions.kit import GROUP, World, g1, g2, handing_over, with_policy

WARM = with_policy(mode=Mode.WARM)
COPY = with_policy(mode=Mode.COPY)


def order(member, place):
    found = member.orders.get(place)
    return None if found is None else found.order


def phase(world, place):
    handoff = world.group.handoff(place)
    return None if handoff is None else handoff.phase


# --- Simple ---


def test_nothing_is_told_before_its_record_is_durable():
    world, a, b = g2()
    world.to(5_050)
    world.hold()
    place = a.active[0]
    world.move(place, b)
    assert order(a, place) is Order.ACTIVE
    world.release()
    assert order(a, place) is Order.DRAIN
    world.hold()
    a.ack(place)
    assert place not in b.active
    world.release()
    assert place in b.active


def test_released_is_about_the_token_and_counts_once():
    world, a, b, place = handing_over()
    a.ack(place, token=99)
    assert order(a, place) is Order.DRAIN
    records = len(world.records)
    a.ack(place, handoff_id=12_345)
    assert place in b.active
    assert len(world.records) == records + 1
    a.ack(place, token=b.orders[place].token - 1)
    assert len(world.records) == records + 1


def test_a_partition_given_up_unasked_is_free_and_planned():
    world, a, b = g2()
    world.to(5_000)
    place = b.active[0]
    b.ack(place)
    assert not b.active
    world.to(5_100)
    assert len(a.active) + len(b.active) == 3


def test_a_successor_without_a_stream_gets_nothing():
    world, a, b, place = handing_over()
    b.cut()
    a.ack(place)
    assert world.group.holder(place) == ""
    world.to(world.now + 100)
    assert place in a.active
    assert a.orders[place].token > 3


def test_what_is_held_and_not_claimed_is_granted_anew():
    world, a, _b = g2()
    world.to(4_000)
    lost = a.active[0]
    token = a.orders.pop(lost).token
    a.attach()
    assert lost in a.active
    assert a.orders[lost].token > token
    assert a.commit(5, lost, token=token) == [ErrorCode.FENCED_TOKEN]


def test_a_heartbeat_may_not_have_seen_the_newest_grant():
    world, a = g1()
    world.to(1_000)
    version = world.group.members[a.member_id].mailbox.version
    records = len(world.records)
    a.beat(held=(), applied=version - 1)
    assert len(world.records) == records
    a.beat(held=(), applied=version)
    assert len(world.records) == records + 1
    assert {order.token for order in a.orders.values()} == {5, 6, 7, 8}


def test_a_heartbeat_is_compared_with_the_grants_that_it_has_seen():
    """B leaves, and its partition is granted to A, whose heartbeat has not seen that yet."""
    world, a, b = g2()
    seen, version = a.active[0], world.group.members[a.member_id].mailbox.version
    kept = a.active[1]
    token, (theirs,) = a.orders[seen].token, b.active
    b.leave("now")
    world.to(1_000)
    given = a.orders[theirs].token
    a.beat(held=((*kept, a.orders[kept].token),), applied=version)
    assert a.orders[seen].token > token
    assert a.orders[theirs].token == given, "its grant may be on its way"


def test_claims_that_are_made_up_leave_nothing_behind():
    world, a = g1()
    for topic in range(20):
        a.beat(held=((f"made up {topic}", 1, 7), *a.held), applied=0)
    assert set(world.group.members[a.member_id].mailbox.told) <= set(a.active)


def test_a_holder_that_dies_while_it_drains_passes_on_with_its_end():
    world, a, b, place = handing_over()
    a.beats = False
    heard = world.group.members[a.member_id].last_beat_ms
    world.to(heard + 10_000)
    assert place in b.active
    world.to(heard + 10_100)
    assert len(b.active) == 3


# --- Deadlines and force ---


def test_a_forced_record_that_is_late_counts_from_the_last_renewal():
    world, a, b, place = handing_over()
    world.to(35_050)
    world.hold()
    world.to(37_999)
    assert order(a, place) is Order.DRAIN
    assert all(place not in ack.not_renewed for _, ack in a.acks)
    heard = world.group.members[a.member_id].last_beat_ms
    world.release()
    assert order(a, place) is Order.LOST
    world.to(heard + 9_999)
    assert place not in b.active
    world.to(heard + 10_000)
    assert place in b.active
    assert len(a.active) == 1


def test_no_change_of_successor_gives_a_phase_more_time():
    world, _a, b, place = handing_over()
    c = world.member("w-c", {"t": 3}).attach()
    world.to(20_000)
    b.leave("now")
    world.to(35_100)
    assert phase(world, place) is Phase.FORCED
    del c


def test_what_is_forced_is_forced_after_a_restart_too():
    world, a, b, place = handing_over()
    world.to(36_000)
    assert phase(world, place) is Phase.FORCED
    world.restart()
    world.to(38_000)
    a.attach()
    b.attach()
    assert order(a, place) is Order.LOST
    a.beat()
    assert a.acks[-1][1].not_renewed == (place,)
    world.to(48_000)
    assert place in b.active


def test_commits_count_until_the_switch():
    world, a, b, place = handing_over()
    world.to(36_000)
    assert a.commit(5, place) == [ErrorCode.NONE]
    token = a.orders[place].token
    world.to(46_000)
    assert place in b.active
    assert a.commit(6, place, token=token) == [ErrorCode.FENCED_TOKEN]


@pytest.mark.parametrize("is_atomic", [False, True])
def test_a_partition_without_a_token_is_refused_by_itself(is_atomic):
    world, a, _b = g2()
    first, second = a.active
    partitions = (
        PartitionCommit(*first, 5, token=a.orders[first].token),
        PartitionCommit(*second, 5),
    )
    call = world.new_call()
    world.send(
        CommitOffsets(
            call_id=call,
            group_id=GROUP,
            partitions=partitions,
            member_id=a.member_id,
            atomic=is_atomic,
        )
    )
    assert {(each.topic, each.partition): each.error for each in world.replies[call].results} == {
        first: ErrorCode.INVALID_REQUEST if is_atomic else ErrorCode.NONE,
        second: ErrorCode.INVALID_REQUEST,
    }


def test_a_member_may_ask_for_less_time():
    world = World()
    a = world.member("w-a", {"t": 4}).attach(drain_ms=5_000)
    world.to(100)
    b = world.member("w-b", {"t": 4}).attach()
    world.to(1_200)
    draining = [each for each in a.orders.values() if each.order is Order.DRAIN]
    assert [each.remaining_ms for each in draining] == [5_000]
    del b


# --- Warm and copy ---


def test_the_successor_prepares_while_the_holder_works():
    _world, a, b, place = handing_over(WARM)
    assert (order(a, place), order(b, place)) == (Order.ACTIVE, Order.WARM)
    assert b.orders[place].token == 0
    assert a.commit(5, place) == [ErrorCode.NONE]
    handoff_id = b.orders[place].handoff_id
    b.ack(place, "ready", handoff_id=handoff_id + 1)
    assert order(a, place) is Order.ACTIVE
    b.attach()
    assert b.orders[place].handoff_id == handoff_id
    b.ack(place, "ready")
    assert order(a, place) is Order.DRAIN
    a.ack(place)
    assert place in b.active


@pytest.mark.parametrize("how", ["leaves", "stands still"])
def test_no_budget_holds_back_what_a_leaver_hands_over(how):
    world = World(with_policy(mode=Mode.WARM, max_idle_ms=5_000, on_stall=OnStall.DRAIN))
    a = world.member("w-a", {"t": 4}).attach()
    world.to(100)
    b = world.member("w-b", {"t": 4}).attach()
    world.to(1_200)
    first, second = (place for place in b.orders if order(b, place) is Order.WARM)
    a.beats = b.beats = False
    b.ack(first, "ready", token=0)
    b.ack(second, "ready", token=0)
    assert (order(a, first), order(a, second)) == (Order.DRAIN, Order.ACTIVE)
    if how == "leaves":
        a.leave("drain", 20_000)
    else:
        for at in (2_500, 5_000, 7_500):
            world.to(at)
            b.beat(progress=at)
            a.beat(progress=1)
    assert order(a, second) is Order.DRAIN


def test_a_holder_that_dies_is_followed_ready_or_not():
    world, a, b, place = handing_over(WARM)
    a.beats = False
    world.to(15_100)
    assert place in b.active


def test_who_is_never_ready_is_given_up():
    world, a, b, place = handing_over(WARM)
    world.to(5_100 + 1_800_000)
    assert phase(world, place) is None
    assert order(a, place) is Order.ACTIVE
    assert order(b, place) is None


def test_a_successor_that_declares_the_partition_no_more_is_not_waited_for():
    world, a, b, place = handing_over(WARM)
    world.to(6_000)
    b.attach(topics=(("t", place[1]),))
    assert phase(world, place) is None
    assert place in a.active
    assert order(b, place) is None


def test_a_free_partition_is_granted_at_once_in_every_mode():
    world, a, b = g2(WARM)
    world.to(5_000)
    a.leave("now")
    world.to(5_100)
    assert len(b.active) == 3


def test_three_refusals_leave_a_partition_alone_for_a_while():
    world, a = g1()
    world.to(1_000)
    place = ("t", 0)
    for attempt in range(3):
        a.ack(place, "refused", reason="no disk")
        world.ask_again()
        world.to(world.now + 1_100)
        assert (place in a.active) is (attempt < 2)
    world.to(world.now + 10_000)
    assert place in a.active


def test_three_that_will_not_prepare_end_a_hand_off_and_nobody_else_is_asked():
    world = World(WARM)
    a = world.member("w-a", {"t": 1}).attach()
    world.to(200)
    others = [world.member(f"w-{name}", {"t": 1}).attach() for name in "bcdef"]
    world.to(5_000)
    place = ("t", 0)
    world.move(place, others[0])
    for _ in range(3):
        (asked,) = (each for each in others if order(each, place) is Order.WARM)
        asked.ack(place, "refused", token=0)
    assert world.group.handoff(place) is None
    assert place in a.active
    (event,) = (each for each in world.events if isinstance(each, PartitionRefused))
    assert (event.topic, event.partition, event.wait_ms) == (*place, 10_000)


def test_nobody_is_asked_for_what_a_leaver_holds_after_three_refusals_in_a_row():
    world = World(WARM)
    a = world.member("w-a", {"t": 1}).attach()
    world.to(200)
    others = [world.member(f"w-{name}", {"t": 1}).attach() for name in "bcdef"]
    world.to(5_000)
    place = ("t", 0)
    a.leave("drain", 60_000)
    world.to(5_100)
    for _ in range(3):
        (asked,) = (each for each in others if order(each, place) is Order.WARM)
        asked.ack(place, "refused", token=0)
        refused_at = world.now
        world.to(refused_at + 100)
    assert phase(world, place) is None
    world.to(refused_at + 9_999)
    assert phase(world, place) is None
    world.to(refused_at + 10_100)
    assert phase(world, place) is Phase.PREPARE


def test_refusals_with_a_hand_over_between_them_are_not_in_a_row():
    world, a = g1()
    world.to(1_000)
    place = ("t", 0)
    for kind in ("refused", "refused", "released", "refused"):
        assert place in a.active
        a.ack(place, kind)
        world.ask_again()
        world.to(world.now + 1_100)
    assert place in a.active


def test_copy_begins_where_the_holder_has_stopped():
    world, a, b, place = handing_over(COPY)
    a.commit(50, place)
    a.ack(place, position=70)
    assert order(b, place) is Order.WARM
    assert (b.orders[place].position, b.orders[place].offset) == (70, 50)
    assert world.group.holder(place) == ""
    b.ack(place, "ready")
    assert place in b.active


def test_copy_goes_to_another_one_if_the_first_dies():
    _world, a, b, place = handing_over(COPY)
    a.ack(place, position=70)
    b.leave("now")
    assert order(a, place) is Order.WARM
    assert a.orders[place].position == 70


@pytest.mark.parametrize("cause", ["its time is up", "it shall not have it"])
def test_copy_goes_to_another_one_if_the_first_is_not_ready(cause):
    world, a, b, place = handing_over(with_policy(mode=Mode.COPY, warm_timeout_ms=60_000))
    a.ack(place, position=70)
    if cause == "its time is up":
        world.to(5_100 + 60_000 - 1)
        assert (order(b, place), order(a, place)) == (Order.WARM, None)
        world.to(5_100 + 60_000)
    else:
        b.attach(topics=(("t", place[1]),))
    assert (order(b, place), order(a, place)) == (None, Order.WARM)
    assert phase(world, place) is Phase.COPY
    assert a.orders[place].position == 70
    a.ack(place, "ready")
    assert place in a.active


def test_copy_without_another_one_to_ask_leaves_the_partition_free_when_its_time_is_up():
    world, a, b, place = handing_over(with_policy(mode=Mode.COPY, warm_timeout_ms=60_000))
    a.ack(place)
    a.leave("now")
    world.to(5_100 + 60_000 - 1)
    assert phase(world, place) is Phase.COPY
    world.to(5_100 + 60_000)
    assert (phase(world, place), world.group.holder(place)) == (None, "")
    world.to(5_100 + 61_100)
    assert place in b.active


# --- Leases ---


def test_a_node_that_stood_still_grants_a_quarter_once():
    world, a, b = g2()
    world.to(7_600)
    a.beats = False
    world.now = 18_000
    world.pauses = (Pause(7_600, 18_000),)
    b.beat()
    world.to(20_499)
    assert a.member_id in world.group.members
    world.to(20_500)
    assert a.member_id not in world.group.members
    assert b.member_id in world.group.members


def test_after_an_end_without_consent_others_wait():
    world, a, b = g2(with_policy(handover_delay_ms=2_000))
    world.to(5_000)
    a.beats = False
    world.to(16_999)
    assert len(b.active) == 1
    world.to(17_100)
    assert len(b.active) == 3


def test_a_worker_that_stands_still_loses_its_partitions():
    world = World(with_policy(max_idle_ms=5_000, on_stall=OnStall.DRAIN))
    a, b = (world.member(name, {"t": 4}).attach() for name in ("w-a", "w-b"))
    world.to(100)
    a.beats = False
    for at in (2_500, 5_000, 7_500):
        world.to(at)
        a.beat(progress=1)
        b.beats = False
        b.beat(progress=at)
    world.to(7_600)
    assert all(each.order is Order.DRAIN for each in a.orders.values())
    a.beat(progress=2)
    assert world.group.members[a.member_id].receives


def test_a_changed_lease_counts_from_the_next_attach_that_was_heard():
    world, a, _ = g2(with_policy(lease_ms=45_000))
    world.to(10_000)
    world.store(PolicyStored(GROUP, with_policy(lease_ms=3_000)))
    world.to(20_000)
    a.beats = False
    a.attach()
    member = world.group.members[a.member_id]
    assert member.lease_ms == 45_000
    world.to(20_500)
    a.beat()
    assert member.lease_ms == 3_000
    world.to(23_500)
    assert a.member_id not in world.group.members


# --- Windows and budgets ---


def test_a_free_partition_does_not_wait_for_the_interval():
    world, a, b = g2()
    world.to(5_000)
    world.member("w-c", {"t": 3}).attach()
    world.to(5_100)
    world.to(5_250)
    a.leave("now")
    world.to(5_350)
    assert sum(len(member.active) for member in world.members[1:]) + len(b.active) >= 3


def test_arrivals_are_waited_for_but_not_for_ever():
    world, a, b = g2(with_policy(join_quiet_ms=1_000))
    a.releases = b.releases = True
    for number in range(12):
        world.to(10_000 + 900 * number)
        world.member(f"x-{number}", {"t": 3}).attach()
        if world.now < 20_000:
            assert world.state == "Assigning"
    world.to(20_000)
    assert world.group.planning.planned_at_ms == 20_000


def test_a_budget_opens_the_next_in_the_same_step():
    world = World()
    a = world.member("w-a", {"t": 1_000}).attach()
    world.to(100)
    world.member("w-b", {"t": 1_000}).attach()
    world.to(1_200)
    draining = [place for place, each in a.orders.items() if each.order is Order.DRAIN]
    assert len(draining) == 50
    a.ack(draining[0])
    assert sum(each.order is Order.DRAIN for each in a.orders.values()) == 50


# --- Names ---


def test_a_second_process_waits_for_the_first_ones_end():
    world, a, b = g2()
    held = a.active
    world.to(5_000)
    second = world.member(a.name, {"t": 3}, "i-2").attach()
    assert second.reply.standing is Standing.WAITING
    assert not second.active
    world.to(8_000)
    assert not second.active
    a.beats = False
    world.to(20_000)
    assert second.active == held
    assert len(b.active) == 1
    third = world.member(a.name, {"t": 3}, "i-3").attach()
    assert third.reply.standing is Standing.WAITING


# --- Kinds ---


def test_a_group_is_of_one_kind_while_it_has_members():
    from coordinator.core.requests import JoinGroup

    def join(world):
        call = world.new_call()
        world.send(
            JoinGroup(
                call_id=call,
                group_id=GROUP,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id="",
                protocol_type="consumer",
                protocols=(("range", b""),),
                require_known_member_id=False,
            )
        )
        return world.replies.get(call)

    world, a = g1()
    a.commit(7, ("t", 0))
    assert join(world).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    a.leave("now")
    assert join(world) is None, "parked: the group is classic"
    assert world.shard.machine.groups[GROUP].offsets["t", 0].offset == 7
    b = world.member("w-b", {"t": 4}).attach()
    assert b.reply.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("failure", [AppendFailure.UNAVAILABLE, AppendFailure.AMBIGUOUS])
def test_a_refusal_stands_while_the_switch_is_tried_again(failure):
    world, a, b, place = handing_over()
    a.commit(70, place)
    world.hold()
    a.ack(place)
    assert a.commit(80, place) == [ErrorCode.FENCED_TOKEN]
    world.release(failing=failure)
    assert a.commit(80, place) == [ErrorCode.FENCED_TOKEN]
    world.to(world.now + 2_000)
    assert b.orders[place].offset == 70


def test_outsiders_compare_and_set_every_partition_while_the_group_has_members():
    """Same rule as in classic groups (decision 0008): a sink that decides, and its files."""
    world, _, _ = g2()

    def refused(*, atomic: bool, expected: int | None) -> ErrorCode:
        call = world.new_call()
        files = PartitionCommit("__files.t", 0, 7, expected=expected)
        world.send(CommitOffsets(call_id=call, group_id=GROUP, partitions=(files,), atomic=atomic))
        return world.replies[call].results[0].error

    assert refused(atomic=False, expected=-1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(atomic=True, expected=None) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(atomic=True, expected=-1) is ErrorCode.NONE
    assert refused(atomic=True, expected=-1) is ErrorCode.OFFSET_MISMATCH


def outside(world: World, *commits: PartitionCommit, **fields) -> ErrorCode:
    call = world.new_call()
    world.send(
        CommitOffsets(call_id=call, group_id=GROUP, partitions=commits, atomic=True, **fields)
    )
    return world.replies[call].results[0].error


def test_outsiders_do_not_move_the_offset_of_a_live_holder_without_its_token():
    world, a, _ = g2()
    topic, partition = place = a.active[0]
    a.commit(5, place)
    token = a.orders[place].token
    back = PartitionCommit(topic, partition, 1, expected=5)
    assert outside(world, back) is ErrorCode.UNKNOWN_MEMBER_ID
    files = PartitionCommit("__files.t", 0, 7, expected=-1)
    assert outside(world, files, back) is ErrorCode.UNKNOWN_MEMBER_ID
    assert outside(world, replace(back, token=token - 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.group.offsets[place].offset == 5
    assert outside(world, replace(back, offset=6, token=token)) is ErrorCode.NONE
    assert world.group.offsets[place].offset == 6


def test_a_reset_that_requires_an_empty_group_is_refused_while_there_are_members():
    world, _, _ = g2()
    files = PartitionCommit("__files.t", 0, 7, expected=-1)
    assert outside(world, files, requires_empty=True) is ErrorCode.NON_EMPTY_GROUP


def test_outsiders_move_the_offset_of_a_partition_that_nobody_holds():
    world = World()
    a = world.member("w-a", {"t": 2}).attach(max_partitions=1)
    world.to(100)
    (free,) = {0, 1} - {partition for _, partition in a.active}
    assert outside(world, PartitionCommit("t", free, 3, expected=-1)) is ErrorCode.NONE


def test_a_decision_of_a_sink_moves_offsets_forwards_for_their_holders():
    world, a, _ = g2()
    topic, partition = place = a.active[0]
    a.commit(5, place)
    decided = PartitionCommit("__manifests", 0, 1, expected=-1)
    back = PartitionCommit(topic, partition, 1, expected=5)
    assert outside(world, decided, back) is ErrorCode.UNKNOWN_MEMBER_ID
    assert outside(world, decided, replace(back, offset=9)) is ErrorCode.NONE
    assert world.group.offsets[place].offset == 9


def test_a_drain_is_not_redirected_to_its_holder():
    world, a, b, place = handing_over()
    out = Outcome()
    phases.redirect(world.group, place, a.member_id, out)
    assert not out.writes
    phases.redirect(world.group, place, b.member_id, out)
    assert out.writes
