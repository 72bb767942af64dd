"""A node that is told to stop does, also when its store does not answer any more."""

from __future__ import annotations

import signal
import time

import pytest

from coordinator.cli.serve import CANNOT_STOP, HAND_OVER_S
from coordinator.client import GroupMember
from tests.faults.stores import NODES, EtcdCluster, missing_etcd
from tests.serving import Process

DRAIN_S = 1.0
A_LITTLE_S = 5.0


async def test_a_store_that_hangs_does_not_keep_a_node_from_stopping():
    if reason := missing_etcd():
        pytest.skip(reason)
    with EtcdCluster() as store:
        url = f"etcd://{','.join(store.endpoints)}/test"
        flags = ("--store", url, "--drain-timeout-ms", str(int(1000 * DRAIN_S)))
        with Process(*flags, "--metrics-listen", "", "--console-listen", "") as node:
            async with GroupMember(node.address, "g", {"t": 1}) as member:
                while not member.assignment:
                    await member.poll(timeout=1)
                for number in range(NODES):
                    store.signal(number, signal.SIGSTOP)
                began = time.monotonic()
                node.signal(signal.SIGTERM)
                status = node.wait()
                took = time.monotonic() - began
            for number in range(NODES):
                store.signal(number, signal.SIGCONT)
    assert took < DRAIN_S + HAND_OVER_S + A_LITTLE_S
    assert status in (0, CANNOT_STOP)
