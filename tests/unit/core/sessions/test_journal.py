"""The journal of a session group: plans, hand-offs, and how long nobody worked on a partition."""

from __future__ import annotations

from coordinator.core.values import plan_journal as j
from coordinator.core.values.events import HandoffJournaled
from coordinator.core.values.policy import Mode, OnStall
from coordinator.core.values.records import Phase
from coordinator.observe.explain_sessions import explain_handoff
from tests.unit.core.sessions.kit import World, g1, g2, handing_over, with_policy


def plans(world):
    return list(world.group.journal.plans)


def lines(world):
    return [record.line for record in world.group.journal.handoffs]


def test_a_plan_tells_what_called_for_it_and_what_it_gives():
    world, a = g1()
    (plan,) = plans(world)
    assert plan.triggers == (j.PlanTrigger(j.TriggerCause.MEMBER_CAME, a.member_id),)
    assert (plan.called_at_ms, plan.made_at_ms) == (0, 100)
    assert (plan.member_count, plan.partition_count) == (1, 4)
    assert plan.counts == (("free", 4),)
    assert plan.moves == (j.PlannedMove("t", ((0, 3),), "", a.member_id, "free"),)
    assert plan.unowned == j.Unowned()


def test_a_plan_tells_how_many_members_had_refused():
    world, a, b = g2()
    world.to(5_000)
    assert plans(world)[-1].refusing_members == 0
    for partition in sorted(a.active)[:2]:
        a.ack(partition, "refused")
    world.to(6_500)
    assert plans(world)[-1].refusing_members == 1
    assert not set(a.active) & set(b.active)


def test_after_a_death_partitions_rested_since_their_holder_was_last_heard():
    world, a, b = g2()
    world.to(5_000)
    a.beats = False
    held = a.active
    world.to(15_100)
    plan = plans(world)[-1]
    assert plan.triggers == (j.PlanTrigger(j.TriggerCause.MEMBER_DIED, a.member_id),)
    stop = j.WorkStop(j.StoppedBy.LAST_SEEN, 5_000, 7_500)
    assert {move.stop for move in plan.moves} == {stop}
    assert {move.source for move in plan.moves} == {a.member_id}
    given = [("t", p) for m in plan.moves for r in m.partitions for p in range(r[0], r[1] + 1)]
    assert sorted(given) == held
    assert plan.unowned == j.Unowned(2, 10_100, 20_200, 7_600, 15_200)
    assert not any(topic.idle_spans for topic in world.group.topics.values())
    del b


def test_a_commit_shows_that_its_holder_still_worked():
    world, a, _ = g2()
    partition = a.active[0]
    world.to(5_000)
    a.beats = False
    world.to(6_000)
    a.commit(5, partition)
    world.to(15_100)
    stops = {first: move.stop for move in plans(world)[-1].moves for first, _ in move.partitions}
    assert stops[partition[1]] == j.WorkStop(j.StoppedBy.LAST_SEEN, 6_000, 7_500)


def test_a_member_that_was_not_heard_by_this_owner():
    world, a, b = g2()
    world.to(10_001)
    world.restart()
    b.attach()
    world.to(20_200)
    plan = plans(world)[-1]
    assert j.PlanTrigger(j.TriggerCause.MEMBER_DIED, a.member_id) in plan.triggers
    stop = plan.moves[0].stop
    assert (stop.known_by, stop.earliest_ms) == (j.StoppedBy.NOT_SEEN, -1)


def test_a_handoff_by_consent():
    world, a, b, partition = handing_over()
    world.to(6_000)
    a.commit(5, partition)
    world.to(6_500)
    a.ack(partition, position=70)
    (line,) = lines(world)
    assert (line.source, line.mode, line.reason) == (a.member_id, "simple", "pinned")
    assert (line.opened_at_ms, line.drain_at_ms, line.forced_at_ms) == (5_100, 5_100, -1)
    assert (line.released_at_ms, line.ended_at_ms, line.position) == (6_500, 6_500, 70)
    assert line.outcome is j.HandoffOutcome.RELEASED
    assert not line.was_forced
    assert line.stop == j.WorkStop(j.StoppedBy.RELEASED, 6_000, 6_500)
    record = world.group.journal.handoffs[0]
    assert (record.member_id, record.ended_token) == (b.member_id, 2)


def test_a_handoff_tells_where_the_next_holder_began():
    world, a, _, partition = handing_over()
    a.commit(60, partition)
    world.hold()
    a.commit(65, partition)  # On its way when its member releases the partition.
    a.ack(partition, position=70)
    world.release()
    (line,) = lines(world)
    assert (line.position, line.start_offset) == (70, 65)
    (event,) = (e for e in world.events if isinstance(e, HandoffJournaled))
    assert event.record.line == line
    assert "it stopped at offset 70, and the next began at 65" in explain_handoff(event)
    world.restart()
    assert lines(world) == [line]


