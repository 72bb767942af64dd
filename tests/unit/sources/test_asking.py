"""Calls that are made again while the coordinator moves or is away, and those that are not."""

from __future__ import annotations

import grpc
import pytest

from coordinator.client.errors import FatalError, Unavailable
from coordinator.operator import GroupAdmin
from coordinator.sources.group import retrying
from tests.unit.operator.network import Away


class Denied(Away):
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.PERMISSION_DENIED

    def details(self) -> str:
        return "you may not"


@pytest.fixture
def calls(monkeypatch):
    """The clock moves by each pause alone; the clients that asked are noted."""
    asked: list[GroupAdmin] = []
    monkeypatch.setattr(retrying.time, "monotonic", lambda: len(asked) * retrying.PAUSE_S)
    monkeypatch.setattr(retrying.time, "sleep", lambda _: None)
    return asked


def answers(calls, *outcomes):
    """A question with these outcomes, the last of them for ever."""

    def ask(admin: GroupAdmin) -> object:
        calls.append(admin)
        outcome = outcomes[min(len(calls), len(outcomes)) - 1]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return ask


def test_a_coordinator_is_said_to_be_silent_within_five_seconds():
    assert retrying.SILENCE_S < 5.0


def test_what_the_coordinator_refuses_is_not_asked_again(calls):
    with pytest.raises(FatalError, match=r"PERMISSION_DENIED: .* at one:7400: you may not"):
        retrying.asked("one:7400", "g", None, answers(calls, Denied()))
    assert len(calls) == 1


def test_a_coordinator_that_moves_or_is_away_is_asked_again(calls):
    ask = answers(calls, LookupError("it moves"), Away(), 7)
    assert retrying.asked("one:7400", "g", None, ask) == 7
    assert len({id(admin) for admin in calls}) == 3  # Each attempt finds the coordinator anew.


@pytest.mark.parametrize(
    ("error", "message"), [(LookupError("it moves"), "it moves"), (Away(), "connection refused")]
)
def test_after_a_minute_the_error_names_address_and_cause(calls, error, message):
    message = f"no answer for 60 s from the coordinator of group g at one:7400: {message}"
    with pytest.raises(Unavailable, match=message):
        retrying.asked("one:7400", "g", None, answers(calls, error))
    assert len(calls) * retrying.PAUSE_S > retrying.GIVE_UP_S
