"""Durable state has one door: what is true live is what a load of the same log makes true."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from coordinator.core.classic import invariants
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.member import ClassicMember
from coordinator.core.config import GroupConfig
from coordinator.core.group import GroupState
from coordinator.core.values import records
from coordinator.core.values.errors import InvariantViolated
from coordinator.core.values.records import (
    GenerationFloor,
    GroupMetadata,
    MemberRecord,
    OffsetCommitted,
    OffsetDeleted,
)
from coordinator.core.values.replies import LogEnd
from coordinator.v1 import admin_pb2 as admin
from tests.kit.classic_scenario import GROUP, ClassicScenario, code

CORE = Path(records.__file__).parents[1]
DURABLE = {"assignment", "committed", "durable_generation", "journal", "manifest", "offsets"}
OFFSET = OffsetCommitted("g", "t", 0, 7)


def group_of(*member_ids: str, state: GroupState = GroupState.AWAITING_SYNC) -> ClassicGroup:
    """A group in generation 3; `i/m` is member m of instance i."""
    group = ClassicGroup("g", {}, Counter(), 0)
    for name in member_ids:
        instance_id, _, member_id = name.rpartition("/")
        member = ClassicMember(
            member_id,
            instance_id=instance_id or None,
            client_id="c",
            client_host="/old",
            rebalance_timeout_ms=500,
            session_timeout_ms=500,
            protocols=(("range", b""),),
            now_ms=0,
        )
        group.add_member(member)
    group.state, group.generation, group.protocol_name = state, 3, "range"
    return group


def metadata(*members: tuple[str, bytes], generation: int = 3) -> GroupMetadata:
    stored = []
    for name, assignment in members:
        instance_id, _, member_id = name.rpartition("/")
        stored.append(
            MemberRecord(member_id, instance_id or None, "d", "/new", 900, 800, b"", assignment)
        )
    leader = stored[0].member_id if stored else None
    return GroupMetadata("g", generation, "consumer", "range", leader, 0, tuple(stored))


# --- The door ---------------------------------------------------------------------------------


def test_a_record_gives_members_their_assignments():
    group = group_of("a", "b")
    group.apply(metadata(("a", b"x"), ("b", b"y"), ("gone", b"z")))
    assert {m.member_id: m.assignment for m in group.members.values()} == {"a": b"x", "b": b"y"}
    assert group.durable_generation == 3


def test_a_record_gives_a_restarted_process_its_place_in_a_stable_group():
    group = group_of("i/a", "b", state=GroupState.STABLE)
    group.leader_id = "a"
    group.apply(metadata(("i/new", b"x"), ("b", b"y")))
    assert list(group.members) == ["new", "b"]
    assert group.static_members == {"i": "new"}
    assert group.leader_id == "new"
    member = group.members["new"]
    assert (member.assignment, member.client_id, member.client_host) == (b"x", "d", "/new")
    assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (900, 800)
    assert group.members_by_host == {"/new": 1, "/old": 1}


@pytest.mark.parametrize("state", [GroupState.PREPARING_REBALANCE, GroupState.AWAITING_SYNC])
def test_a_record_gives_no_place_away_in_a_join_phase(state):
    group = group_of("i/a", state=state)
    group.apply(metadata(("i/new", b"x")))
    assert group.static_members == {"i": "a"}
    assert list(group.members) == ["a"]


def test_a_record_of_an_earlier_generation_gives_no_place_away():
    group = group_of("i/a", state=GroupState.STABLE)
    group.apply(metadata(("i/new", b"x"), generation=2))
    assert group.static_members == {"i": "a"}


def test_an_offset_that_is_durable_or_refused_is_awaited_no_longer():
    group = group_of("a")
    group.await_offset(("t", 0), 100)
    group.await_offset(("t", 0), 200)
    group.apply(OFFSET)
    assert group.pending_offsets == {("t", 0): (1, 200)}
    group.drop(OFFSET)
    assert not group.pending_offsets
    assert group.offsets == {("t", 0): OFFSET}


def test_a_deleted_offset_takes_the_end_of_its_log_along():
    group = group_of("a")
    group.apply(OFFSET)
    group.log_ends = {("t", n): LogEnd("t", n, 9, 0) for n in range(2)}
    group.apply(OffsetDeleted("g", "t", 0))
    assert not group.offsets
    assert list(group.log_ends) == [("t", 1)]


def changed_by(node: ast.AST) -> list[ast.expr]:
    """Return the targets that a statement, or a call of a dict's method, changes."""
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            return [t.value if isinstance(t, ast.Subscript) else t for t in targets]
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            return [target]
        case ast.Call(func=ast.Attribute(value=changed, attr="pop" | "clear" | "update")):
            return [changed]
    return []


