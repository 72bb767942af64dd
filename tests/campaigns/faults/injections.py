"""Faults of a deployment. Each lasts a while, ends, and returns its description."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import Awaitable, Callable

import psycopg
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from psycopg import sql

from coordinator.storage.access import StoreAccess
from coordinator.storage.etcd_api import rpc_pb2 as pb
from coordinator.storage.etcd_client import EtcdClient
from coordinator.storage.etcd_txn import delete
from coordinator.storage.log import Ambiguous
from tests.campaigns.faults.deployment import NAME, SESSION_MS, Deployment
from tests.kit.proxy import Proxy

Injection = Callable[[Deployment, random.Random], Awaitable[str]]


def _while_s(dice: random.Random, most_s: float) -> float:
    """Mostly short, sometimes long."""
    return 0.2 + (most_s - 0.2) * dice.random() ** 2


async def kill_a_node(deployment: Deployment, dice: random.Random) -> str:
    number = dice.choice(deployment.numbers)
    await deployment.kill(number)
    await asyncio.sleep(_while_s(dice, 2.0))
    await deployment.start(number)
    return f"node {number}"


async def restart_the_controller(deployment: Deployment, dice: random.Random) -> str:
    """SIGKILL, and started again at once, as systemd and Kubernetes do: within its session."""
    number = await deployment.controller()
    await deployment.kill(number)
    await deployment.start(number)
    return f"node {number}"


async def stop_a_node(deployment: Deployment, dice: random.Random) -> str:
    """SIGSTOP, and SIGCONT when others may have taken over: a zombie awakes."""
    number = dice.choice(deployment.numbers)
    process = deployment.nodes[number]
    process.signal(signal.SIGSTOP)
    await asyncio.sleep(_while_s(dice, 4.0))
    process.signal(signal.SIGCONT)
    return f"node {number}"


async def restart_a_node(deployment: Deployment, dice: random.Random) -> str:
    """Stop and start a node, as a rolling restart does."""
    number = dice.choice(deployment.numbers)
    await deployment.stop(number)
    await deployment.start(number)
    return f"node {number}"


async def kill_a_server_of_the_store(deployment: Deployment, dice: random.Random) -> str:
    store, number = deployment.store, dice.randrange(len(deployment.store.endpoints))
    await asyncio.to_thread(store.kill, number)
    await asyncio.sleep(_while_s(dice, 2.0))
    await asyncio.to_thread(store.start, number)
    return f"server {number}"


async def kill_the_majority_of_the_store(deployment: Deployment, dice: random.Random) -> str:
    store = deployment.store
    some = dice.sample(range(len(store.endpoints)), 2)
    for number in some:
        await asyncio.to_thread(store.kill, number)
    await asyncio.sleep(_while_s(dice, 2.0))
    for number in some:
        await asyncio.to_thread(store.start, number)
    return f"servers {some}"


async def lose_the_majority_of_the_store(deployment: Deployment, dice: random.Random) -> str:
    """Stop two of the store's servers for longer than the nodes' sessions."""
    store = deployment.store
    some = dice.sample(range(len(store.endpoints)), 2)
    for number in some:
        await asyncio.to_thread(store.kill, number)
    await asyncio.sleep(SESSION_MS / 1000 * (1.2 + dice.random()))
    for number in some:
        await asyncio.to_thread(store.start, number)
    return f"servers {some}"


async def stop_a_server_of_the_store(deployment: Deployment, dice: random.Random) -> str:
    """SIGSTOP: those who are connected to it wait, and their sessions may or may not end."""
    store, number = deployment.store, dice.randrange(len(deployment.store.endpoints))
    store.signal(number, signal.SIGSTOP)
    await asyncio.sleep(_while_s(dice, 2 * SESSION_MS / 1000))
    store.signal(number, signal.SIGCONT)
    return f"server {number}"


async def cut_a_node_off(deployment: Deployment, dice: random.Random) -> str:
    """Cut a node off from the store, its callers, or both; in one direction, or in both."""
    number = dice.choice(deployment.numbers)
    wires: list[Proxy] = []
    where = dice.choice(("store", "callers", "all"))
    if where != "callers":
        wires += deployment.to_store[number]
    if where != "store":
        wires.append(deployment.fronts[number])
    how = dice.choice(("both", "requests", "answers"))
    for wire in wires:
        wire.requests_pass = how == "answers"
        wire.answers_pass = how == "requests"  # Else what was acknowledged is never heard of.
    await asyncio.sleep(_while_s(dice, 4.0))
    for wire in wires:
        wire.mend()
    return f"node {number}, {where}, {how}"


async def depose_the_controller(deployment: Deployment, dice: random.Random) -> str:
    """An operator deletes its key by hand: another election, and the old one finds out."""
    if deployment.kind == "postgresql":
        with psycopg.connect(deployment.url.partition("?")[0], autocommit=True) as connection:
            depose = "UPDATE {}.cluster SET controller = NULL, version = version + 1"
            connection.execute(sql.SQL(depose).format(sql.Identifier(NAME)))
    elif deployment.kind == "etcd":
        client = EtcdClient(StoreAccess(deployment.store.endpoints))
        with contextlib.suppress(Ambiguous):
            await client.txn(pb.TxnRequest(success=[delete(f"{NAME}/cluster/controller".encode())]))
        await client.close()
    else:
        kazoo = KazooClient(",".join(deployment.store.endpoints))
        await asyncio.to_thread(kazoo.start)
        with contextlib.suppress(NoNodeError):
            await asyncio.to_thread(kazoo.delete, f"/{NAME}/cluster/controller")
        await asyncio.to_thread(kazoo.stop)
    return "its key"


KINDS: dict[str, Injection] = {
    "node kills": kill_a_node,
    "node stops": stop_a_node,
    "node restarts": restart_a_node,
    "store kills": kill_a_server_of_the_store,
    "store majority kills": kill_the_majority_of_the_store,
    "partitions": cut_a_node_off,
    "controllers deposed": depose_the_controller,
    "controllers restarted": restart_the_controller,
    "store stops": stop_a_server_of_the_store,
    "store majority losses": lose_the_majority_of_the_store,
}
"""Faults by the names that reports use."""
