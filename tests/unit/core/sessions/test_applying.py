"""Results of plans, taken in slices: between two of them the shard handles what has come."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.core.sessions.holdings import cut, size_of
from coordinator.core.sessions.plan import applying, scheduler
from coordinator.core.values.ids import NO_TIME
from coordinator.core.values.plans import Numbered, Plan, Unplaced
from coordinator.core.values.records import PartitionsGranted
from coordinator.runtime.codec import encode
from tests.kit.session_scenario import SessionScenario
from tests.kit.steps import a_step

Slices = Callable[[int], None]
TOPICS = {"t-a": 31, "t-b": 14}


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> Slices:
    return lambda size: monkeypatch.setattr(applying, "SLICE", size)


def three(**fields: object) -> SessionScenario:
    scenario = SessionScenario()
    for name in "abc":
        member = scenario.member(f"w-{name}", TOPICS).attach(**fields)
        member.releases = True
    return scenario


def holdings(scenario: SessionScenario) -> dict[str, tuple[list[str], list[int]]]:
    topics = scenario.group.topics.items()
    return {name: (list(topic.holders), list(topic.tokens)) for name, topic in topics}


def granted(scenario: SessionScenario) -> list[int]:
    return [
        sum(size_of(grant.partitions) for grant in record.grants)
        for record in scenario.records
        if isinstance(record, PartitionsGranted)
    ]


def story(scenario: SessionScenario) -> SessionScenario:
    """A first plan, one that moves, and one of what a leaver has left."""
    scenario.to(2_000)
    scenario.member("w-d", TOPICS).attach().releases = True
    scenario.to(5_000)
    scenario.members[0].leave("now")
    scenario.to(8_000)
    return scenario


@pytest.mark.parametrize("size", [1, 7, 45])
def test_a_plan_in_slices_ends_as_one_that_is_taken_at_once(slices: Slices, size: int) -> None:
    at_once = story(three())
    slices(size)
    scenario = story(three())
    assert {holding: holders for holding, (holders, _) in holdings(scenario).items()} == {
        holding: holders for holding, (holders, _) in holdings(at_once).items()
    }
    assert [plan.counts for plan in scenario.group.journal.plans] == [
        plan.counts for plan in at_once.group.journal.plans
    ]
    assert scenario.state == "Stable"


def test_a_step_grants_a_slice_and_the_next_one_follows_at_once(slices: Slices) -> None:
    slices(10)
    scenario = three()
    scenario.to(100)
    assert granted(scenario) == [10]
    assert scenario.state == "Assigning"
    scenario.to(104)
    assert granted(scenario) == [10, 10, 10, 10, 5]
    assert scenario.state == "Stable"
    tokens = [token for _, tokens in holdings(scenario).values() for token in tokens]
    assert len({*tokens}) == 45
    (plan,) = scenario.group.journal.plans
    assert (plan.made_at_ms, plan.counts) == (100, (("free", 45),))


def test_a_slice_looks_at_what_has_come_before_it(slices: Slices) -> None:
    slices(10)
    scenario = three()
    scenario.to(100)
    held = {member.name: len(member.active) for member in scenario.members}
    late = next(member for member in scenario.members if not held[member.name])
    late.leave("now")
    scenario.to(104)
    assert late.member_id not in {h for holders, _ in holdings(scenario).values() for h in holders}
    assert scenario.state == "Assigning", "what was meant for it is planned again"
    scenario.to(300)
    assert sum(len(member.active) for member in scenario.members if member is not late) == 45
    assert scenario.state == "Stable"


def test_a_slice_grants_nothing_that_is_on_its_way() -> None:
    scenario = three()
    scenario.hold()
    scenario.to(100)
    group = scenario.group
    assert {
        partition_state.writes_pending for partition_state in group.partition_states.values()
    } == {1}
    numbered = Numbered((scenario.members[0].member_id,), ("t-a",))
    late, step = Plan({0: {0: ((0, 30),)}}, (), {}), a_step(scenario.now, scenario.config)
    rest = applying.begin(group, late, numbered, scenario.now)
    assert not applying.go_on(group, rest, step)
    assert rest.is_stale
    assert not step.out.writes


def test_a_maximum_counts_over_all_slices(slices: Slices, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was lowered while the plan was made, and nothing is durable before the last slice."""
    slices(10)
    monkeypatch.setattr(scheduler, "PLANNED_AT_ONCE", 30)
    scenario = SessionScenario()
    scenario.compute_ms = 400
    a = scenario.member("w-a", TOPICS).attach()
    scenario.to(200)
    a.attach(max_partitions=12)
    scenario.hold()
    scenario.to(600)
    scenario.release()
    assert len(a.active) == 12


