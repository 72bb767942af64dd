"""Real nodes on a real store: whatever befalls the controller, whoever dies next is succeeded."""

from __future__ import annotations

import asyncio
import contextlib
import io
import signal

import pytest

from coordinator.cli.main import main
from coordinator.storage.log import Ambiguous, CannotOpen, LogUnavailable
from tests.campaigns.faults.deployment import LOOK_S, NODES, SHARDS, Deployment
from tests.campaigns.faults.stores import ZooKeeperCluster, missing_etcd, missing_zookeeper
from tests.integration.groups import commit_everywhere, members
from tests.integration.waiting import until
from tests.kit.patience import HANG_S

RECOVERY_S = HANG_S
"""Far more than it takes; what is lost for good takes longer."""
pytestmark = pytest.mark.timeout(600)


needs_etcd = pytest.mark.skipif(missing_etcd() is not None, reason=str(missing_etcd()))
"""ZooKeeper's controllers are killed and cut off in `test_cluster_faults.py`."""


async def until_all_led(deployment: Deployment) -> None:
    """Wait until nodes that run lead all shards."""
    async with asyncio.timeout(RECOVERY_S):
        while True:
            with contextlib.suppress(LogUnavailable, Ambiguous, CannotOpen):
                view = await deployment.view()
                leaders = {state.leader for state in view.shards.values()}
                if len(view.shards) == SHARDS and leaders <= set(deployment.nodes):
                    return
            await asyncio.sleep(LOOK_S)


async def until_operators_are_obeyed(deployment: Deployment) -> None:
    """`coordinator cluster elect` finds who decides."""
    command = ["cluster", "elect", "--bootstrap", ",".join(deployment.addresses)]
    async with asyncio.timeout(RECOVERY_S):
        while True:
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                if await asyncio.to_thread(main, command) == 0:
                    return
            await asyncio.sleep(LOOK_S)


async def check_whoever_dies_next_is_succeeded(deployment: Deployment) -> None:
    async with asyncio.timeout(RECOVERY_S):
        controller = await deployment.controller()
    await until_operators_are_obeyed(deployment)
    victim = next(number for number in NODES if number != controller)
    await deployment.kill(victim)
    await until_all_led(deployment)
    await deployment.start(victim)
    await deployment.kill(controller)
    await until_all_led(deployment)
    await until_operators_are_obeyed(deployment)


def sessions_ended(deployment: Deployment) -> bool:
    """All nodes have said that theirs has."""
    return all(
        any("session has ended" in str(line) for line in process.lines)
        for process in deployment.nodes.values()
    )


@needs_etcd
async def test_the_controller_killed_and_started_again_within_its_session():
    async with Deployment("etcd", "--store-session-timeout-ms", "6000") as deployment:
        await until_all_led(deployment)
        for _ in range(2):
            controller = await deployment.controller()
            await deployment.kill(controller)
            await deployment.start(controller)
        await check_whoever_dies_next_is_succeeded(deployment)


@needs_etcd
async def test_a_store_without_a_majority_for_longer_than_a_session():
    async with Deployment("etcd", "--store-session-timeout-ms", "1000") as deployment:
        await until_all_led(deployment)
        for number in (0, 1):
            await asyncio.to_thread(deployment.store.kill, number)
        await until(lambda: sessions_ended(deployment), within_s=RECOVERY_S)
        for number in (0, 1):
            await asyncio.to_thread(deployment.store.start, number)
        await check_whoever_dies_next_is_succeeded(deployment)


async def test_a_server_of_zookeeper_that_hangs_for_a_part_of_the_session_it_has_granted():
    """The tick is ZooKeeper's default, and so is the session that nodes ask for."""
    if reason := missing_zookeeper():
        pytest.skip(reason)
    flags = ("--store-session-timeout-ms", "2000")
    store = ZooKeeperCluster(tick_ms=2_000)
    async with Deployment("zookeeper", *flags, store=store) as deployment:
        await until_all_led(deployment)
        said = str(deployment.nodes[1].lines)
        assert "the store grants sessions of 4 s, not the 2 s" in said
        controller = await deployment.controller()
        servers = [n for n, wire in enumerate(deployment.to_store[controller]) if wire.is_used]
        assert servers
        for server in servers:
            store.signal(server, signal.SIGSTOP)
        await asyncio.sleep(3.8)
        for server in servers:
            store.signal(server, signal.SIGCONT)
        await check_whoever_dies_next_is_succeeded(deployment)


@needs_etcd
async def test_with_acks_all_writes_go_on_when_a_standby_is_killed_or_stands_still():
    """The cluster has dropped it: the time that a lagging replica has is not waited for."""
    flags = ("--acks", "all", "--replica-lag-time-max-ms", "600000")
    async with Deployment("etcd", *flags) as deployment:
        await until_all_led(deployment)
        async with members(deployment.addresses, SHARDS, session_timeout_ms=30_000) as some:
            await until_two_in_sync(deployment)
            await commit_everywhere(some, 1)
            await deployment.kill(1)
            async with asyncio.timeout(RECOVERY_S):
                await commit_everywhere(some, 2)
            await deployment.start(1)
            await until_two_in_sync(deployment)
            deployment.nodes[2].signal(signal.SIGSTOP)
            async with asyncio.timeout(RECOVERY_S):
                await commit_everywhere(some, 3)
            deployment.nodes[2].signal(signal.SIGCONT)


async def until_two_in_sync(deployment: Deployment) -> None:
    async with asyncio.timeout(RECOVERY_S):
        while True:
            with contextlib.suppress(LogUnavailable, Ambiguous, CannotOpen):
                states = (await deployment.view()).shards.values()
                if states and all(len(state.in_sync) == 2 for state in states):
                    return
            await asyncio.sleep(LOOK_S)
