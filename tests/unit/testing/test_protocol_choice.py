"""The protocol of a worker that was not told one: its settings say it, else its group."""

from __future__ import annotations

import logging

import pytest

from coordinator.client import FatalError, Member, Partition, Worker
from coordinator.core.values.requests import DescribeGroup

TOPICS = {"t": 4}


def worker(**settings) -> Worker:
    worker = Worker("anywhere:1", "g", topics=TOPICS, **settings)

    @worker.handler
    async def handle(p: Partition) -> None:
        await p.commit(p.position + 1)

    return worker


@pytest.fixture
def group(virtual_group):
    return virtual_group()


def kind(group) -> str:
    asked = DescribeGroup(call_id=group.coordinator._call_id(), group_id="g")
    return group.coordinator._request(asked).group_type


async def runs(group, *workers: Worker) -> None:
    """Start workers one after the other, and wait until they hold everything."""
    names = [group.start(one).name for one in workers]
    await group.advance(10)
    await group.until(lambda: set(group.owners().values()) >= set(names))
    await group.until(lambda: len(group.owners()) == 4)


async def test_a_new_group_is_one_of_sessions(group):
    await runs(group, worker(), worker())
    assert kind(group) == "session"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"session_timeout_ms": 10_000}, "classic"),
        ({"assignors": ["range"]}, "classic"),
        ({"instance_id": "a"}, "classic"),
        ({"member_name": "a"}, "session"),
        ({"wishes": {"lease_ms": "fast"}}, "session"),
        ({"name": "a"}, "session"),
        ({"rack": "r"}, "session"),
    ],
)
async def test_a_setting_of_one_protocol_says_which(group, settings, expected):
    await runs(group, worker(**settings))
    assert kind(group) == expected


def test_settings_of_both_are_refused():
    with pytest.raises(TypeError, match="instance_id is a setting of classic members, and member_"):
        worker(instance_id="a", member_name="a")
    with pytest.raises(TypeError, match="name and member_name are one thing"):
        worker(name="a", member_name="b")


async def test_a_group_with_classic_members_gets_one_more(group, caplog):
    caplog.set_level(logging.INFO)
    first = worker(session_timeout_ms=10_000)
    await runs(group, first)
    await runs(group, worker(name="two"))
    assert kind(group) == "classic"
    lines = [line for line in caplog.messages if "the group is one of classic members" in line]
    assert len(lines) == 1


async def test_a_group_that_classic_members_have_used_last_stays_classic(group):
    old = group.start(worker(assignors=["range"]))
    await group.advance(10)
    await old.stop()
    assert kind(group) == "classic"
    await runs(group, worker())
    assert kind(group) == "classic"


async def test_it_moves_when_all_have_stopped_and_a_worker_says_so(group):
    old = group.start(worker(assignors=["range"]))
    await group.advance(10)
    await old.stop()
    told = Worker("anywhere:1", "g", topics=TOPICS, protocol="session")
    told.handler(lambda p: None)
    await runs(group, told)
    assert kind(group) == "session"
    await runs(group, worker())


async def test_a_member_that_keeps_classic_groups_is_refused(group):
    old = group.start(worker(assignors=["range"]))
    await group.advance(10)
    await old.stop()
    async with Member("anywhere:1", "g", TOPICS, protocol="session", keep_classic=True) as member:
        with pytest.raises(FatalError, match="the group is classic"):
            await member.poll(timeout=30)


async def test_a_stop_before_the_coordinator_is_heard_ends_the_worker(group):
    group.coordinator.kill()
    process = group.start(worker())
    await group.advance(3)
    await process.stop()


@pytest.mark.parametrize("is_classic", [True, False])
async def test_errors_are_treated_as_the_protocol_has_it(group, caplog, is_classic):
    if is_classic:
        await runs(group, worker(assignors=["range"]))
    fails = Worker("anywhere:1", "g", topics=TOPICS, retry_backoff_ms=10)

    @fails.handler
    async def handle(p: Partition) -> None:
        raise ValueError

    process = group.start(fails)
    await group.advance(20)
    failures = [line for line in caplog.messages if "failed (5 in a row)" in line]
    assert failures
    assert ("the partition is released" in failures[0]) != is_classic
    process.kill()
