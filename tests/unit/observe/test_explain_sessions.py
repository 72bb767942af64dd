"""Plans and hand-offs of session groups in sentences, as messages, and as a timeline."""

from __future__ import annotations

from dataclasses import replace

from coordinator.cli.session_journal import timeline
from coordinator.core.values.events import HandoffJournaled
from coordinator.core.values.plan_journal import (
    HandoffLine,
    HandoffOutcome,
    PlannedMove,
    PlanRecord,
    PlanTrigger,
    StoppedBy,
    TriggerCause,
    Unowned,
    WorkStop,
)
from coordinator.core.values.records import PartitionSwitched, Phase, PhaseEntered
from coordinator.observe import explain_sessions
from coordinator.observe.explain_sessions import explain_handoff, explain_plan
from coordinator.observe.journal_rows import plan_row
from coordinator.observe.session_timeline import PartitionLane, as_text
from coordinator.service.grpc.translate.session_journal import journal
from coordinator.v1 import admin_pb2 as pb
from tests.unit.observe.test_session_metrics import PLAN, SWITCH

PLAN = replace(PLAN, unplaced=(("capacity", 8),))
FORCED = PartitionSwitched(
    "g", "t", 4, "m-b", 9,
    HandoffLine(
        8, "m-\x1b[2J", "simple", "balance", opened_at_ms=1_200, drain_at_ms=1_200,
        forced_at_ms=31_200, ended_at_ms=41_200, outcome=HandoffOutcome.FORCED,
        stop=WorkStop(StoppedBy.FORCED, 1_200, 40_200),
    ),
)  # fmt: skip

TOLD = """\
Plan of group 'g', 1970-01-01 00:00:01 UTC: 202 partitions of 300 to another holder, 2 members.
It was made 100 ms after the first event that called for it: \
nothing was heard of member 'm-a' for its whole lease.
200 partitions because nobody held them: t-0…99 from 'm-a' to 'm-b'.
2 partitions for balance.
Nobody had worked on 200 partitions: on one of them for between 0 ms and 400 ms, \
on all for between 0 ms and 40.0 s in sum.
8 partitions found no holder: all members have as many as they take.
2 hand-offs of it ended: 1 forced, 1 released.
t-4 of group 'g' went from 'm-\\x1b[2J' to 'm-b' in 40.0 s: \
'm-\\x1b[2J' did not release it in time, and its lease ran out \
(drained for 30.0 s, forced for 10.0 s); nobody worked on it for between 1.0 s and 40.0 s.
Nobody worked on t-4 for 40.0 s, the longest of them."""

OUTAGE = """\
Return in group 'g', 1970-01-01 00:00:21 UTC: \
2 partitions of 4 went on where they had been, without a plan; 2 members.
It began because the group had no coordinator until this node took it over.
t-0…1 of 'm-a' stood idle for between 9.0 s and 19.0 s: its lease could not be renewed until then.
Nobody had worked on 2 partitions: on one of them for between 9.0 s and 19.0 s, \
on all for between 18.0 s and 38.0 s in sum."""


def test_a_plan_says_why_it_was_made_what_moves_and_who_was_slow():
    text = explain_plan(PLAN, [HandoffJournaled("g", FORCED), HandoffJournaled("g", SWITCH)])
    assert "\n".join(text) == TOLD


def test_a_plan_shows_how_many_members_had_refused():
    [record] = journal("g", (replace(PLAN, refusing_members=2),), (), 0)
    assert isinstance(record, pb.Rebalance)
    assert plan_row(record).refusing_members == 2
    sentence = "2 members had refused what they were asked to take, and will be asked again later."
    assert sentence in record.explanation
    assert not any("asked" in each for each in explain_plan(PLAN))
    assert plan_row(pb.Rebalance.FromString(record.SerializeToString())) == plan_row(record)


def test_an_outage_says_how_long_members_rested_and_that_nobody_lost_anything():
    stop = WorkStop(StoppedBy.SUSPENDED, earliest_ms=1_000, latest_ms=11_000)
    move = PlannedMove("t", ((0, 1),), "m-a", "m-a", "returned", stop, resumed_at_ms=20_000)
    outage = PlanRecord(
        "g", (PlanTrigger(TriggerCause.FAIL_OVER),), 1, called_at_ms=19_000, made_at_ms=21_000,
        member_count=2, partition_count=4, counts=(("returned", 2),), moves=(move,),
        unowned=Unowned(2, 19_000, 38_000, 9_000, 18_000),
    )  # fmt: skip
    assert "\n".join(explain_plan(outage)) == OUTAGE
    [record] = journal("g", (outage,), (), 0)
    assert (record.cause_code, record.partitions_moved) == ("session_return", 0)
    assert (record.session_plan.moves[0].unowned_ms_min, record.unowned_ms_max) == (9_000, 19_000)


def test_members_are_named_and_what_goes_to_nobody_is_given_up():
    uuid = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"
    move = PlannedMove("t", ((0, 1),), f"w-a-{uuid}", "", "no_longer_declared")
    plan = replace(PLAN, moves=(move,), counts=(("no_longer_declared", 2),), left_out=0)
    text = explain_plan(plan)
    assert "2 partitions of 300 given up, to nobody, 2 members." in text[0]
    assert "t-0…1 from 'w-a' …4bed to nobody" in text[2]


