"""The journal's way through the log: told once it is there, and not before."""

from __future__ import annotations

import pytest

from coordinator.core.values.events import RebalanceJournaled
from tests.unit.shard.desk import Desk


@pytest.fixture
def desk() -> Desk:
    """Desk with a durable assignment, and the record of its rebalance in flight."""
    it = Desk()
    joined = it.join("one")
    it.pass_time(3_000)
    it.store()
    synced = it.sync(joined)
    it.store_one()
    assert it.answers[synced].assignment == b"all", "nobody waits for the journal"
    return it


def told(desk: Desk) -> list[str]:
    return [e.record.outcome for e in desk.events if isinstance(e, RebalanceJournaled)]


def test_who_watches_is_told_when_the_record_is_durable(desk):
    assert told(desk) == []
    desk.store()
    assert told(desk) == ["completed"]


@pytest.mark.parametrize("failure", ["too_large", "full"])
def test_who_watches_is_not_told_of_a_record_that_the_log_refuses(desk, failure):
    desk.refuse_one(failure)
    desk.pass_time(10_000)
    assert desk.append is None, "it is not tried again"
    assert told(desk) == []


def test_who_watches_is_told_of_a_record_that_is_written_at_the_second_attempt(desk):
    desk.refuse_one("unavailable")
    desk.pass_time(100)
    assert told(desk) == []
    desk.store()
    assert told(desk) == ["completed"]
