"""The journal of a session group: plans, hand-offs, and how long nobody worked on a partition."""

from __future__ import annotations

from coordinator.core.values import plan_journal as j
from coordinator.core.values.events import HandoffJournaled
from coordinator.core.values.policy import Mode, OnStall
from coordinator.core.values.records import Phase
from coordinator.observe.explain_sessions import explain_handoff
from tests.kit.session_scenario import SessionScenario, g1, g2, handing_over, with_policy


def plans(scenario):
    return list(scenario.group.journal.plans)


def lines(scenario):
    return [record.line for record in scenario.group.journal.handoffs]


def test_a_plan_tells_what_called_for_it_and_what_it_gives():
    scenario, a = g1()
    (plan,) = plans(scenario)
    assert plan.triggers == (j.PlanTrigger(j.TriggerCause.MEMBER_CAME, a.member_id),)
    assert (plan.called_at_ms, plan.made_at_ms) == (0, 100)
    assert (plan.member_count, plan.partition_count) == (1, 4)
    assert plan.counts == (("free", 4),)
    assert plan.moves == (j.PlannedMove("t", ((0, 3),), "", a.member_id, "free"),)
    assert plan.unowned == j.Unowned()


def test_a_plan_tells_how_many_members_had_refused():
    scenario, a, b = g2()
    scenario.to(5_000)
    assert plans(scenario)[-1].refusing_members == 0
    for partition in sorted(a.active)[:2]:
        a.ack(partition, "refused")
    scenario.to(6_500)
    assert plans(scenario)[-1].refusing_members == 1
    assert not set(a.active) & set(b.active)


def test_after_a_death_partitions_rested_since_their_holder_was_last_heard():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.beats = False
    held = a.active
    scenario.to(15_100)
    plan = plans(scenario)[-1]
    assert plan.triggers == (j.PlanTrigger(j.TriggerCause.MEMBER_DIED, a.member_id),)
    stop = j.WorkStop(j.StoppedBy.LAST_SEEN, 5_000, 7_500)
    assert {move.stop for move in plan.moves} == {stop}
    assert {move.source for move in plan.moves} == {a.member_id}
    given = [("t", p) for m in plan.moves for r in m.partitions for p in range(r[0], r[1] + 1)]
    assert sorted(given) == held
    assert plan.unowned == j.Unowned(2, 10_100, 20_200, 7_600, 15_200)
    assert not any(topic.idle_spans for topic in scenario.group.topics.values())
    del b


def test_a_commit_shows_that_its_holder_still_worked():
    scenario, a, _ = g2()
    partition = a.active[0]
    scenario.to(5_000)
    a.beats = False
    scenario.to(6_000)
    a.commit(5, partition)
    scenario.to(15_100)
    stops = {first: move.stop for move in plans(scenario)[-1].moves for first, _ in move.partitions}
    assert stops[partition[1]] == j.WorkStop(j.StoppedBy.LAST_SEEN, 6_000, 7_500)


def test_a_member_that_was_not_heard_by_this_owner():
    scenario, a, b = g2()
    scenario.to(10_001)
    scenario.restart()
    b.attach()
    scenario.to(20_200)
    plan = plans(scenario)[-1]
    assert j.PlanTrigger(j.TriggerCause.MEMBER_DIED, a.member_id) in plan.triggers
    stop = plan.moves[0].stop
    assert (stop.known_by, stop.earliest_ms) == (j.StoppedBy.NOT_SEEN, -1)


def test_a_handoff_by_consent():
    scenario, a, b, partition = handing_over()
    scenario.to(6_000)
    a.commit(5, partition)
    scenario.to(6_500)
    a.ack(partition, position=70)
    (line,) = lines(scenario)
    assert (line.source, line.mode, line.reason) == (a.member_id, "simple", "pinned")
    assert (line.opened_at_ms, line.drain_at_ms, line.forced_at_ms) == (5_100, 5_100, -1)
    assert (line.released_at_ms, line.ended_at_ms, line.position) == (6_500, 6_500, 70)
    assert line.outcome is j.HandoffOutcome.RELEASED
    assert not line.was_forced
    assert line.stop == j.WorkStop(j.StoppedBy.RELEASED, 6_000, 6_500)
    record = scenario.group.journal.handoffs[0]
    assert (record.member_id, record.ended_token) == (b.member_id, 2)


def test_a_handoff_tells_where_the_next_holder_began():
    scenario, a, _, partition = handing_over()
    a.commit(60, partition)
    scenario.hold()
    a.commit(65, partition)  # On its way when its member releases the partition.
    a.ack(partition, position=70)
    scenario.release()
    (line,) = lines(scenario)
    assert (line.position, line.start_offset) == (70, 65)
    (event,) = (e for e in scenario.events if isinstance(e, HandoffJournaled))
    assert event.record.line == line
    assert "it stopped at offset 70, and the next began at 65" in explain_handoff(event)
    scenario.restart()
    assert lines(scenario) == [line]


