"""Declarations of members: what they add up to, and that equal ones are kept once."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from coordinator.core.sessions.declared import Declarations, Topics
from coordinator.core.values.plan_journal import PartlyDeclared
from coordinator.observe.explain_sessions import explain_plan
from coordinator.observe.spelling import member_of
from tests.kit.session_scenario import SessionScenario

declared = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4)), unique_by=lambda t: t[0])


def summed(members: Sequence[Topics]) -> dict[str, int]:
    found: dict[str, int] = {}
    for topics in members:
        for name, count in topics:
            found[name] = max(count, found.get(name, 0))
    return found


@given(st.lists(st.tuples(st.booleans(), declared.map(tuple)), max_size=30))
def test_counts_are_those_of_the_members_that_are_left(steps: list[tuple[bool, Topics]]) -> None:
    found, members = Declarations(), list[Topics]()
    for comes, topics in steps:
        if comes or not members:
            members.append(found.add(topics).topics)
        else:
            found.remove(members.pop(len(topics) % len(members)))
        assert found.counts == summed(members)
        assert found.total == sum(found.counts.values())


def test_members_that_declare_the_same_share_it_also_after_a_restart() -> None:
    scenario = SessionScenario()
    for name in "ab":
        scenario.member(f"w-{name}", {"t": 4, "u": 2}).attach()
    scenario.to(200)
    scenario.members[1].attach(capacity=2.0)
    scenario.restart()
    for member in scenario.members:
        member.attach()
    a, b = (scenario.group.members[member.member_id] for member in scenario.members)
    assert b.record.capacity == 1.0, "its record has changed twice"
    assert a.record.topics is b.record.topics
    assert b.decided is b.record


def test_what_is_declared_again_after_it_was_given_back_has_rows_again() -> None:
    scenario = SessionScenario()
    a = scenario.member("w-a", {"t": 4, "u": 2}).attach()
    scenario.to(200)
    a.topics = {"t": 4}
    a.releases = True
    a.attach()
    scenario.to(1_000)
    scenario.members[0].topics = {"t": 4, "u": 2}
    a.attach()
    b = scenario.member("w-b", {"t": 4, "u": 2}).attach()
    scenario.to(4_000)
    assert sorted(a.active + b.active) == [
        ("t", 0),
        ("t", 1),
        ("t", 2),
        ("t", 3),
        ("u", 0),
        ("u", 1),
    ]


def test_a_plan_tells_which_partitions_only_some_members_declare() -> None:
    scenario = SessionScenario()
    a = scenario.member("w-a", {"t": 4}).attach()
    b = scenario.member("w-b", {"t": 6, "u": 2}).attach()
    scenario.to(200)
    plan = scenario.group.journal.plans[-1]
    assert plan.partly_declared == (
        PartlyDeclared("t", 4, 5, (b.member_id,), 1),
        PartlyDeclared("u", 0, 1, (b.member_id,), 1),
    )
    assert f"t-4…5 is declared only by {member_of(b.member_id)}." in explain_plan(plan)
    assert {partition for partition in a.active if partition[0] == "t"} <= {
        ("t", p) for p in range(4)
    }
    scenario.restart()
    assert scenario.group.journal.plans[-1] == plan


def test_a_plan_of_members_that_declare_the_same_does_not_look_at_them() -> None:
    found = Declarations()
    found.add((("t", 4),))
    found.add((("t", 4),))
    assert found.partly(iter(lambda: 1 / 0, None)) == ()  # Nobody is asked.
