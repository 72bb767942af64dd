"""Refused batches are counted where the sink is, and by the client of Spark Connect too."""

from __future__ import annotations

import copy

import pytest

from coordinator.spark import refused_batches
from coordinator.spark.refused_batches import RefusedBatches


class Session:
    """The configuration of a Connect session, as PySpark has it."""

    def __init__(self) -> None:
        self.conf = self
        self.getAll: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.getAll[key] = value


@pytest.fixture
def session(monkeypatch):
    session = Session()
    monkeypatch.setattr(refused_batches, "_connect_session", lambda: session)
    return session


def sent(counter: RefusedBatches) -> RefusedBatches:
    """The copy that the server unpickles."""
    return copy.copy(counter)


def test_without_connect_it_is_a_number():
    counter = RefusedBatches()
    counter.add()
    counter.add()
    assert counter.total() == 2


def test_the_client_adds_up_the_copies_of_its_own_sink(session):
    mine, other = RefusedBatches(), RefusedBatches()
    first, again, others = sent(mine), sent(mine), sent(other)
    for copied in (first, first, again, others):
        copied.add()
    assert (mine.total(), other.total()) == (3, 1)
    assert (first.total(), again.total()) == (2, 1)


def test_a_sink_that_was_not_sent_asks_no_server(session):
    session.getAll = None
    assert RefusedBatches().total() == 0