def test_a_plan_of_a_group_that_empties_is_not_taken_any_further(slices: Slices) -> None:
    slices(10)
    scenario = three()
    scenario.to(101)
    for member in scenario.members:
        member.leave("now")
    assert scenario.state == "Empty"
    scenario.to(110)
    assert granted(scenario) == [10, 10]
    d = scenario.member("w-d", TOPICS).attach()
    scenario.to(300)
    assert len(d.active) == 45


def test_a_plan_grants_nothing_of_a_topic_that_nobody_declares_any_more(slices: Slices) -> None:
    slices(1)
    scenario = three()
    scenario.to(101)
    for member in scenario.members:
        member.topics = {"t-a": 31}
        member.attach()
    assert "t-b" not in scenario.group.topics
    scenario.to(300)
    assert sum(len(member.active) for member in scenario.members) == 31
    assert scenario.state == "Stable"


def test_a_new_owner_plans_what_the_last_one_had_not_taken(slices: Slices) -> None:
    slices(10)
    scenario = three()
    scenario.to(101)
    scenario.restart()
    for member in scenario.members:
        member.attach()
    scenario.to(scenario.now + 200)
    assert sum(len(member.active) for member in scenario.members) == 45
    assert scenario.state == "Stable"


def test_free_partitions_that_nobody_can_have_are_noted_in_slices(slices: Slices) -> None:
    slices(10)
    scenario = three(ready=False)
    scenario.to(103)
    assert not scenario.unplaced
    scenario.to(104)
    assert set(scenario.unplaced.values()) == {Unplaced.NOBODY_RECEIVES}
    assert len(scenario.unplaced) == 45
    assert scenario.state == "Stable"


def test_what_calls_for_a_plan_meanwhile_is_planned_after_it(slices: Slices) -> None:
    slices(1)
    scenario = three()
    scenario.to(110)
    d = scenario.member("w-d", TOPICS).attach()
    scenario.to(145)
    assert scenario.group.planning.applying is None
    assert scheduler.due(scenario.group, scenario.config) != NO_TIME
    assert not d.active
    scenario.to(3_000)
    assert len(d.active) == 11


@pytest.mark.parametrize("size_bytes", [1_500, 2_000])
def test_a_record_of_grants_is_bounded_by_its_size(
    monkeypatch: pytest.MonkeyPatch, size_bytes: int
) -> None:
    monkeypatch.setattr(applying, "RECORD_BYTES", size_bytes)
    topics = {f"{letter * 249}": 5 for letter in "abcdefgh"}
    scenario = SessionScenario()
    members = [scenario.member(f"w-{number}", topics).attach() for number in range(4)]
    scenario.to(200)
    assert sum(len(member.active) for member in members) == 40
    sizes = [len(encode(r)) for r in scenario.records if isinstance(r, PartitionsGranted)]
    assert max(sizes) <= size_bytes
    assert min(sizes[:-1]) > size_bytes // 2, "and it is made use of"


def test_a_grant_that_is_larger_than_a_record_may_be_goes_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(applying, "RECORD_BYTES", 10)
    scenario = three()
    scenario.to(200)
    assert len(granted(scenario)) == 6
    assert sum(granted(scenario)) == 45


@pytest.mark.parametrize(
    ("most", "head", "rest"),
    [
        (0, (), ((0, 4), (7, 7))),
        (4, ((0, 3),), ((4, 4), (7, 7))),
        (5, ((0, 4),), ((7, 7),)),
        (6, ((0, 4), (7, 7)), ()),
        (9, ((0, 4), (7, 7)), ()),
    ],
)
def test_ranges_are_cut_after_a_number_of_partitions(
    most: int, head: tuple[tuple[int, int], ...], rest: tuple[tuple[int, int], ...]
) -> None:
    assert cut(((0, 4), (7, 7)), most) == (head, rest)