def test_a_handoff_by_force():
    world, a, _, partition = handing_over()
    world.to(45_000)
    (line,) = lines(world)
    assert (line.drain_at_ms, line.forced_at_ms, line.ended_at_ms) == (5_100, 35_100, 45_000)
    assert line.outcome is j.HandoffOutcome.FORCED
    assert line.was_forced
    assert line.stop == j.WorkStop(j.StoppedBy.FORCED, 5_100, 45_000)
    del a, partition


def test_a_handoff_whose_holder_answers_to_force():
    world, a, _, partition = handing_over()
    world.to(36_000)
    a.ack(partition)
    (line,) = lines(world)
    assert line.outcome is j.HandoffOutcome.RELEASED
    assert line.was_forced


def test_a_handoff_whose_holder_dies_or_leaves():
    world, a, _, _place = handing_over()
    a.beats = False
    world.to(15_000)
    (line,) = lines(world)
    assert line.outcome is j.HandoffOutcome.HOLDER_DIED
    assert line.stop == j.WorkStop(j.StoppedBy.LAST_SEEN, 5_000, 7_500)

    world, a, _, _place = handing_over()
    a.leave("now")
    (line,) = lines(world)
    assert line.outcome is j.HandoffOutcome.HOLDER_LEFT
    assert line.stop == j.WorkStop(j.StoppedBy.LEFT, 5_100, 5_100)


def test_a_copy_rests_until_its_successor_is_ready():
    world, a, b, partition = handing_over(with_policy(mode=Mode.COPY))
    world.to(6_000)
    a.ack(partition, position=70)
    world.to(9_000)
    b.ack(partition, "ready")
    (line,) = lines(world)
    assert (line.released_at_ms, line.ended_at_ms, line.position) == (6_000, 9_000, 70)
    assert line.stop.idle_ms(line.ended_at_ms) == (3_000, 3_900)


def test_a_preparation_that_nobody_ended_is_abandoned():
    world, _, _, partition = handing_over(with_policy(mode=Mode.WARM))
    world.to(5_100 + 1_800_000)
    (line,) = lines(world)
    assert line.outcome is j.HandoffOutcome.ABANDONED
    assert line.stop is None
    assert world.group.journal.handoffs[0].phase is Phase.HELD
    del partition


def test_the_journal_outlives_its_owner():
    world, a, b, partition = handing_over()
    a.ack(partition)
    before = plans(world), lines(world)
    world.restart()
    assert (plans(world), lines(world)) == before
    world.records = world.shard.records()
    world.restart()
    assert (plans(world), lines(world)) == before
    a.attach()
    b.attach()
    world.to(world.now + 100)


def test_twenty_plans_are_kept_and_empty_ones_are_none():
    world, a = g1()
    for number in range(30):
        world.to(5_000 + 2_000 * number)
        a.ack(("t", number % 4))
        world.to(world.now + 200)
    assert len(plans(world)) == 20
    assert plans(world)[-1].made_at_ms > 60_000
    records, planned_at_ms = len(world.records), world.group.planning.planned_at_ms
    a.beat(ready=False)
    a.beat(ready=True)
    world.to(world.now + 5_000)
    assert world.group.planning.planned_at_ms > planned_at_ms
    assert len(world.records) == records


def test_a_large_plan_is_told_in_part():
    world = World()
    for number in range(150):
        world.member(f"w-{number:03}", {"t": 3_000}).attach()
    world.to(101)
    (plan,) = plans(world)
    assert plan.counts == (("free", 3_000),)
    told = sum(last - first + 1 for m in plan.moves for first, last in m.partitions)
    assert told > 0
    assert told + plan.left_out == 3_000
    assert len(plan.moves) <= 100
    assert len(plan.triggers) == 10
    assert plan.trigger_count == 150


def test_a_member_that_stands_still_is_counted_from_when_it_got_on_last():
    world, a, b = g2(with_policy(max_idle_ms=5_000, on_stall=OnStall.DRAIN))
    world.to(2_000)
    a.beat(progress=1)
    a.releases = True
    for at in range(3_000, 12_000, 1_000):
        world.to(at)
        b.beat(progress=at)
    assert len(b.active) == 3
    stalled = j.PlanTrigger(j.TriggerCause.MEMBER_STALLED, a.member_id)
    assert any(stalled in plan.triggers for plan in plans(world))
    stops = [line.stop for line in lines(world)]
    # The heartbeat at 2,500 went back to 0: it had got on between that and the one before.
    assert {stop.earliest_ms for stop in stops} == {2_000}
    assert min(stop.latest_ms for stop in stops) >= 7_000


def test_a_member_that_stands_still_is_counted_from_its_last_commit_if_that_is_known():
    world, a, b = g2(with_policy(max_idle_ms=5_000, on_stall=OnStall.RELEASE))
    a.beats = b.beats = False
    world.to(2_300)
    a.commit(5, a.active[0])
    for at in range(2_500, 30_000, 2_500):
        world.to(at)
        a.beat(progress=1)  # It got on before the first of these, and never again.
        b.beat(progress=at)
    stops = {line.stop for line in lines(world)}
    assert {stop.known_by for stop in stops} == {j.StoppedBy.FORCED}
    assert {stop.earliest_ms for stop in stops} == {0, 2_300}


