"""What every store of the cluster's agreements does, whatever it is made of."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest

from coordinator.core.ids import ShardId
from coordinator.storage.coordination import (
    NOBODY,
    Conflict,
    Deposed,
    NodeInfo,
    ShardState,
)

S0 = ShardId(0)
LED_BY_1 = ShardState(S0, 1, 1, (1, 2), (1, 2))


def node(number: int, incarnation: str = "first") -> NodeInfo:
    return NodeInfo(number, f"10.0.0.{number}", 7400, incarnation)


async def until(coordination, is_so):
    """Read at every change until a view is as it should be."""
    async with asyncio.timeout(20), contextlib.aclosing(coordination.changes()) as changes:
        async for _ in changes:
            view = await coordination.read()
            if is_so(view):
                return view
    pytest.fail("changes have ended")


async def test_nothing_is_there_at_first(meeting):
    view = await meeting().read()
    assert (view.nodes, view.controller, view.controller_epoch, view.shards) == ({}, NOBODY, 0, {})


async def test_nodes_see_each_other_until_they_leave(meeting):
    one, two = meeting(), meeting()
    first = await one.join(node(1))
    second = await two.join(node(2))
    view = await one.read()
    assert view.nodes == {1: node(1), 2: node(2)}
    await two.leave(second)
    assert second.lost.is_set()
    view = await until(one, lambda view: 2 not in view.nodes)
    assert view.nodes == {1: node(1)}
    assert not first.lost.is_set()


@pytest.mark.integration
async def test_a_node_may_say_that_it_wants_to_stop(meeting):
    one, two = meeting(), meeting()
    session = await one.join(node(1))
    await one.announce(session, replace(node(1), stopping=True))
    view = await until(two, lambda view: view.nodes[1].stopping)
    assert view.nodes == {1: replace(node(1), stopping=True)}
    await asyncio.sleep(0.6)  # It is renewed as before.
    assert not session.lost.is_set()


async def test_a_node_that_starts_anew_takes_its_own_place(meeting):
    one, again = meeting(), meeting()
    old = await one.join(node(1))
    new = await again.join(node(1, "second"))
    assert (await one.read()).nodes == {1: node(1, "second")}
    async with asyncio.timeout(10):
        await old.lost.wait()
    assert not new.lost.is_set()


async def test_one_is_the_controller_and_terms_are_numbered(meeting):
    one, two = meeting(), meeting()
    first, second = await one.join(node(1)), await two.join(node(2))
    terms = await asyncio.gather(one.campaign(first), two.campaign(second))
    assert sorted(terms, key=str) == [1, None]
    view = await one.read()
    assert view.controller_epoch == 1
    winner, loser = (one, two) if terms[0] == 1 else (two, one)
    session, other = (first, second) if winner is one else (second, first)
    assert view.controller == session.node.node_id
    await winner.resign(session)
    assert (await loser.read()).controller == NOBODY
    assert await loser.campaign(other) == 2
    await winner.resign(session)  # It is not theirs any more.
    assert (await winner.read()).controller == other.node.node_id


async def test_the_term_ends_with_the_session(meeting):
    one, two = meeting(), meeting()
    first, second = await one.join(node(1)), await two.join(node(2))
    assert await one.campaign(first) == 1
    await one.leave(first)
    await until(two, lambda view: view.controller == NOBODY)
    assert await two.campaign(second) == 2


async def test_a_shard_is_written_under_the_newest_term_and_over_the_version_it_had(meeting):
    one, two = meeting(), meeting()
    first, second = await one.join(node(1)), await two.join(node(2))
    term = await one.campaign(first)
    written = await one.write(term, LED_BY_1)
    assert written.version > 0
    assert (await two.read()).shards == {S0: written}
    with pytest.raises(Conflict):
        await one.write(term, replace(LED_BY_1, leader=2))
    again = await one.write(term, replace(written, leader=2, epoch=2))
    assert again.version > written.version
    await one.resign(first)
    newer = await two.campaign(second)
    with pytest.raises(Deposed):
        await one.write(term, replace(again, leader=1, epoch=3))
    view = await two.read()
    assert (view.shards[S0].leader, view.shards[S0].epoch) == (2, 2)
    await two.write(newer, replace(view.shards[S0], leader=1, epoch=3))


async def test_a_deposed_controller_cannot_write_even_what_was_never_written(meeting):
    one, two = meeting(), meeting()
    first, second = await one.join(node(1)), await two.join(node(2))
    old = await one.campaign(first)
    await one.resign(first)
    await two.campaign(second)
    with pytest.raises(Deposed):
        await one.write(old, LED_BY_1)
    assert (await two.read()).shards == {}


async def test_every_change_is_told(meeting):
    one, two = meeting(), meeting()
    session = await one.join(node(1))
    term = await one.campaign(session)
    await until(two, lambda view: view.controller == 1)
    state = LED_BY_1
    for epoch in range(1, 6):
        watching = asyncio.create_task(
            until(two, lambda view, e=epoch: S0 in view.shards and view.shards[S0].epoch == e)
        )
        await asyncio.sleep(0)
        state = await one.write(term, replace(state, epoch=epoch))
        view = await watching
        assert view.shards[S0] == state
