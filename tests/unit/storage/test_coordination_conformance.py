"""Conformance of every `Coordination`."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace

import pytest

from coordinator.core.values.ids import ShardId
from coordinator.storage.coordination import (
    NOBODY,
    Conflict,
    Deposed,
    NodeIdTaken,
    NodeInfo,
    ShardState,
)
from tests.integration.waiting import until as soon
from tests.kit.patience import HANG_S

S0 = ShardId(0)
LED_BY_1 = ShardState(S0, 1, 1, (1, 2), (1, 2))


def node(number: int, incarnation: str = "first") -> NodeInfo:
    return NodeInfo(number, f"10.0.0.{number}", 7400, incarnation)


async def until(coordination, is_so):
    """Read at every change until a view is as it should be."""
    async with asyncio.timeout(HANG_S), contextlib.aclosing(coordination.changes()) as changes:
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
    if meeting.renews:
        announced_at = time.monotonic()
        await soon(lambda: session.renewed_at > announced_at or session.lost.is_set(), HANG_S)
    assert not session.lost.is_set()


async def test_the_place_of_a_living_session_is_not_taken(meeting):
    if not meeting.renews:
        pytest.skip("nobody renews: it lives only until another process comes")
    one, again = meeting(), meeting()
    session = await one.join(node(1))
    with pytest.raises(NodeIdTaken, match="node id 1 is taken by another process"):
        await again.join(node(1, "second"))
    assert (await again.read()).nodes == {1: node(1)}
    assert not session.lost.is_set()
    assert await one.campaign(session) == 1


async def test_who_finds_its_place_taken_does_not_take_it_back(meeting):
    if not meeting.renews:
        pytest.skip("nobody renews: it lives only until another process comes")
    one, again = meeting(), meeting()
    old = await one.join(node(1))
    await meeting.end_session(1)
    new = await again.join(node(1, "second"))
    async with asyncio.timeout(HANG_S):
        await old.lost.wait()
    with pytest.raises(NodeIdTaken):
        await one.join(node(1))
    assert (await one.read()).nodes == {1: node(1, "second")}
    assert not new.lost.is_set()


async def test_a_node_that_starts_anew_takes_its_own_place(meeting):
    one, again = meeting(), meeting()
    old = await one.join(node(1))
    await meeting.end_session(1)
    new = await again.join(node(1, "second"))
    assert (await one.read()).nodes == {1: node(1, "second")}
    async with asyncio.timeout(HANG_S):
        await old.lost.wait()
    assert not new.lost.is_set()


async def test_one_is_the_controller_and_epochs_are_numbered(meeting):
    one, two = meeting(), meeting()
    first, second = await one.join(node(1)), await two.join(node(2))
    epochs = await asyncio.gather(one.campaign(first), two.campaign(second))
    assert sorted(epochs, key=str) == [1, None]
    view = await one.read()
    assert view.controller_epoch == 1
    winner, loser = (one, two) if epochs[0] == 1 else (two, one)
    session, other = (first, second) if winner is one else (second, first)
    assert view.controller == session.node.node_id
    await winner.resign(session)
    assert (await loser.read()).controller == NOBODY
    assert await loser.campaign(other) == 2
    await winner.resign(session)  # It is not theirs any more.
    assert (await winner.read()).controller == other.node.node_id


async def test_the_epoch_ends_with_the_session(meeting):
    one, two = meeting(), meeting()
    first, second = await one.join(node(1)), await two.join(node(2))
    assert await one.campaign(first) == 1
    await one.leave(first)
    await until(two, lambda view: view.controller == NOBODY)
    assert await two.campaign(second) == 2


async def test_a_shard_is_written_under_the_newest_epoch_and_over_the_version_it_had(meeting):
    one, two = meeting(), meeting()
    first, second = await one.join(node(1)), await two.join(node(2))
    controller_epoch = await one.campaign(first)
    [written] = await one.write(controller_epoch, LED_BY_1)
    assert written.version > 0
    assert (await two.read()).shards == {S0: written}
    with pytest.raises(Conflict):
        await one.write(controller_epoch, replace(LED_BY_1, leader=2))
    [again] = await one.write(controller_epoch, replace(written, leader=2, leader_epoch=2))
    assert again.version > written.version
    await one.resign(first)
    newer = await two.campaign(second)
    with pytest.raises(Deposed):
        await one.write(controller_epoch, replace(again, leader=1, leader_epoch=3))
    view = await two.read()
    assert (view.shards[S0].leader, view.shards[S0].leader_epoch) == (2, 2)
    await two.write(newer, replace(view.shards[S0], leader=1, leader_epoch=3))


async def test_many_shards_are_written_with_one_call(meeting):
    one, two = meeting(), meeting()
    controller_epoch = await one.campaign(await one.join(node(1)))
    shards = [ShardId(number) for number in range(250)]
    states = [replace(LED_BY_1, shard=shard) for shard in shards]
    written = await one.write(controller_epoch, *states)
    assert [state.shard for state in written] == shards
    assert (await two.read()).shards == {state.shard: state for state in written}
    again = await one.write(controller_epoch, *(replace(s, leader=2) for s in written))
    assert (await two.read()).shards == {state.shard: state for state in again}
    with pytest.raises(Conflict):
        await one.write(controller_epoch, again[0], written[1])
    assert (await two.read()).shards == {state.shard: state for state in again}
    assert await one.write(controller_epoch) == []


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
    controller_epoch = await one.campaign(session)
    await until(two, lambda view: view.controller == 1)
    state = LED_BY_1
    for epoch in range(1, 6):
        watching = asyncio.create_task(
            until(
                two, lambda view, e=epoch: S0 in view.shards and view.shards[S0].leader_epoch == e
            )
        )
        await asyncio.sleep(0)
        [state] = await one.write(controller_epoch, replace(state, leader_epoch=epoch))
        view = await watching
        assert view.shards[S0] == state


async def test_a_node_that_starts_anew_is_not_the_controller_it_was(meeting):
    """Killed and started again within its session: nothing has told the store of its end."""
    one, again, other = meeting(), meeting(), meeting()
    first, session = await one.join(node(1)), await other.join(node(2))
    assert await one.campaign(first) == 1
    await meeting.end_session(1)
    await again.join(node(1, "second"))
    assert (await other.read()).controller == NOBODY
    assert await other.campaign(session) == 2
    view = await again.read()
    assert (view.controller, view.controller_epoch) == (2, 2)
    with pytest.raises(Deposed):
        await one.write(1, LED_BY_1)


async def test_a_node_that_starts_anew_may_be_the_controller_again(meeting):
    one, again = meeting(), meeting()
    assert await one.campaign(await one.join(node(1))) == 1
    await meeting.end_session(1)
    new = await again.join(node(1, "second"))
    assert await again.campaign(new) == 2
    assert (await again.read()).controller == 1
    with pytest.raises(Deposed):
        await one.write(1, LED_BY_1)
    [written] = await again.write(2, LED_BY_1)
    assert written.leader == 1


async def test_a_node_that_joins_again_has_lost_its_epoch(meeting):
    """Its session is thought lost, after a pause of the store: it joins as the one it was."""
    one, two = meeting(), meeting()
    session, other = await one.join(node(1)), await two.join(node(2))
    assert await one.campaign(session) == 1
    session.lost.set()
    new = await one.join(node(1))
    assert (await two.read()).controller == NOBODY
    assert await one.campaign(session) is None
    epochs = await asyncio.gather(one.campaign(new), two.campaign(other))
    assert sorted(epochs, key=str) == [2, None]
    view = await two.read()
    assert (view.controller, view.controller_epoch) == (1 if epochs[0] else 2, 2)
    with pytest.raises(Deposed):
        await one.write(1, LED_BY_1)
    await one.resign(session)  # It has nothing to give up.
    assert (await two.read()).controller == view.controller


@pytest.mark.parametrize("number", [1, 2, 9], ids=["itself", "another", "nobody"])
async def test_a_controller_key_left_by_a_dead_session_is_taken_over(meeting, number):
    one, two = meeting(), meeting()
    first, second = await one.join(node(1)), await two.join(node(2))
    assert await two.campaign(second) == 1
    await meeting.name_controller(number)
    assert (await one.read()).controller == NOBODY
    epochs = await asyncio.gather(one.campaign(first), two.campaign(second))
    assert sorted(epochs, key=str) == [2, None]
    view = await one.read()
    assert (view.controller, view.controller_epoch) == (1 if epochs[0] else 2, 2)


async def test_a_controller_key_deleted_by_hand_starts_a_new_epoch(meeting):
    one, two = meeting(), meeting()
    first, second = await one.join(node(1)), await two.join(node(2))
    assert await one.campaign(first) == 1
    await meeting.delete_controller()
    assert (await two.read()).controller == NOBODY
    assert await two.campaign(second) == 2
    assert await one.campaign(first) is None
    with pytest.raises(Deposed):
        await one.write(1, LED_BY_1)


async def test_who_holds_the_epoch_is_told_its_number_again(meeting):
    """The answer to its campaign was lost: nobody else can campaign while it does not know."""
    one, two = meeting(), meeting()
    first, second = await one.join(node(1)), await two.join(node(2))
    assert await one.campaign(first) == 1
    assert await two.campaign(second) is None
    assert await one.campaign(first) == 1
    assert (await two.read()).controller_epoch == 1


async def test_a_session_whose_place_was_taken_neither_campaigns_nor_announces(meeting):
    one, again = meeting(), meeting()
    old = await one.join(node(1))
    await meeting.end_session(1)
    new = await again.join(node(1, "second"))
    assert await one.campaign(old) is None
    await one.announce(old, replace(node(1), stopping=True))
    assert old.lost.is_set()
    assert (await again.read()).nodes == {1: node(1, "second")}
    assert await again.campaign(new) == 1


async def test_many_who_find_a_dead_controller_make_one(meeting):
    some = [meeting() for _ in range(4)]
    sessions = [await one.join(node(n)) for n, one in enumerate(some, 1)]
    for epoch in range(1, 6):
        await meeting.name_controller(epoch % 5)
        campaigns = (one.campaign(session) for one, session in zip(some, sessions, strict=True))
        epochs = await asyncio.gather(*campaigns)
        assert sorted(epochs, key=str) == [epoch, None, None, None]