def test_a_partition_that_is_given_up_without_an_order_is_counted_from_its_last_commit():
    world, a, b = g2()
    partition = a.active[0]
    world.to(3_000)
    a.commit(5, partition)
    world.to(9_000)
    a.ack(partition)
    world.to(9_200)
    (move,) = [move for plan in plans(world)[1:] for move in plan.moves]
    assert move.stop == j.WorkStop(j.StoppedBy.RELEASED, 3_000, 9_000)
    del b


# --- What goes on without a plan ---


def returned(plan):
    return [move for move in plan.moves if move.reason == j.RETURNED]


def test_an_outage_is_told_from_the_last_commit_of_a_member_that_lost_its_lease():
    world, a, b = g2()
    world.to(5_000)
    a.commit(5, *a.active)
    held, given = a.active, b.active
    world.now = 23_000
    world.restart()
    a.attach(held=(), silent_ms=18_500)
    b.attach(held=())
    world.to(24_000)
    plan = plans(world)[-1]
    assert j.PlanTrigger(j.TriggerCause.FAIL_OVER) in plan.triggers
    assert (plan.counts, plan.moved) == ((("returned", 3),), 0)
    assert (a.active, b.active) == (held, given)
    stops = {move.target: (move.source, move.stop, move.resumed_at_ms) for move in returned(plan)}
    lost = j.StoppedBy.LOST
    assert stops[a.member_id] == (a.member_id, j.WorkStop(lost, 5_000, 14_500), 23_000)
    assert plan.unowned.ms_max == 18_000
    assert plan.unowned.partitions == 3


def test_a_member_that_goes_on_with_its_claims_was_suspended_for_the_outage():
    world, a, b = g2()
    world.now = 15_000
    world.restart()
    a.attach(silent_ms=14_000)
    b.attach()
    world.to(18_000)
    plan = plans(world)[-1]
    (move,) = returned(plan)
    assert (move.source, move.target) == (a.member_id, a.member_id)
    assert move.stop == j.WorkStop(j.StoppedBy.SUSPENDED, 1_000, 11_000)
    assert (move.resumed_at_ms, plan.unowned.partitions) == (15_000, 2)
    assert plan.is_return


def test_a_short_absence_of_the_coordinator_is_no_rest():
    world, a, b = g2()
    world.now = 5_000
    world.restart()
    a.attach(silent_ms=6_600)
    b.attach(silent_ms=6_600)
    world.to(8_000)
    assert len(plans(world)) == 1


def test_a_heartbeat_after_a_gap_tells_that_its_member_was_suspended():
    world, a, b = g2()
    world.to(5_000)
    a.beats = False
    world.to(11_665)
    assert world.group.planning.draft.is_empty
    world.to(11_667)
    a.beat()
    world.to(13_000)
    (move,) = returned(plans(world)[-1])
    assert move.stop == j.WorkStop(j.StoppedBy.SUSPENDED, 5_000, 11_667)
    del b


def test_a_member_that_comes_back_without_its_lease_rested_since_it_was_last_heard():
    world, a, b = g2()
    world.to(5_000)
    a.cut()
    world.to(14_000)
    a.attach(held=())
    world.to(16_000)
    plan = plans(world)[-1]
    assert j.PlanTrigger(j.TriggerCause.MEMBER_BACK, a.member_id) in plan.triggers
    (move,) = returned(plan)
    assert (move.stop, move.resumed_at_ms) == (j.WorkStop(j.StoppedBy.LOST, 5_000, 14_000), 14_000)
    assert (plan.unowned.ms_max, plan.unowned.partitions) == (9_000, 2)
    del b


def test_a_heartbeat_without_its_claims_tells_the_same():
    world, a, b = g2()
    world.to(5_000)
    a.beats = False
    world.to(14_000)
    a.beat(held=(), applied=99)
    world.to(16_000)
    (move,) = returned(plans(world)[-1])
    assert move.stop == j.WorkStop(j.StoppedBy.LOST, 5_000, 14_000)
    del b


def test_a_restart_under_a_name_is_told_from_the_leave_to_the_return():
    world, a, b = g2()
    world.to(5_000)
    old_id, held = a.member_id, a.active
    a.leave("return", within_ms=30_000)
    world.to(7_500)
    a2 = world.member(a.name, {"t": 3}, "i-new").attach()
    world.to(9_000)
    plan = plans(world)[-1]
    assert a2.active == held
    (move,) = returned(plan)
    assert (move.source, move.target) == (old_id, a2.member_id)
    assert (move.stop, move.resumed_at_ms) == (j.WorkStop(j.StoppedBy.LEFT, 5_000, 5_000), 7_500)
    assert plan.unowned == j.Unowned(2, 2_500, 5_000, 2_500, 5_000)
    assert plan.is_return
    assert world.group.planning.draft.is_empty
    del b
