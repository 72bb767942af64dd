"""Logs in stores of several nodes: nodes die, the majority is gone, answers are lost."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
import signal
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from coordinator.core.values.ids import ShardId
from coordinator.storage import etcd as etcd_module
from coordinator.storage import zookeeper as zookeeper_module
from coordinator.storage import zookeeper_client
from coordinator.storage.access import StoreAccess
from coordinator.storage.coordination import NOBODY, Conflict, NodeInfo, ShardState
from coordinator.storage.etcd import EtcdLog
from coordinator.storage.etcd_coordination import EtcdCoordination
from coordinator.storage.log import (
    Ambiguous,
    CannotOpen,
    Damaged,
    Entry,
    Fenced,
    LogError,
    LogUnavailable,
    ShardSnapshot,
)
from coordinator.storage.zookeeper import ZooKeeperLog
from coordinator.storage.zookeeper_coordination import ZooKeeperCoordination
from tests.campaigns.faults.stores import (
    Cluster,
    EtcdCluster,
    ZooKeeperCluster,
    missing_etcd,
    missing_zookeeper,
)
from tests.integration.waiting import until
from tests.kit.patience import HANG_S
from tests.kit.proxy import Proxy
from tests.unit.storage.conftest import SHARDS

pytestmark = pytest.mark.integration
S0 = ShardId(0)
SESSION_S = 4.0
"""Longer than a busy machine keeps a node from renewing it."""


@dataclass(frozen=True)
class Kind:
    """A kind of store: how it is started, reached, and damaged."""

    fixture: str
    cluster: type[Cluster]
    log: Any
    access: Any
    missing: Any
    coordination: Any

    @contextlib.asynccontextmanager
    async def opened(self, endpoints: tuple[str, ...], prefix: str, shards: int = SHARDS):
        log = await self.log.open(self.access(endpoints), prefix=prefix, shards=shards)
        try:
            yield log
        finally:
            await log.close()

    async def damage(self, log, sequence: int) -> None:
        """Write rubbish in the place of an entry of shard 0."""
        if self.log is EtcdLog:
            put = etcd_module.put(log._key("entry", S0, sequence), b"x" * 100)
            await log._client.txn(etcd_module.pb.TxnRequest(success=[put]))
        else:
            await log._client.request("set", log._path("entry", S0, sequence), b"x" * 100)


KINDS = {
    "etcd": Kind("etcd", EtcdCluster, EtcdLog, StoreAccess, missing_etcd, EtcdCoordination),
    "zookeeper": Kind(
        "zookeeper",
        ZooKeeperCluster,
        ZooKeeperLog,
        StoreAccess,
        missing_zookeeper,
        ZooKeeperCoordination,
    ),
}


@pytest.fixture(params=KINDS)
def kind(request):
    chosen = KINDS[request.param]
    if reason := chosen.missing():
        pytest.skip(reason)
    return chosen


@pytest.fixture
def cluster(kind, request):
    """Shared by all tests of the session: nobody kills its nodes."""
    return request.getfixturevalue(kind.fixture)


@pytest.fixture
def own_cluster(kind, monkeypatch):
    """Three nodes that a test may kill. What they do not answer soon is asked again."""
    monkeypatch.setattr(zookeeper_client, "CALL_TIMEOUT_S", 1.0)
    monkeypatch.setattr(zookeeper_module, "SESSION_TIMEOUT_S", 2.0)
    for module in (etcd_module, zookeeper_module):
        monkeypatch.setattr(module, "RESOLVE_ATTEMPTS", 2)
    with kind.cluster() as cluster:
        yield cluster


@pytest.fixture
def prefix():
    return uuid.uuid4().hex


def entry(sequence: int, epoch: int = 1, size: int = 10) -> Entry:
    return Entry(sequence, epoch, sequence - 1, (b"%d" % sequence * size,))


async def answered(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Ask again as long as the store does not answer."""
    async with asyncio.timeout(HANG_S):
        while True:
            try:
                return await ask()
            except (Ambiguous, LogUnavailable):
                await asyncio.sleep(0.1)


async def persist(log, fence, one: Entry) -> None:
    """Append as a shard does: again as long as the fate is open or the store refuses."""
    await answered(lambda: log.append(fence, one))


async def when_readable(log, fence):
    return await answered(lambda: log.load(fence))


