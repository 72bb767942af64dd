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
from tests.kit.steps import a_step
from tests.unit.core.sessions.kit import World

Slices = Callable[[int], None]
TOPICS = {"t-a": 31, "t-b": 14}


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> Slices:
    return lambda size: monkeypatch.setattr(applying, "SLICE", size)


def three(**fields: object) -> World:
    world = World()
    for name in "abc":
        member = world.member(f"w-{name}", TOPICS).attach(**fields)
        member.releases = True
    return world


def holdings(world: World) -> dict[str, tuple[list[str], list[int]]]:
    topics = world.group.topics.items()
    return {name: (list(topic.holders), list(topic.tokens)) for name, topic in topics}


def granted(world: World) -> list[int]:
    return [
        sum(size_of(grant.partitions) for grant in record.grants)
        for record in world.records
        if isinstance(record, PartitionsGranted)
    ]


def story(world: World) -> World:
    """A first plan, one that moves, and one of what a leaver has left."""
    world.to(2_000)
    world.member("w-d", TOPICS).attach().releases = True
    world.to(5_000)
    world.members[0].leave("now")
    world.to(8_000)
    return world


@pytest.mark.parametrize("size", [1, 7, 45])
def test_a_plan_in_slices_ends_as_one_that_is_taken_at_once(slices: Slices, size: int) -> None:
    at_once = story(three())
    slices(size)
    world = story(three())
    assert {each: holders for each, (holders, _) in holdings(world).items()} == {
        each: holders for each, (holders, _) in holdings(at_once).items()
    }
    assert [plan.counts for plan in world.group.journal.plans] == [
        plan.counts for plan in at_once.group.journal.plans
    ]
    assert world.state == "Stable"


def test_a_step_grants_a_slice_and_the_next_one_follows_at_once(slices: Slices) -> None:
    slices(10)
    world = three()
    world.to(100)
    assert granted(world) == [10]
    assert world.state == "Assigning"
    world.to(104)
    assert granted(world) == [10, 10, 10, 10, 5]
    assert world.state == "Stable"
    tokens = [token for _, tokens in holdings(world).values() for token in tokens]
    assert len({*tokens}) == 45
    (plan,) = world.group.journal.plans
    assert (plan.made_at_ms, plan.counts) == (100, (("free", 45),))


def test_a_slice_looks_at_what_has_come_before_it(slices: Slices) -> None:
    slices(10)
    world = three()
    world.to(100)
    held = {member.name: len(member.active) for member in world.members}
    late = next(member for member in world.members if not held[member.name])
    late.leave("now")
    world.to(104)
    assert late.member_id not in {h for holders, _ in holdings(world).values() for h in holders}
    assert world.state == "Assigning", "what was meant for it is planned again"
    world.to(300)
    assert sum(len(member.active) for member in world.members if member is not late) == 45
    assert world.state == "Stable"


def test_a_slice_grants_nothing_that_is_on_its_way() -> None:
    world = three()
    world.hold()
    world.to(100)
    group = world.group
    assert {each.writes_pending for each in group.partition_states.values()} == {1}
    numbered = Numbered((world.members[0].member_id,), ("t-a",))
    late, step = Plan({0: {0: ((0, 30),)}}, (), {}), a_step(world.now, world.config)
    rest = applying.begin(group, late, numbered, world.now)
    assert not applying.go_on(group, rest, step)
    assert rest.is_stale
    assert not step.out.writes


def test_a_maximum_counts_over_all_slices(slices: Slices, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was lowered while the plan was made, and nothing is durable before the last slice."""
    slices(10)
    monkeypatch.setattr(scheduler, "PLANNED_AT_ONCE", 30)
    world = World()
    world.compute_ms = 400
    a = world.member("w-a", TOPICS).attach()
    world.to(200)
    a.attach(max_partitions=12)
    world.hold()
    world.to(600)
    world.release()
    assert len(a.active) == 12


def test_a_plan_of_a_group_that_empties_is_not_taken_any_further(slices: Slices) -> None:
    slices(10)
    world = three()
    world.to(101)
    for member in world.members:
        member.leave("now")
    assert world.state == "Empty"
    world.to(110)
    assert granted(world) == [10, 10]
    d = world.member("w-d", TOPICS).attach()
    world.to(300)
    assert len(d.active) == 45


def test_a_plan_grants_nothing_of_a_topic_that_nobody_declares_any_more(slices: Slices) -> None:
    slices(1)
    world = three()
    world.to(101)
    for member in world.members:
        member.topics = {"t-a": 31}
        member.attach()
    assert "t-b" not in world.group.topics
    world.to(300)
    assert sum(len(member.active) for member in world.members) == 31
    assert world.state == "Stable"


def test_a_new_owner_plans_what_the_last_one_had_not_taken(slices: Slices) -> None:
    slices(10)
    world = three()
    world.to(101)
    world.restart()
    for member in world.members:
        member.attach()
    world.to(world.now + 200)
    assert sum(len(member.active) for member in world.members) == 45
    assert world.state == "Stable"


def test_free_partitions_that_nobody_can_have_are_noted_in_slices(slices: Slices) -> None:
    slices(10)
    world = three(ready=False)
    world.to(103)
    assert not world.group.planning.unplaced
    world.to(104)
    assert set(world.group.planning.unplaced.values()) == {Unplaced.NOBODY_RECEIVES}
    assert len(world.group.planning.unplaced) == 45
    assert world.state == "Stable"


def test_what_calls_for_a_plan_meanwhile_is_planned_after_it(slices: Slices) -> None:
    slices(1)
    world = three()
    world.to(110)
    d = world.member("w-d", TOPICS).attach()
    world.to(145)
    assert world.group.planning.applying is None
    assert scheduler.due(world.group, world.config) != NO_TIME
    assert not d.active
    world.to(3_000)
    assert len(d.active) == 11


@pytest.mark.parametrize("size_bytes", [1_500, 2_000])
def test_a_record_of_grants_is_bounded_by_its_size(
    monkeypatch: pytest.MonkeyPatch, size_bytes: int
) -> None:
    monkeypatch.setattr(applying, "RECORD_BYTES", size_bytes)
    topics = {f"{letter * 249}": 5 for letter in "abcdefgh"}
    world = World()
    members = [world.member(f"w-{number}", topics).attach() for number in range(4)]
    world.to(200)
    assert sum(len(member.active) for member in members) == 40
    sizes = [len(encode(r)) for r in world.records if isinstance(r, PartitionsGranted)]
    assert max(sizes) <= size_bytes
    assert min(sizes[:-1]) > size_bytes // 2, "and it is made use of"


def test_a_grant_that_is_larger_than_a_record_may_be_goes_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(applying, "RECORD_BYTES", 10)
    world = three()
    world.to(200)
    assert len(granted(world)) == 6
    assert sum(granted(world)) == 45


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