def test_a_handoff_by_force():
    scenario, a, _, partition = handing_over()
    scenario.to(45_000)
    (line,) = lines(scenario)
    assert (line.drain_at_ms, line.forced_at_ms, line.ended_at_ms) == (5_100, 35_100, 45_000)
    assert line.outcome is j.HandoffOutcome.FORCED
    assert line.was_forced
    assert line.stop == j.WorkStop(j.StoppedBy.FORCED, 5_100, 45_000)
    del a, partition


def test_a_handoff_whose_holder_answers_to_force():
    scenario, a, _, partition = handing_over()
    scenario.to(36_000)
    a.ack(partition)
    (line,) = lines(scenario)
    assert line.outcome is j.HandoffOutcome.RELEASED
    assert line.was_forced


def test_a_handoff_whose_holder_dies_or_leaves():
    scenario, a, _, _place = handing_over()
    a.beats = False
    scenario.to(15_000)
    (line,) = lines(scenario)
    assert line.outcome is j.HandoffOutcome.HOLDER_DIED
    assert line.stop == j.WorkStop(j.StoppedBy.LAST_SEEN, 5_000, 7_500)

    scenario, a, _, _place = handing_over()
    a.leave("now")
    (line,) = lines(scenario)
    assert line.outcome is j.HandoffOutcome.HOLDER_LEFT
    assert line.stop == j.WorkStop(j.StoppedBy.LEFT, 5_100, 5_100)


def test_a_copy_rests_until_its_successor_is_ready():
    scenario, a, b, partition = handing_over(with_policy(mode=Mode.COPY))
    scenario.to(6_000)
    a.ack(partition, position=70)
    scenario.to(9_000)
    b.ack(partition, "ready")
    (line,) = lines(scenario)
    assert (line.released_at_ms, line.ended_at_ms, line.position) == (6_000, 9_000, 70)
    assert line.stop.idle_ms(line.ended_at_ms) == (3_000, 3_900)


def test_a_preparation_that_nobody_ended_is_abandoned():
    scenario, _, _, partition = handing_over(with_policy(mode=Mode.WARM))
    scenario.to(5_100 + 1_800_000)
    (line,) = lines(scenario)
    assert line.outcome is j.HandoffOutcome.ABANDONED
    assert line.stop is None
    assert scenario.group.journal.handoffs[0].phase is Phase.HELD
    del partition


def test_the_journal_outlives_its_owner():
    scenario, a, b, partition = handing_over()
    a.ack(partition)
    before = plans(scenario), lines(scenario)
    scenario.restart()
    assert (plans(scenario), lines(scenario)) == before
    scenario.records = scenario.shard.records()
    scenario.restart()
    assert (plans(scenario), lines(scenario)) == before
    a.attach()
    b.attach()
    scenario.to(scenario.now + 100)


def test_twenty_plans_are_kept_and_empty_ones_are_none():
    scenario, a = g1()
    for number in range(30):
        scenario.to(5_000 + 2_000 * number)
        a.ack(("t", number % 4))
        scenario.to(scenario.now + 200)
    assert len(plans(scenario)) == 20
    assert plans(scenario)[-1].made_at_ms > 60_000
    records, planned_at_ms = len(scenario.records), scenario.planned_at_ms
    a.beat(ready=False)
    a.beat(ready=True)
    scenario.to(scenario.now + 5_000)
    assert scenario.planned_at_ms > planned_at_ms
    assert len(scenario.records) == records


def test_a_large_plan_is_told_in_part():
    scenario = SessionScenario()
    for number in range(150):
        scenario.member(f"w-{number:03}", {"t": 3_000}).attach()
    scenario.to(101)
    (plan,) = plans(scenario)
    assert plan.counts == (("free", 3_000),)
    told = sum(last - first + 1 for m in plan.moves for first, last in m.partitions)
    assert told > 0
    assert told + plan.left_out == 3_000
    assert len(plan.moves) <= 100
    assert len(plan.triggers) == 10
    assert plan.trigger_count == 150


def test_a_member_that_stands_still_is_counted_from_when_it_got_on_last():
    scenario, a, b = g2(with_policy(max_idle_ms=5_000, on_stall=OnStall.DRAIN))
    scenario.to(2_000)
    a.beat(progress=1)
    a.releases = True
    for at in range(3_000, 12_000, 1_000):
        scenario.to(at)
        b.beat(progress=at)
    assert len(b.active) == 3
    stalled = j.PlanTrigger(j.TriggerCause.MEMBER_STALLED, a.member_id)
    assert any(stalled in plan.triggers for plan in plans(scenario))
    stops = [line.stop for line in lines(scenario)]
    # The heartbeat at 2,500 went back to 0: it had got on between that and the one before.
    assert {stop.earliest_ms for stop in stops} == {2_000}
    assert min(stop.latest_ms for stop in stops) >= 7_000


def test_a_member_that_stands_still_is_counted_from_its_last_commit_if_that_is_known():
    scenario, a, b = g2(with_policy(max_idle_ms=5_000, on_stall=OnStall.RELEASE))
    a.beats = b.beats = False
    scenario.to(2_300)
    a.commit(5, a.active[0])
    for at in range(2_500, 30_000, 2_500):
        scenario.to(at)
        a.beat(progress=1)  # It got on before the first of these, and never again.
        b.beat(progress=at)
    stops = {line.stop for line in lines(scenario)}
    assert {stop.known_by for stop in stops} == {j.StoppedBy.FORCED}
    assert {stop.earliest_ms for stop in stops} == {0, 2_300}


