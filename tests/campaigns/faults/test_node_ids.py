"""Two processes under one node id, as a pod that was deleted by force and runs on: one ends."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack

import pytest

from coordinator.cli.serve import CANNOT_GO_ON, CANNOT_START
from tests.campaigns.faults.deployment import SESSION_MS, STORES
from tests.campaigns.faults.stores import missing_etcd, missing_zookeeper
from tests.kit.serving import Process

MISSING = {"etcd": missing_etcd, "zookeeper": missing_zookeeper}
TAKEN = "node id 1 is taken by another process"


@pytest.fixture(params=MISSING)
async def start(request):
    """Starts a process under node id 1."""
    if reason := MISSING[request.param]():
        pytest.skip(reason)
    store = STORES[request.param]()
    async with AsyncExitStack() as stack:
        stack.enter_context(store)
        url = f"{request.param}://{','.join(store.endpoints)}/ids"

        async def start(*, wait: bool = True) -> Process:
            flags = ("--store", url, "--node-id", "1", "--metrics-listen", "")
            session = ("--store-session-timeout-ms", str(SESSION_MS))
            process = await asyncio.to_thread(Process, *flags, *session, wait=wait)
            stack.callback(process.kill)
            return process

        yield start


def is_running(process: Process) -> bool:
    return process._process.poll() is None


def says_why(process: Process) -> bool:
    return any(TAKEN in str(line) for line in process.lines)


async def test_who_comes_to_a_living_node_id_does_not_start(start):
    first = await start()
    second = await start(wait=False)
    assert await asyncio.to_thread(second.wait) == CANNOT_START
    assert says_why(second)
    assert is_running(first)
    assert not any("session has ended" in str(line) for line in first.lines)


async def test_who_stood_still_and_finds_its_node_id_taken_ends(start):
    first = await start()
    first.signal(signal.SIGSTOP)
    second = await start()
    first.signal(signal.SIGCONT)
    assert await asyncio.to_thread(first.wait) == CANNOT_GO_ON
    assert says_why(first)
    assert is_running(second)
    assert not any("session has ended" in str(line) for line in second.lines)
