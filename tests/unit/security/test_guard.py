"""The guard's cache is bounded, whatever callers name."""

from __future__ import annotations

from coordinator.security import guard as guards
from coordinator.security.authenticator import Authenticator
from coordinator.security.guard import LONGEST_GROUP, SHOWN, Guard, shown
from coordinator.security.rules import Operation, parse

RULES = """
[[rule]]
principal = "*"
operations = ["join"]
groups = "mine-*"
"""


def guard() -> Guard:
    return Guard(Authenticator(), parse(RULES))


def test_a_group_with_an_id_that_no_group_has_is_decided_about_and_not_remembered():
    access = guard()
    long = "x" * (LONGEST_GROUP + 1)
    assert not access.decide("p", (Operation.JOIN,), long).is_allowed
    assert access.decide("p", (Operation.JOIN,), "mine-" + long).is_allowed
    assert not access._decided


def test_what_is_remembered_is_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr(guards, "REMEMBER_BYTES", 100_000)
    access = guard()
    for number in range(1_000):
        access.decide("p", (Operation.JOIN,), f"{number:04000}")
    names = sum(len(group) for _, _, group in access._decided)
    assert 0 < names <= 100_000
    assert not access.decide("p", (Operation.JOIN,), "0").is_allowed
    assert access.decide("p", (Operation.JOIN,), "mine-0").is_allowed


def test_decisions_of_one_rule_are_one():
    access = guard()
    first = access.decide("p", (Operation.JOIN,), "mine-1")
    assert access.decide("p", (Operation.JOIN,), "mine-2") is first


def test_a_long_name_is_shown_in_short():
    assert shown("g") == "g"
    text = shown("g" * 1_000_000)
    assert len(text) < SHOWN + 30
    assert "1000000 characters" in text