def test_a_partition_that_is_given_up_without_an_order_is_counted_from_its_last_commit():
    scenario, a, b = g2()
    partition = a.active[0]
    scenario.to(3_000)
    a.commit(5, partition)
    scenario.to(9_000)
    a.ack(partition)
    scenario.to(9_200)
    (move,) = [move for plan in plans(scenario)[1:] for move in plan.moves]
    assert move.stop == j.WorkStop(j.StoppedBy.RELEASED, 3_000, 9_000)
    del b


# --- What goes on without a plan ---


def returned(plan):
    return [move for move in plan.moves if move.reason == j.RETURNED]


def test_an_outage_is_told_from_the_last_commit_of_a_member_that_lost_its_lease():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.commit(5, *a.active)
    held, given = a.active, b.active
    scenario.now = 23_000
    scenario.restart()
    a.attach(held=(), silent_ms=18_500)
    b.attach(held=())
    scenario.to(24_000)
    plan = plans(scenario)[-1]
    assert j.PlanTrigger(j.TriggerCause.FAIL_OVER) in plan.triggers
    assert (plan.counts, plan.moved) == ((("returned", 3),), 0)
    assert (a.active, b.active) == (held, given)
    stops = {move.target: (move.source, move.stop, move.resumed_at_ms) for move in returned(plan)}
    lost = j.StoppedBy.LOST
    assert stops[a.member_id] == (a.member_id, j.WorkStop(lost, 5_000, 14_500), 23_000)
    assert plan.unowned.ms_max == 18_000
    assert plan.unowned.partitions == 3


def test_a_member_that_goes_on_with_its_claims_was_suspended_for_the_outage():
    scenario, a, b = g2()
    scenario.now = 15_000
    scenario.restart()
    a.attach(silent_ms=14_000)
    b.attach()
    scenario.to(18_000)
    plan = plans(scenario)[-1]
    (move,) = returned(plan)
    assert (move.source, move.target) == (a.member_id, a.member_id)
    assert move.stop == j.WorkStop(j.StoppedBy.SUSPENDED, 1_000, 11_000)
    assert (move.resumed_at_ms, plan.unowned.partitions) == (15_000, 2)
    assert plan.is_return


def test_a_short_absence_of_the_coordinator_is_no_rest():
    scenario, a, b = g2()
    scenario.now = 5_000
    scenario.restart()
    a.attach(silent_ms=6_600)
    b.attach(silent_ms=6_600)
    scenario.to(8_000)
    assert len(plans(scenario)) == 1


def test_a_heartbeat_after_a_gap_tells_that_its_member_was_suspended():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.beats = False
    scenario.to(11_665)
    assert scenario.group.planning.draft.is_empty
    scenario.to(11_667)
    a.beat()
    scenario.to(13_000)
    (move,) = returned(plans(scenario)[-1])
    assert move.stop == j.WorkStop(j.StoppedBy.SUSPENDED, 5_000, 11_667)
    del b


def test_a_member_that_comes_back_without_its_lease_rested_since_it_was_last_heard():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.cut()
    scenario.to(14_000)
    a.attach(held=())
    scenario.to(16_000)
    plan = plans(scenario)[-1]
    assert j.PlanTrigger(j.TriggerCause.MEMBER_BACK, a.member_id) in plan.triggers
    (move,) = returned(plan)
    assert (move.stop, move.resumed_at_ms) == (j.WorkStop(j.StoppedBy.LOST, 5_000, 14_000), 14_000)
    assert (plan.unowned.ms_max, plan.unowned.partitions) == (9_000, 2)
    del b


def test_a_heartbeat_without_its_claims_tells_the_same():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.beats = False
    scenario.to(14_000)
    a.beat(held=(), applied=99)
    scenario.to(16_000)
    (move,) = returned(plans(scenario)[-1])
    assert move.stop == j.WorkStop(j.StoppedBy.LOST, 5_000, 14_000)
    del b


def test_a_restart_under_a_name_is_told_from_the_leave_to_the_return():
    scenario, a, b = g2()
    scenario.to(5_000)
    old_id, held = a.member_id, a.active
    a.leave("return", within_ms=30_000)
    scenario.to(7_500)
    a2 = scenario.member(a.name, {"t": 3}, "i-new").attach()
    scenario.to(9_000)
    plan = plans(scenario)[-1]
    assert a2.active == held
    (move,) = returned(plan)
    assert (move.source, move.target) == (old_id, a2.member_id)
    assert (move.stop, move.resumed_at_ms) == (j.WorkStop(j.StoppedBy.LEFT, 5_000, 5_000), 7_500)
    assert plan.unowned == j.Unowned(2, 2_500, 5_000, 2_500, 5_000)
    assert plan.is_return
    assert scenario.group.planning.draft.is_empty
    del b
