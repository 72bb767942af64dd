"""Reports of benchmarks as tables, JSON and pictures."""

from __future__ import annotations

import json
import sys

import pytest

from tests.bench.figures import CannotMeasure, Goal, best_of, machine, median_of, percentile, shown
from tests.bench.report import Curve, Panel, Picture, draw, print_tables, write_json

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


@pytest.mark.parametrize("bounds", [{}, {"at_most": 1, "at_least": 1}])
def test_a_goal_has_one_bound(bounds):
    with pytest.raises(AssertionError, match="one bound"):
        Goal(1, **bounds)


@pytest.mark.parametrize(
    ("value", "text"), [(1234567, "1,234,567"), (0.25, "0.25"), (3.0, "3"), ("EPYC", "EPYC")]
)
def test_numbers_are_shown_for_people(value, text):
    assert shown(value) == text


def test_tables_say_for_each_goal_whether_it_is_met(capsys):
    print_tables(RESULTS)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert "python 3.11.7".split() in lines
    assert "add + cancel, in empty calls 12.5 13 at most met".split() in lines
    assert "asyncio, in add + cancel 5 5 at least missed".split() in lines


def test_json_has_every_figure_and_every_goal(tmp_path):
    file = tmp_path / "figures.json"
    write_json(RESULTS, file)
    found = json.loads(file.read_text())
    assert found["machine"] == RESULTS["machine"]
    assert found["wheel"] == {
        "empty call, ns": 41.25,
        "add + cancel, in empty calls": {"value": 12.5, "at_most": 13, "met": True},
        "asyncio, in add + cancel": {"value": 4.9996, "at_least": 5, "met": False},
    }


def picture():
    curves = tuple(Curve(name, ((1.0, 1.0), (2.0, 1.5))) for name in ("wheel", "heap"))
    panels = tuple(Panel(f"panel {n}", "asked", "sustained", curves, n == 0) for n in range(3))
    return Picture("rates", "Asked and sustained", panels)


def test_json_has_the_points_of_what_is_drawn(tmp_path):
    file = tmp_path / "figures.json"
    write_json(RESULTS, file, [picture()])
    found = json.loads(file.read_text())["pictures"]["rates"]
    assert list(found) == ["panel 0: sustained", "panel 1: sustained", "panel 2: sustained"]
    assert found["panel 0: sustained"]["heap"] == [[1.0, 1.0], [2.0, 1.5]]


@pytest.mark.integration  # It takes seconds.
def test_a_picture_has_its_words_as_text_and_is_the_same_each_time(tmp_path):
    pytest.importorskip("matplotlib", reason="draws the pictures")
    svg, png = draw([picture()], tmp_path)
    text = svg.read_text()
    for word in ("wheel", "heap", "panel 2", "sustained", "Asked and sustained"):
        assert f">{word}<" in text
    assert png.read_bytes().startswith(b"\x89PNG")
    again, _ = draw([picture()], tmp_path / "again")
    assert again.read_text() == text


def test_without_matplotlib_a_picture_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(CannotMeasure, match="matplotlib, of the extra `test`"):
        draw([picture()], tmp_path)


def test_a_percentile_is_one_of_the_values():
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [percentile(values, percent) for percent in (0, 50, 99, 100)] == [1, 3, 5, 5]
    assert percentile([], 99) == 0


def test_rounds_are_taken_in_turn():
    calls = []
    loops = {name: lambda name=name: calls.append(name) for name in "ab"}
    assert set(median_of(loops, rounds=3)) == {"a", "b"}
    assert calls == list("ababab")
    assert min(best_of(loops, each=10, rounds=1).values()) > 0


def test_the_machine_is_named_with_its_versions():
    assert {"coordinator", "python", "grpcio", "processor", "cores"} <= set(machine())