def test_moves_between_two_members_are_one_group():
    some = [("u", 5, 5, "b"), ("t", 7, 7, "b"), ("t", 9, 9, "c"), ("t", 0, 3, "b")]
    moves = tuple(PlannedMove(t, ((a, z),), "a", to, "balance") for t, a, z, to in some)
    text = explain_plan(replace(PLAN, moves=moves, counts=(("balance", 7),)))[2]
    assert text == "7 partitions for balance: t-0…3,7, u-5 from 'a' to 'b'; t-9 from 'a' to 'c'."


def test_every_cause_and_outcome_has_a_sentence():
    assert set(explain_sessions._CAME_BACK) == set(StoppedBy)
    assert set(explain_sessions._CAUSES) == set(TriggerCause)
    assert set(explain_sessions._OUTCOMES) == set(HandoffOutcome)
    stays = PhaseEntered("g", "t", 3, Phase.HELD, line=SWITCH.line)
    assert "went from 'm-a' to 'm-a'" in explain_handoff(HandoffJournaled("g", stays))


def test_the_journal_has_each_plan_with_its_own_handoffs():
    later = replace(PLAN, made_at_ms=1_150)
    records = list(journal("g", (later, PLAN), (FORCED, SWITCH), 0))
    plans = [message for message in records if isinstance(message, pb.Rebalance)]
    handoffs = [message for message in records if isinstance(message, pb.SessionHandoff)]
    assert [plan.ended_at_ms for plan in plans] == [1_150, 1_100]
    assert "1 hand-off of it ended: 1 forced." in plans[0].explanation
    assert not any("ended" in sentence for sentence in plans[1].explanation)
    assert [(handoff.partition, handoff.outcome) for handoff in handoffs] == [
        (4, "forced"),
        (3, "released"),
    ]
    assert (handoffs[0].unowned_ms_min, handoffs[0].unowned_ms_max) == (1_000, 40_000)
    newest = list(journal("g", (later, PLAN), (FORCED, SWITCH), 1))
    assert len(newest) == 2  # The plan, and the hand-off that was opened since.
    move = plans[0].session_plan.moves[0]
    assert (move.unowned_ms_min, move.known_by) == (0, "released")


def test_a_handoff_that_called_for_a_plan_is_told_with_that_plan():
    """A member that stands still is forced before the plan is made that finds others."""
    assert FORCED.line is not None
    forced = replace(FORCED, line=replace(FORCED.line, reason="", opened_at_ms=1_120))
    called = replace(PLAN, called_at_ms=1_120, made_at_ms=1_150)
    plans = [
        record
        for record in journal("g", (called, PLAN), (forced,), 0)
        if isinstance(record, pb.Rebalance)
    ]
    assert "1 hand-off of it ended: 1 forced." in plans[0].explanation
    assert not any("ended" in sentence for sentence in plans[1].explanation)
    newest = list(journal("g", (called, PLAN), (forced,), 1))
    assert len(newest) == 2, "the newest plan comes with the hand-off that called for it"


def test_a_timeline_shows_what_rested_before_a_plan():
    plan = next(journal("g", (replace(PLAN, made_at_ms=2_000),), (), 0))
    assert isinstance(plan, pb.Rebalance)
    head, lane, meaning = (timeline("g", [], [plan]) or "").split("\n")
    assert "1 lane in" in head
    assert lane.startswith("t-0…99  " + "·" * 60)
    assert meaning == "· nobody works: the holder died, left, or was away"
    assert timeline("g", [], []) is None


def test_lanes_name_members_by_their_names_however_short_these_are():
    old, new = (f"w-{number}-1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4be{number}" for number in (1, 2))
    text = as_text("g", [PartitionLane("t-3", old, new, "idle", 1_000, -1, -1, -1, 2_000)])
    assert "'w-1' …4be1 → 'w-2' …4be2  1.0 s" in text


def test_a_timeline_has_a_lane_for_each_handoff():
    lanes = [
        PartitionLane("t-3", "m-a", "m-b", "warm", 1_000, 2_000, -1, 2_500, 2_500),
        PartitionLane("t-4", "m-a", "", "simple", 1_000, 1_000, 2_000, -1, 4_000),
        PartitionLane("t-5", "m-a", "m-c", "copy", 1_000, 1_000, -1, 2_000, 4_000),
    ]
    head, warm, forced, copy, *legend = as_text("g", lanes).split("\n")
    assert head == "Hand-offs of group 'g': 3 lanes in 3.0 s, from 1970-01-01 00:00:01 UTC."
    assert warm.split("  ")[1:2] == ["▓" * 20 + "═" * 10]
    assert forced.startswith("t-4  " + "═" * 20 + "×" * 40)
    assert forced.endswith("m-a → nobody  3.0 s")
    assert "═" * 20 + "░" * 40 in copy
    assert [line[0] for line in legend] == ["▓", "═", "×", "░"]
