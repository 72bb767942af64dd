"""Pairs of two checkouts: in which order, and what comes of them."""

from __future__ import annotations

import pytest

from tests.bench.compare import LostMembers, NotComparable, check, in_pairs, spread


def test_pairs_begin_with_either_in_turn():
    asked = []

    def cost(name: str) -> float:
        asked.append(name)
        return len(asked)

    assert in_pairs(cost, 3) == ([1, 4, 5], [2, 3, 6], 0)
    assert asked == ["old", "new", "new", "old", "old", "new"]


def test_a_pair_that_lost_members_is_measured_again_and_counted():
    costs = iter([1.0, LostMembers("1 of 40"), 2.0, 3.0, 4.0, 5.0])

    def cost(name: str) -> float:
        found = next(costs)
        if isinstance(found, LostMembers):
            raise found
        return found

    old, new, lost = in_pairs(cost, 2)
    assert (old, new, lost) == ([3.0, 4.0], [2.0, 5.0], 1)
    assert spread("x", old, new, lost)["x: pairs that lost members, measured again"] == 1


def test_a_ratio_is_that_of_a_pair_whatever_the_machine_does_meanwhile():
    machine = [1, 1, 5, 5, 1]  # How slow it is during each pair.
    old = [100.0 * slow for slow in machine]
    new = [110.0 * slow for slow in machine]
    found = spread("a beat, us", old, new)
    assert found["a beat, us: new in old, median"].value == pytest.approx(1.1)
    assert not found["a beat, us: new in old, median"].is_met
    assert found["a beat, us: new in old, lowest"] == pytest.approx(1.1)
    assert found["a beat, us: new in old, highest"] == pytest.approx(1.1)
    assert (found["a beat, us: old"], found["a beat, us: new"]) == (100, pytest.approx(110))


def test_a_folder_that_hides_another_checkout_is_not_measured(tmp_path):
    (tmp_path / "coordinator").mkdir()
    (tmp_path / "coordinator" / "__init__.py").touch()
    (tmp_path / "coordinator" / "__main__.py").touch()
    with pytest.raises(NotComparable, match="Python does not run the code of"):
        check(tmp_path)  # Its `timer` is not its own.