async def test_it_is_all_there_for_the_next_owner(kind, cluster, prefix):
    async with kind.opened(cluster.endpoints, prefix) as log:
        old = await log.fence(S0)
        await log.append(old, entry(1))
        async with kind.opened(cluster.endpoints, prefix) as other:
            new = await other.fence(S0)
            assert new.fence_epoch == 2
            for attempt in (
                log.append(old, entry(2)),
                log.load(old),
                log.write_snapshot(old, ShardSnapshot(1, 1, [b"s"])),
            ):
                with pytest.raises(Fenced):
                    await attempt
            assert [e.sequence for e in (await other.load(new)).entries] == [1]


async def test_many_who_want_a_shard_get_epochs_of_their_own(kind, cluster, prefix):
    async with (
        kind.opened(cluster.endpoints, prefix) as one,
        kind.opened(cluster.endpoints, prefix) as two,
    ):
        fences = await asyncio.gather(*(log.fence(S0) for log in (one, two) * 2))
        epochs = [fence.fence_epoch for fence in fences]
        assert len(set(epochs)) == 4
        winner = max(fences, key=lambda fence: fence.fence_epoch)
        await two.append(winner, entry(1, winner.fence_epoch))


async def test_a_store_of_another_size_is_refused(kind, cluster, prefix):
    async with kind.opened(cluster.endpoints, prefix):
        with pytest.raises(CannotOpen, match=f"made for {SHARDS} shards"):
            async with kind.opened(cluster.endpoints, prefix, SHARDS + 1):
                pass


async def test_no_endpoint_is_said(kind, monkeypatch):
    monkeypatch.setattr(zookeeper_client, "START_TIMEOUT_S", 1.0)
    with pytest.raises(CannotOpen, match=re.escape("127.0.0.1:1")):
        async with kind.opened(("127.0.0.1:1",), "p"):
            pass


async def test_a_damaged_entry_stops_the_load(kind, cluster, prefix):
    async with kind.opened(cluster.endpoints, prefix) as log:
        fence = await log.fence(S0)
        for sequence in (1, 2, 3):
            await log.append(fence, entry(sequence))
        await kind.damage(log, 2)
        with pytest.raises(Damaged, match="shard 0, entry 2"):
            await log.load(fence)


