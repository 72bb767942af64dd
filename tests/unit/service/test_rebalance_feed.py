"""A watcher that does not read costs a bounded queue, and gets an error when it reads."""

import asyncio

import pytest

from coordinator.core.values.events import RebalanceJournaled
from coordinator.core.values.rebalance_journal import RebalanceRecord
from coordinator.service.rebalance_feed import BEHIND_MAX, RebalanceFeed, TooSlow


def journaled(generation: int) -> RebalanceJournaled:
    record = RebalanceRecord(
        group_id="g",
        cause="join",
        outcome="completed",
        member_id="m",
        client_id="c",
        client_host="/127.0.0.1",
        reason="",
        generation_before=generation - 1,
        generation_after=generation,
        protocol="range",
        was_initial=False,
        started_at_ms=1,
        joined_at_ms=2,
        synced_at_ms=3,
        ended_at_ms=4,
        leader="m",
        member_count=1,
    )
    return RebalanceJournaled(record)


async def watching(feed: RebalanceFeed):
    """A watcher, and its task that waits for the first rebalance."""
    watcher = feed.watch(frozenset())
    first = asyncio.ensure_future(anext(watcher))
    await asyncio.sleep(0)
    return watcher, first


async def test_a_watcher_that_takes_nothing_is_given_no_more_than_it_may_be_behind():
    feed = RebalanceFeed()
    watcher, first = await watching(feed)
    feed([journaled(1)], 0)
    assert (await first).generation_after == 1
    for generation in range(2, 10 * BEHIND_MAX):
        feed([journaled(generation)], 0)
    (queue,) = feed._watchers
    assert queue.qsize() == BEHIND_MAX + 1
    with pytest.raises(TooSlow):
        await anext(watcher)
    assert feed._watchers == set()


async def test_a_watcher_that_is_nearly_too_slow_misses_nothing():
    feed = RebalanceFeed()
    watcher, first = await watching(feed)
    for generation in range(1, BEHIND_MAX):
        feed([journaled(generation)], 0)
    feed.close()
    found = [await first, *[record async for record in watcher]]
    assert [record.generation_after for record in found] == [*range(1, BEHIND_MAX)]
