"""Reports of benchmarks as tables and JSON."""

from __future__ import annotations

import pytest

from tests.bench.figures import Goal, median_of, percentile
from tests.bench.report import print_tables

RESULTS = {
    "machine": {"python": "3.11.7", "cores": 2},
    "wheel": {
        "empty call, ns": 41.25,
        "add + cancel, in empty calls": Goal(12.5, at_most=13),
        "asyncio, in add + cancel": Goal(4.9996, at_least=5),
    },
}


@pytest.mark.parametrize(
    ("goal", "is_met"),
    [
        (Goal(13.0, at_most=13), True),
        (Goal(13.0004, at_most=13), False),
        (Goal(5.0, at_least=5), True),
        (Goal(4.9996, at_least=5), False),
    ],
)
def test_a_goal_is_met_by_the_value_itself_and_not_by_its_rounding(goal, is_met):
    assert goal.is_met is is_met


def test_tables_say_for_each_goal_whether_it_is_met(capsys):
    print_tables(RESULTS)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert "python 3.11.7".split() in lines
    assert "add + cancel, in empty calls 12.5 13 at most met".split() in lines
    assert "asyncio, in add + cancel 5 5 at least missed".split() in lines


def test_a_percentile_is_one_of_the_values():
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [percentile(values, percent) for percent in (0, 50, 99, 100)] == [1, 3, 5, 5]
    assert percentile([], 99) == 0


def test_rounds_are_taken_in_turn():
    calls = []
    loops = {name: lambda name=name: calls.append(name) for name in "ab"}
    assert set(median_of(loops, rounds=3)) == {"a", "b"}
    assert calls == list("ababab")