async def test_appends_go_on_when_nodes_die_one_after_the_other(kind, own_cluster):
    async with kind.opened(own_cluster.endpoints, "p") as log:
        fence = await answered(lambda: log.fence(S0))
        for sequence in range(1, 61):
            if sequence % 20 == 5:
                own_cluster.kill(sequence // 20)
            if sequence % 20 == 15:
                own_cluster.start(sequence // 20)
                await asyncio.to_thread(own_cluster.wait)
            await persist(log, fence, entry(sequence))
        loaded = await when_readable(log, fence)
        assert [e.sequence for e in loaded.entries] == list(range(1, 61))


async def test_without_a_majority_nothing_is_acknowledged_and_nothing_lost(kind, own_cluster):
    async with kind.opened(own_cluster.endpoints, "p") as log:
        fence = await answered(lambda: log.fence(S0))
        await persist(log, fence, entry(1))
        for number in (0, 1):
            own_cluster.signal(number, signal.SIGSTOP)
        with pytest.raises(LogError):
            await log.append(fence, entry(2))
        with pytest.raises(LogError):
            await log.load(fence)
        for number in (0, 1):
            own_cluster.signal(number, signal.SIGCONT)
        await persist(log, fence, entry(2))
        loaded = await when_readable(log, fence)
        assert [e.sequence for e in loaded.entries] == [1, 2]


async def test_a_full_restart_of_the_store_loses_nothing(kind, own_cluster):
    async with kind.opened(own_cluster.endpoints, "p") as log:
        fence = await answered(lambda: log.fence(S0))
        for sequence in range(1, 20):
            await persist(log, fence, entry(sequence))
        for number in range(3):
            own_cluster.kill(number)
        with pytest.raises(LogError):
            await log.append(fence, entry(20))
        for number in range(3):
            own_cluster.start(number)
        await asyncio.to_thread(own_cluster.wait)
        await persist(log, fence, entry(20))
        loaded = await when_readable(log, fence)
        assert [e.sequence for e in loaded.entries] == list(range(1, 21))


async def test_an_answer_that_is_lost_is_found_out(kind, cluster, prefix):
    async with (
        Proxy(cluster.endpoints[0]) as proxy,
        kind.opened((proxy.address,), prefix) as log,
        kind.opened(cluster.endpoints, prefix) as beside,
    ):
        fence = await log.fence(S0)
        await log.append(fence, entry(1))
        proxy.answers_pass = False
        appending = asyncio.create_task(log.append(fence, entry(2)))
        async with asyncio.timeout(HANG_S):
            while True:
                if (await beside.load(fence)).sequence == 2:
                    break
                await asyncio.sleep(0.02)
        assert not appending.done()  # It is written, and the answer does not come.
        proxy.mend()
        with contextlib.suppress(Ambiguous, LogUnavailable):
            await appending
        await persist(log, fence, entry(2))
        assert [e.sequence for e in (await when_readable(log, fence)).entries] == [1, 2]


async def test_a_stopped_owner_cannot_write_once_another_has_taken_over(kind, cluster, prefix):
    async with (
        Proxy(cluster.endpoints[0]) as proxy,
        kind.opened((proxy.address,), prefix) as zombie,
        kind.opened(cluster.endpoints, prefix) as successor,
    ):
        old = await zombie.fence(S0)
        await zombie.append(old, entry(1))
        proxy.cut()
        sleeping = asyncio.create_task(persist(zombie, old, entry(2)))
        await asyncio.sleep(0.3)
        new = await successor.fence(S0)
        await successor.append(new, entry(2, new.fence_epoch, size=3))
        proxy.mend()
        with pytest.raises(Fenced):
            await sleeping
        assert [e.fence_epoch for e in (await successor.load(new)).entries] == [1, 2]


@contextlib.asynccontextmanager
async def met(kind, endpoints, prefix):
    coordination = kind.coordination(kind.access(endpoints), prefix=prefix, timeout_s=SESSION_S)
    try:
        yield coordination
    finally:
        await coordination.close()


async def test_a_node_that_is_cut_off_knows_before_the_others_do(kind, cluster, prefix):
    async with (
        Proxy(cluster.endpoints[0]) as proxy,
        met(kind, (proxy.address,), prefix) as cut_off,
        met(kind, cluster.endpoints, prefix) as there,
    ):
        session = await cut_off.join(NodeInfo(1, "h", 1, "a"))
        assert await cut_off.campaign(session) == 1
        other = await there.join(NodeInfo(2, "h", 2, "b"))
        joined_at = session.renewed_at
        await until(
            lambda: session.lost.is_set() or session.renewed_at > joined_at + session.timeout_s,
            HANG_S,
        )
        assert not session.lost.is_set(), "it is renewed"
        assert 1 in (await there.read()).nodes
        proxy.cut()
        async with asyncio.timeout(HANG_S), contextlib.aclosing(there.changes()) as changes:
            async for _ in changes:
                view = await there.read()
                if 1 not in view.nodes and view.controller == NOBODY:
                    break
        # Answers from memory are given for 0.8 of a session after the last renewal at most.
        assert time.monotonic() - session.renewed_at > 0.8 * session.timeout_s
        async with asyncio.timeout(HANG_S):
            await session.lost.wait()
        assert await there.campaign(other) == 2
        proxy.mend()


async def test_agreements_outlive_nodes_of_the_store(kind, own_cluster):
    async with met(kind, own_cluster.endpoints, "p") as one:
        await answered(one.read)  # Once the store has a leader.
        session = await answered(lambda: one.join(NodeInfo(1, "h", 1, "a")))
        controller_epoch = await answered(lambda: one.campaign(session))
        state = await write_or_find(one, controller_epoch, ShardState(S0, 1, 1, (1,), (1,)))
        own_cluster.kill(1)
        for epoch in (2, 3, 4):
            state = await write_or_find(
                one, controller_epoch, dataclasses.replace(state, leader_epoch=epoch)
            )
        assert state.leader_epoch == 4


async def write_or_find(one, controller_epoch, wanted: ShardState) -> ShardState:
    """Write as a controller does: without an answer, it reads the stored state."""
    async with asyncio.timeout(HANG_S):
        while True:
            try:
                return (await one.write(controller_epoch, wanted))[0]
            except (Ambiguous, LogUnavailable, Conflict):
                await asyncio.sleep(0.1)
                with contextlib.suppress(LogUnavailable, Ambiguous):
                    found = (await one.read()).shards.get(wanted.shard)
                    if found is not None and found.leader_epoch == wanted.leader_epoch:
                        return found