def test_no_other_file_sets_a_durable_fact():
    """Constructors begin with nothing, and a rebalance may take assignments away."""
    found = {
        (path.name, ast.unparse(node))
        for path in CORE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for changed in changed_by(node)
        if isinstance(changed, ast.Attribute) and changed.attr in DURABLE
    }
    own = {(name, what) for name, what in found if what.startswith("self.")}
    assert {name for name, _ in own} == {"group.py"}
    assert found - own == {
        ("group.py", "member.assignment = stored.assignment"),
        ("rebalance.py", "waiting.assignment = b''"),
    }


def test_a_stable_group_whose_members_hold_what_no_record_says_violates_an_invariant():
    group = group_of("a", state=GroupState.STABLE)
    group.apply(metadata(("a", b"x")))
    group.leader_id = "a"
    invariants.check(group)
    group.members["a"].assignment = b"y"
    with pytest.raises(InvariantViolated, match="8: "):
        invariants.check(group)


# --- Live and at load -------------------------------------------------------------------------


def durable(s: ClassicScenario) -> list[records.Record]:
    return sorted(s.c.shard.records(), key=repr)


def held(s: ClassicScenario) -> dict:
    """Return what each member holds: instance id, assignment, host, time-outs, leadership."""
    group = s.c.shard.machine.groups[GROUP]
    return {
        m.member_id: (
            m.instance_id,
            m.assignment,
            m.client_host,
            m.session_timeout_ms,
            m.rebalance_timeout_ms,
            m.member_id == group.leader_id,
        )
        for m in group.members.values()
    }


def test_what_members_hold_is_the_same_after_a_load():
    s = ClassicScenario(group_rebalance_journal=True)
    a = s.f1(instance="i")
    parked = s.join()
    s.join(a, instance="i")
    b = parked.response.member_id
    s.sync(a, 2, {a: b"a", b: b"b"})
    s.sync(b, 2)
    s.join(instance="i", srt=700, rt=900)
    before, facts = held(s), durable(s)
    assert a not in before
    s.restart()
    assert held(s) == before
    assert durable(s) == facts


def test_what_is_durable_is_the_same_after_a_load_whatever_was_done():
    s = ClassicScenario(group_rebalance_journal=True)
    a = s.f1()
    s.commit({("t", 0): 1, ("t", 1): 2}, member_id=a, generation=1, manifest=b"m")
    s.leave(a)
    for _ in range(3):  # Generations without an assignment, and a group without members.
        s.join()
        s.advance(2_000)
    s.send(
        admin.OffsetDeleteRequest(
            group_id=GROUP, topics=[{"name": "t", "partitions": [{"partition_index": 1}]}]
        )
    )
    facts = durable(s)
    assert {type(fact).__name__ for fact in facts} >= {"OffsetCommitted", "ManifestStored"}
    s.restart()
    assert durable(s) == facts


def test_a_group_that_is_joined_while_its_deletion_is_on_its_way_promises_its_generation_anew():
    s = ClassicScenario()
    a = s.f1()
    s.leave(a)
    s.advance(600)
    assert s.state == "Empty"
    s.c.hold_appends()
    deleted = s.send(admin.DeleteGroupsRequest(groups_names=[GROUP]))
    joined = s.join()
    s.c.release_appends()
    assert [code(r) for r in deleted.response.results] == ["NONE"]
    facts = durable(s)
    assert facts == []
    s.advance(50)
    assert joined.response.generation_id == 3
    assert durable(s) == [GenerationFloor(GROUP, 2)], "no load hands 3 out again"
    s.restart()
    again = s.join()
    s.advance(50)
    assert again.response.generation_id == 4


def test_a_group_that_has_promised_a_generation_outlives_a_commit_that_fails():
    """It could be deleted, as one that was created for the commit; but the log knows it."""
    s = ClassicScenario()
    first = s.join(instance="i")
    s.advance(50)
    assert first.response.generation_id == 1
    s.restart()
    promised = durable(s)
    assert promised == [GenerationFloor(GROUP, 0)]
    s.c.fail_next_append("full")
    assert s.commit_codes({("t", 0): 0}, member_id="", generation=-1) != ["NONE"]
    assert durable(s) == promised
    again = s.join()
    s.advance(50)
    assert again.response.generation_id == 2, "1 was handed out before the restart"


def test_a_group_whose_end_could_not_be_written_outlives_a_commit_that_fails():
    """Its members are gone and the log knows nothing of it; its generation still never falls."""
    s = ClassicScenario()
    s.join(instance="i").cancel()
    s.c.fail_next_append("full")
    s.advance(50)
    assert (s.state, s.generation) == ("Empty", 1)
    s.c.fail_next_append("full")
    assert s.commit_codes({("t", 0): 0}, member_id="", generation=-1) != ["NONE"]
    assert (s.state, s.generation) == ("Empty", 1)
    assert durable(s) == []
    s.advance(GroupConfig().offsets_retention_check_interval_ms)
    assert s.state is None, "it is not kept for ever"


def test_no_rule_looks_at_the_account_of_the_journal():
    readers = {
        path.parent.name
        for path in CORE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "account"
    }
    assert readers == {"journal"}
