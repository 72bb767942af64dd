"""Features of ZooKeeper alone: session timeouts that it changes."""

from __future__ import annotations

import uuid

import pytest

from coordinator.storage.access import StoreAccess
from coordinator.storage.coordination import NodeInfo
from coordinator.storage.zookeeper_coordination import ZooKeeperCoordination
from tests.faults.stores import missing_zookeeper

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
