"""Placing near: the sizes stay, and nothing could be nearer."""

import itertools
from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from coordinator.assignors.racks import place_near

from .laws import RACKS


def near_count(
    near: Sequence[frozenset[str]], owners: Sequence[int], rack_of: Sequence[str | None]
) -> int:
    return sum(rack_of[owner] in racks for racks, owner in zip(near, owners, strict=True))


@given(st.data())
def test_sizes_stay_and_no_other_placement_is_nearer(data: st.DataObject) -> None:
    rack_of = data.draw(st.lists(st.none() | st.sampled_from(RACKS), min_size=1, max_size=4))
    slots = data.draw(st.lists(st.integers(0, len(rack_of) - 1), max_size=6))
    near = [data.draw(st.frozensets(st.sampled_from(RACKS))) for _ in slots]
    owners = place_near(near, slots, rack_of)
    assert Counter(owners) == Counter(slots)
    assert near_count(near, owners, rack_of) == max(
        near_count(near, choice, rack_of) for choice in set(itertools.permutations(slots))
    )


def test_one_makes_room_for_another_through_a_third() -> None:
    near = [frozenset({"east", "north"}), frozenset({"north", "west"}), frozenset({"east"})]
    assert place_near(near, [0, 1, 2], ["east", "north", "west"]) == [1, 2, 0]


def test_whoever_is_near_already_stays() -> None:
    near = [frozenset({"east"}), frozenset({"west"}), frozenset({"east"}), frozenset({"west"})]
    assert place_near(near, [0, 1, 1, 0], ["east", "west"]) == [0, 1, 0, 1]
