"""The journal's way through the log: told once it is there, and not before."""

from __future__ import annotations

import pytest

from coordinator.core.values.events import RebalanceJournaled
from tests.kit.hosted_shard import HostedShard


@pytest.fixture
def host() -> HostedShard:
    """A shard with a durable assignment, and the record of its rebalance in flight."""
    hosted = HostedShard()
    joined = hosted.join("one")
    hosted.pass_time(3_000)
    hosted.store()
    synced = hosted.sync(joined)
    hosted.store_one()
    assert hosted.answers[synced].assignment == b"all", "nobody waits for the journal"
    return hosted


def told(host: HostedShard) -> list[str]:
    return [e.record.outcome for e in host.events if isinstance(e, RebalanceJournaled)]


def test_who_watches_is_told_when_the_record_is_durable(host):
    assert told(host) == []
    host.store()
    assert told(host) == ["completed"]


@pytest.mark.parametrize("failure", ["too_large", "full"])
def test_who_watches_is_not_told_of_a_record_that_the_log_refuses(host, failure):
    host.refuse_one(failure)
    host.pass_time(10_000)
    assert host.append is None, "it is not tried again"
    assert told(host) == []


def test_who_watches_is_told_of_a_record_that_is_written_at_the_second_attempt(host):
    host.refuse_one("unavailable")
    host.pass_time(100)
    assert told(host) == []
    host.store()
    assert told(host) == ["completed"]
