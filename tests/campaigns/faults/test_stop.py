"""A node that is told to stop does, also when its store does not answer any more."""

from __future__ import annotations

import signal

import pytest

from coordinator.cli.serve import CANNOT_STOP
from coordinator.client import Member
from tests.campaigns.faults.stores import NODES, EtcdCluster, missing_etcd
from tests.kit.serving import Process

DRAIN_MS = 1_000


async def test_a_store_that_hangs_does_not_keep_a_node_from_stopping():
    if reason := missing_etcd():
        pytest.skip(reason)
    with EtcdCluster() as store:
        url = f"etcd://{','.join(store.endpoints)}/test"
        flags = ("--store", url, "--drain-timeout-ms", str(DRAIN_MS))
        with Process(*flags, "--metrics-listen", "", "--console-listen", "") as node:
            async with Member(node.address, "g", {"t": 1}) as member:
                while not member.assignment:
                    await member.poll(timeout=1)
                for number in range(NODES):
                    store.signal(number, signal.SIGSTOP)
                node.signal(signal.SIGTERM)
                status = node.wait()  # The store stands still until then.
            for number in range(NODES):
                store.signal(number, signal.SIGCONT)
    assert status in (0, CANNOT_STOP)
