"""Benchmark of the controller on each shared store: how long ElectLeaders takes under load.

Three nodes on three servers of a store; 16 groups of one member each send heartbeats and commits
all the time. The preferred leaders change again and again, and ElectLeaders of all shards is timed.
The stores are measured one after the other in one run, and compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import time

from coordinator.operator.cluster import ClusterAdmin
from coordinator.v1 import cluster_pb2 as pb
from tests.bench.figures import CannotMeasure, Figures, Goal
from tests.faults.deployment import SHARDS, Deployment
from tests.faults.fleet import Fleet
from tests.faults.stores import missing_etcd, missing_zookeeper
from tests.patience import HANG_S

MEMBERS = 16
ELECTIONS = 20
TURNED = 4
"""Shards whose replicas swap places before each election."""


def bench_elections(elections: int = ELECTIONS) -> Figures:
    """Start both stores, one after the other, and elect leaders.

    Raises:
        CannotMeasure: a store is not installed.
    """
    if missing := missing_etcd() or missing_zookeeper():
        raise CannotMeasure(missing)
    figures: Figures = {"members": MEMBERS, "elections": elections}
    medians = {}
    for kind in ("etcd", "zookeeper"):
        took = asyncio.run(_run(kind, elections))
        medians[kind] = statistics.median(took)
        figures |= {
            f"{kind}: ElectLeaders, fastest, s": min(took),
            f"{kind}: ElectLeaders, p50, s": medians[kind],
            f"{kind}: ElectLeaders, slowest, s": max(took),
        }
    ratio = medians["zookeeper"] / medians["etcd"]
    return figures | {"ElectLeaders, p50, ZooKeeper : etcd": Goal(ratio, at_most=2.0)}


async def _run(kind: str, elections: int) -> list[float]:
    """Seconds of each call of ElectLeaders."""
    async with (
        Deployment(kind) as deployment,
        Fleet(
            deployment.addresses,
            random.Random(1),  # noqa: S311  # A seed.
            quiet=MEMBERS,
            busy=0,
            members=1,
        ) as fleet,
    ):
        await fleet.settle()
        with ClusterAdmin(",".join(deployment.addresses)) as admin:
            return [await _elect(admin) for _ in range(elections)]


async def _elect(admin: ClusterAdmin) -> float:
    """Prefer other leaders, and time the election that they ask for."""
    shards = await _all_in_sync(admin)
    for shard in shards[:TURNED]:
        await asyncio.to_thread(admin.move, shard.shard, tuple(reversed(shard.replicas)))
    began = time.monotonic()
    await asyncio.to_thread(admin.elect)
    return time.monotonic() - began


async def _all_in_sync(admin: ClusterAdmin) -> list[pb.DescribeClusterResponse.Shard]:
    async with asyncio.timeout(HANG_S):
        while True:
            with contextlib.suppress(LookupError):
                shards = list((await asyncio.to_thread(admin.describe)).shards)
                if len(shards) == SHARDS and all(len(s.in_sync) == 2 for s in shards):
                    return shards
            await asyncio.sleep(0.05)
