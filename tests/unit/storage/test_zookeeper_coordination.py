"""Features of ZooKeeper alone: session timeouts that it changes, and the number of its reads."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from coordinator.core.values.ids import ShardId
from coordinator.storage.access import StoreAccess
from coordinator.storage.coordination import NodeInfo, ShardState
from coordinator.storage.zookeeper_coordination import ZooKeeperCoordination
from tests.campaigns.faults.stores import missing_zookeeper

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(missing_zookeeper() is not None, reason=str(missing_zookeeper())),
]


@pytest.mark.parametrize(("asked_s", "granted_s"), [(0.1, 0.4), (1.5, 1.5), (100.0, 60.0)])
async def test_a_session_is_as_long_as_the_servers_grant_it(zookeeper, asked_s, granted_s):
    """The tick is 200 ms: sessions last at least two ticks, and at most the configured maximum."""
    access = StoreAccess(zookeeper.endpoints)
    coordination = ZooKeeperCoordination(access, prefix=uuid.uuid4().hex, timeout_s=asked_s)
    session = await coordination.join(NodeInfo(1, "h", 1, "first"))
    assert session.timeout_s == pytest.approx(granted_s)
    await coordination.close()


async def test_what_has_not_changed_is_not_read_again(zookeeper):
    access = StoreAccess(zookeeper.endpoints)
    prefix = uuid.uuid4().hex
    one, two = (ZooKeeperCoordination(access, prefix=prefix, timeout_s=6.0) for _ in range(2))
    session = await one.join(NodeInfo(1, "h", 1, "first"))
    epoch = await one.campaign(session)
    shards = await one.write(epoch, *(ShardState(ShardId(n), 1, 1) for n in range(20)))
    before = await two.read()
    asked = []
    ask = two._client.request

    def counted(method, *arguments, **more):
        asked.append(method)
        return ask(method, *arguments, **more)

    two._client.request = counted
    assert await two.read() == before
    assert asked == ["sync"]
    await one.write(epoch, replace(shards[7], leader=2, leader_epoch=2))
    assert (await two.read()).shards[ShardId(7)].leader == 2
    assert asked == ["sync", "sync", "get"]
    for coordination in (one, two):
        await coordination.close()
