"""Every rule that is to be broken is still where it is said to be: else nothing would be broken."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.mutations.places import MODULE, NoPlace, changed, names
from tests.mutations.run import ROOT, Mutation, Tree, Verdicts, mutations, selected


@pytest.mark.parametrize("mutation", mutations(), ids=lambda mutation: mutation.rule)
def test_what_is_to_be_broken_is_in_its_place_once(mutation):
    _, text = changed(ROOT, mutation.place, mutation.old, mutation.new)
    ast.parse(text)  # Else every test would be red, whatever the rule.
    assert mutation.new != mutation.old
    for suite in mutation.suites:
        assert (ROOT / suite.partition("::")[0]).exists()


def test_each_rule_is_named_once():
    assert [rule for rule, times in Counter(m.rule for m in mutations()).items() if times > 1] == []


# --- Places ---------------------------------------------------------------------------------------

SOURCE = '''\
"""A module."""

LIMIT = 1


def first(limit):
    return limit


@cache
def second(limit):
    def inner():
        return limit

    return inner()


class Group:
    """A class."""

    size = LIMIT

    def grow(self, limit):
        return limit

    @property
    def limit(self):
        return self.size

    @limit.setter
    def limit(self, value):
        self.size = value


AFTER = LIMIT
'''


def replaced(tmp_path, name, old, new="X", source=SOURCE) -> str:
    (tmp_path / "file.py").write_text(source)
    path, text = changed(tmp_path, f"file.py::{name}", old, new)
    assert path == tmp_path / "file.py"
    assert source.replace(old, "", 1) != source
    return text


def line_of(text: str) -> int:
    return text[: text.index("X")].count("\n") + 1


@pytest.mark.parametrize(
    ("name", "old", "line"),
    [
        ("first", "return limit", 7),
        ("second", "return limit", 13),
        ("second", "@cache", 10),
        ("Group", "size = LIMIT", 21),
        ("Group.grow", "return limit", 24),
        ("Group.limit", "self.size = value", 32),
        (MODULE, "LIMIT = 1", 3),
        (MODULE, "AFTER = LIMIT", 35),
        (MODULE, '"""A module."""', 1),
    ],
)
def test_a_text_is_looked_up_in_its_place_alone(tmp_path, name, old, line):
    assert line_of(replaced(tmp_path, name, old)) == line


def test_a_place_survives_a_change_elsewhere_in_the_file(tmp_path):
    same = "def other(limit):\n    return limit\n\n\n"
    assert line_of(replaced(tmp_path, "first", "return limit", source=same + SOURCE + same)) == 11


@pytest.mark.parametrize(
    ("name", "old", "why"),
    [
        ("third", "return limit", "there is no such function or class"),
        ("Group.shrink", "return limit", "there is no such function or class"),
        ("first", "yield limit", "found 0 times"),
        ("second", "limit", "found 2 times"),
        ("Group", "return limit", "found 0 times"),
        (MODULE, "return limit", "found 0 times"),
        (MODULE, "LIMIT", "found 2 times"),
    ],
)
def test_a_place_or_a_text_that_is_not_there_is_named(tmp_path, name, old, why):
    (tmp_path / "file.py").write_text(SOURCE)
    with pytest.raises(NoPlace, match=why):
        changed(tmp_path, f"file.py::{name}", old, "X")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(NoPlace, match=r"gone\.py::f: there is no such file"):
        changed(tmp_path, "gone.py::f", "a", "b")


def test_inner_places_come_before_outer_ones():
    assert names(SOURCE) == [
        "Group.limit", "Group.limit", "Group.grow", "Group", "second", "first", MODULE,
    ]  # fmt: skip


# --- The runner -----------------------------------------------------------------------------------


def mutation(old="+", new="-", suite="tests/test_sum.py") -> Mutation:
    return Mutation(
        rule="sums", place="coordinator/sum.py::total", old=old, new=new, suites=(suite,)
    )


@pytest.fixture
def tree(tmp_path, monkeypatch) -> Tree:
    project = tmp_path / "project"
    for folder in ("coordinator", "tests"):
        (project / folder).mkdir(parents=True)
        (project / folder / "__init__.py").touch()
    (project / "coordinator" / "sum.py").write_text("def total(a, b):\n    return a + b\n")
    (project / "tests" / "test_sum.py").write_text(
        "from coordinator.sum import total\n\ndef test_sum():\n    assert total(2, 3) == 5\n"
    )
    (project / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["."]\n')
    monkeypatch.setattr("tests.mutations.run.ROOT", project)
    monkeypatch.setattr("tests.mutations.run.COPIED", ("coordinator", "tests", "pyproject.toml"))
    return Tree(tmp_path / "tree")


@pytest.mark.integration
def test_a_broken_rule_is_caught_and_mended_again(tree):
    assert tree.run(["tests/test_sum.py"]) == ""
    for _ in range(2):  # In one second, with sources of one size: no bytecode is left over.
        is_caught, told = Verdicts().judge(tree, mutation())
        assert is_caught
        assert "by tests/test_sum.py::test_sum" in told
        assert tree.run(["tests/test_sum.py"]) == ""


@pytest.mark.integration
def test_a_rule_that_no_test_holds_survives(tree):
    is_caught, told = Verdicts().judge(tree, mutation(old="a + b", new="b + a"))
    assert not is_caught
    assert told.startswith("SURVIVED")


@pytest.mark.integration
def test_a_test_that_is_red_anyway_catches_nothing(tree):
    (tree.root / "tests" / "test_red.py").write_text("def test_red():\n    assert False\n")
    is_caught, told = Verdicts().judge(tree, mutation(suite="tests/test_red.py"))
    assert not is_caught
    assert "tests/test_red.py::test_red is red without the mutation" in told


@pytest.mark.integration
def test_what_says_nothing_about_the_rule_is_no_verdict(tree):
    for broken in (mutation(old="nowhere"), mutation(new="+ ("), mutation(suite="tests/gone.py")):
        is_caught, told = Verdicts().judge(tree, broken)
        assert not is_caught
        assert told.startswith("NO VERDICT")


def test_a_part_selects_by_rule_and_by_place():
    rule = mutations()[0]
    assert rule in selected([rule.rule[:30]], None)
    assert {m.file for m in selected(["core/classic/rebalance.py"], None)} == {
        "coordinator/core/classic/rebalance.py"
    }
    assert selected(["no rule says this"], None) == []


def test_changed_files_select_by_place_and_by_suite(monkeypatch):
    files = {"coordinator/core/classic/sync.py", "tests/printing/test_printable.py"}
    monkeypatch.setattr("tests.mutations.run.changed_files", lambda commit: files)
    some = selected([], "main")
    assert {m.file for m in some} >= {
        "coordinator/core/classic/sync.py",
        "coordinator/printable.py",
    }
    assert all(m.file in files or any(file.startswith(m.suites) for file in files) for m in some)
