"""Changes that the program makes, and code that it leaves alone."""

from __future__ import annotations

import pytest

from tests.campaigns.mutations.operators import edits
from tests.campaigns.mutations.sample import ROOT, changes, sample


def mutants(source: str) -> list[str]:
    """The source after each change."""
    return [edit.of(source) for edit in edits(source)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", ["a <= b"]),
        ("a >= b > c", ["a > b > c", "a >= b >= c"]),
        ("(a) == (b)", ["(a) != (b)"]),
        ("é is None", ["é is not None"]),
        ("a is  not b", ["a is b"]),
        ("a not in b", ["a in b"]),
        ("a and b", ["a or b"]),
        ("a + b", ["a - b"]),
        ("a // b", ["a * b"]),
        ("a | b", ["a & b"]),
        ("x = True", ["x = False"]),
        ("x = 10", ["x = 11"]),
        ("def f():\n    return a", ["def f():\n    return None"]),
        ("if a:\n    b", ["if (not (a)):\n    b"]),
        ("while a:\n    b", ["while (not (a)):\n    b"]),
        ("x = b if a else c", ["x = b if (not (a)) else c"]),
    ],
)
def test_each_operator_has_its_opposite(source, expected):
    assert mutants(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "x: Literal[1]",
        "def f(a: Literal[1]) -> Literal[2]: ...",
        "@cache(1)\ndef f(): ...",
        "assert a < 1",
        "if TYPE_CHECKING:\n    x = 1",
        "x = 'a text'",
        "X = A | B",
        "def f():\n    return None",
    ],
)
def test_what_no_test_has_to_notice_is_left_alone(source):
    assert mutants(source) == []


def test_a_seed_names_a_sample():
    some = changes(["shard/writes.py"])
    one, same, other = ([*sample(some, seed, minutes=1)][:20] for seed in (1, 1, 2))
    assert one == same
    assert one != other
    assert {each.file for each in one} == {"coordinator/shard/writes.py"}
    assert all((ROOT / suite).exists() for each in one for suite in each.suites)
