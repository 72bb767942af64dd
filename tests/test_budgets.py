"""Rooms keep their budgets of lines, types have names of their own, and both rules can object."""

from __future__ import annotations

import tomllib

import pytest

from tests import budgets
from tests.budgets import FILE, MAP, ROOT, STEP
from tests.tidy import Source

BUDGETS = tomllib.loads((ROOT / FILE).read_text())
LINES, SHARED = budgets.present()


def _report(offences):
    if report := "\n".join(offences):
        pytest.fail(report, pytrace=False)


def test_rooms_keep_their_budgets():
    _report(budgets.rooms_keep_their_budgets(BUDGETS["lines"], LINES))


def test_a_public_types_name_exists_once_in_the_product():
    _report(budgets.names_are_not_shared(BUDGETS["shared_names"], SHARED))


def test_every_file_of_the_product_is_in_a_room():
    rooms = budgets.rooms_of((ROOT / MAP).read_text())
    outside = {
        it.path for it in budgets.sources() if not any(budgets.lines_of(r, [it]) for r in rooms)
    }
    there = {path for path in outside if (ROOT / path).stat().st_size}
    assert there == {"coordinator/__init__.py", "coordinator/__main__.py"}
    assert len(rooms) > 20


def test_lines_of_a_room_are_those_of_its_files():
    sources = [
        Source("timer/a.py", "1\n2\n"),
        Source("timer/b/c.js", "3\n"),
        Source("timers.py", "4\n"),
    ]
    assert budgets.lines_of("timer", sources) == 3


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (1_000, None),
        (1_000 - 2 * STEP, None),
        (1_001, "1 above its budget"),
        (999 - 2 * STEP, "101 lines below its budget"),
    ],
)
def test_a_room_is_within_its_budget_and_not_far_below(there, words):
    offences = list(budgets.rooms_keep_their_budgets({"a": 1_000}, {"a": there}))
    assert len(offences) == (words is not None)
    assert words is None or words in offences[0]


def test_rooms_and_budgets_are_the_same():
    offences = list(budgets.rooms_keep_their_budgets({"a": 50}, {"b": 50}))
    assert [offence.partition(" is in")[0] for offence in sorted(offences)] == [
        f"{FILE}:1: a", f"{FILE}:1: b",
    ]  # fmt: skip


def test_public_types_are_classes_and_aliases():
    text = 'class A1b: ...\nclass _Own: ...\nBoth = int | str\nT = TypeVar("T")\nLIMIT = 1\n'
    text += 'Typed: TypeAlias = int\nNamed = TypeVar("Named")\ndef f(): ...\n'
    names = [name for _, name in budgets.public_types(Source("x.py", text))]
    assert names == ["A1b", "Both", "Typed"]


def test_a_name_that_is_taken_is_found_and_an_exception_that_ends_too():
    sources = [Source(f"{path}.py", "class Range: ...\n") for path in "abc"]
    shared = budgets.shared_names(sources)
    (offence,) = budgets.names_are_not_shared({}, shared)
    assert offence.startswith("c.py:1: Range is the name of other")
    assert list(budgets.names_are_not_shared({"Range": 3}, shared)) == []
    assert len(list(budgets.names_are_not_shared({"Range": 2}, shared))) == 1
    (offence,) = budgets.names_are_not_shared({"Range": 4}, shared)
    assert "fewer types than 4" in offence
    assert len(list(budgets.names_are_not_shared({"Row": 2}, {}))) == 1


def test_budgets_are_lowered_and_never_raised():
    before = {
        "lines": {"a": 500, "b": 100, "gone": 9},
        "shared_names": {"Row": 3, "Own": 2, "Is": 2},
    }
    shared = {"Row": ["", ""], "Is": ["", "", ""], "New": ["", ""]}
    after = budgets.lowered(before, {"a": 301, "b": 130, "new": 7}, shared)
    assert after == {
        "lines": {"a": 350, "b": 100, "new": STEP},
        "shared_names": {"Row": 2, "Is": 2},
    }
    assert tomllib.loads(budgets.written(after)) == after


@pytest.mark.parametrize(
    ("message", "is_explained"),
    [
        ("Tell why\n\nThe budget of coordinator/core rises: it explains refusals.", True),
        ("Raise the budget of coordinator/cli", False),
        ("Say more in coordinator/core", False),
        ("", False),
    ],
)
def test_a_budget_that_rose_is_explained_in_a_commit(message, is_explained):
    before, after = {"lines": {"coordinator/core": 50}}, {"lines": {"coordinator/core": 100}}
    assert (list(budgets.unexplained(before, after, [message])) == []) == is_explained
    assert list(budgets.unexplained(after, before, [])) == []


def test_the_file_is_as_the_command_writes_it():
    assert (ROOT / FILE).read_text() == budgets.written(BUDGETS)
