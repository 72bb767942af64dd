"""Range: runs per topic, co-partitioning, racks."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from coordinator.assignors.base import ClusterMetadata, Subscription, in_member_order
from coordinator.assignors.range import RangeAssignor

from .laws import TOPICS, Group, check_valid, groups, sizes, tps, wanting

assign = RangeAssignor().assign

TABLE = [
    # Scenario 181.
    (
        {"t0": 3, "t1": 3},
        {"C0": wanting("t0", "t1"), "C1": wanting("t0", "t1")},
        {"C0": tps("t0:0,1", "t1:0,1"), "C1": tps("t0:2", "t1:2")},
    ),
    ({"t0": 3}, {"C0": wanting()}, {"C0": ()}),
    ({"t0": 3}, {"C0": wanting("nowhere")}, {"C0": ()}),
    ({"t0": 0}, {"C0": wanting("t0")}, {"C0": ()}),
    ({"t0": 3}, {}, {}),
    # Fewer partitions than subscribers; a topic listed twice.
    (
        {"t0": 1},
        {"C0": wanting("t0", "t0"), "C1": wanting("t0")},
        {"C0": tps("t0:0"), "C1": ()},
    ),
    # Each topic is cut among its own subscribers.
    (
        {"t0": 3, "t1": 2},
        {"C0": wanting("t0"), "C1": wanting("t0", "t1"), "C2": wanting("t0")},
        {"C0": tps("t0:0"), "C1": tps("t0:1", "t1:0,1"), "C2": tps("t0:2")},
    ),
]


def test_static_members_keep_their_runs_when_member_ids_change() -> None:
    """Scenario 182."""
    view = ClusterMetadata({"t0": 5, "t1": 4})

    def restarted(*member_ids: str) -> dict[str, Subscription]:
        return {
            member_id: wanting("t0", "t1", instance_id=f"i{number}")
            for number, member_id in enumerate(member_ids)
        }

    before = assign(view, restarted("x", "y", "z"))
    after = assign(view, restarted("z", "y", "x"))
    assert (before["x"], before["y"], before["z"]) == (after["z"], after["y"], after["x"])
    assert before["x"] == list(tps("t0:0,1", "t1:0,1"))


def test_static_members_are_served_before_dynamic_ones() -> None:
    members = {"a": wanting("t"), "z": wanting("t", instance_id="i")}
    assert assign(ClusterMetadata({"t": 1}), members) == {"a": [], "z": list(tps("t:0"))}


@given(groups())
def test_valid(group: Group) -> None:
    check_valid(*group, assign(*group))


@given(groups(with_racks=True))
def test_every_topic_is_cut_evenly_longer_runs_first_racks_or_not(
    group: Group,
) -> None:
    view, members = group
    assignment = assign(view, members)
    check_valid(view, members, assignment)
    for topic in TOPICS:
        subscribers = [m for m in in_member_order(members) if topic in members[m].topics]
        counts = [sum(tp.topic == topic for tp in assignment[m]) for m in subscribers]
        assert counts == sorted(counts, reverse=True)
        assert not counts or counts[0] - counts[-1] <= 1


@given(groups(equal=True))
def test_without_racks_runs_are_consecutive(
    group: Group,
) -> None:
    for partitions in assign(*group).values():
        for _, run in itertools.groupby(partitions, key=lambda tp: tp.topic):
            numbers = [tp.partition for tp in run]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@given(groups(with_racks=True), st.integers(1, 5))
def test_co_partitioned_topics_stay_together(group: Group, count: int) -> None:
    view, members = group
    view = ClusterMetadata({"a": count, "b": count}, view.racks)
    members = {m: wanting("a", "b", rack=s.rack) for m, s in members.items()}
    for partitions in assign(view, members).values():
        numbers = {topic: {p for t, p in partitions if t == topic} for topic in "ab"}
        assert numbers["a"] == numbers["b"]


def test_racks_decide_who_takes_what_but_not_how_much() -> None:
    members = {"C0": wanting("t", rack="east"), "C1": wanting("t", rack="west")}
    racks = {
        tp: frozenset({"west"} if tp.partition in (0, 2) else {"east"}) for tp in tps("t:0,1,2,3")
    }
    assert assign(ClusterMetadata({"t": 4}, racks), members) == {
        "C0": list(tps("t:1,3")),
        "C1": list(tps("t:0,2")),
    }


def test_replicas_in_every_rack_leave_the_runs_alone() -> None:
    members = {"C0": wanting("t", rack="east"), "C1": wanting("t", rack="west")}
    racks = {tp: frozenset({"east", "west"}) for tp in tps("t:0,1,2,3")}
    view = ClusterMetadata({"t": 4}, racks)
    assert assign(view, members) == assign(ClusterMetadata({"t": 4}), members)


@given(groups(with_racks=True), st.integers(1, 6))
def test_one_topic_is_as_near_as_any_assignment_of_the_same_sizes(group: Group, count: int) -> None:
    view, members = group
    view = ClusterMetadata({"a": count}, view.racks)
    members = {m: wanting("a", rack=s.rack) for m, s in list(members.items())[:3]}

    def near_count(takers: tuple[str, ...]) -> int:
        partitions = tps(f"a:{','.join(map(str, range(count)))}")
        return sum(
            members[m].rack in view.racks.get(tp, ())
            for m, tp in zip(takers, partitions, strict=True)
        )

    assignment = assign(view, members)
    if members:
        taker_of = {tp.partition: m for m, partitions in assignment.items() for tp in partitions}
        takers = tuple(taker_of[partition] for partition in range(count))
        assert near_count(takers) == max(map(near_count, set(itertools.permutations(takers))))
    assert sizes(assignment) == sizes(assign(ClusterMetadata({"a": count}), members))
