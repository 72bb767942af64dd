"""How long groups at rest are not answered when etcd's leader dies, and without a majority.

    python -m tests.faults.gaps [ROUNDS]

Each round kills the leader for 4 s, then the leader and another, with etcd's own default timers
and our default sessions. What etcd itself takes is measured beside it, by writing to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import sys
import time
from collections import defaultdict
from itertools import pairwise

from coordinator.storage.access import StoreAccess
from coordinator.storage.etcd_api import rpc_pb2 as pb
from coordinator.storage.etcd_client import EtcdClient
from coordinator.storage.etcd_txn import put
from coordinator.storage.log import LogError
from tests.faults.deployment import Deployment
from tests.faults.fleet import Fleet
from tests.faults.stores import NODES, EtcdCluster

DEFAULT_TIMERS = ("--heartbeat-interval", "100", "--election-timeout", "1000")
OUTAGE_S = 4.0
RECOVERY_S = 10.0
PROBE_S = 0.03


async def write_again_and_again(endpoint: str, written: list[float]) -> None:
    client = EtcdClient(StoreAccess((endpoint,)), call_timeout_s=0.3)
    while True:
        with contextlib.suppress(LogError):
            await client.txn(pb.TxnRequest(success=[put(b"probe", b"")]))
            written.append(time.monotonic())
        await asyncio.sleep(PROBE_S)


async def leader_of(store: EtcdCluster) -> int:
    for number, endpoint in enumerate(store.endpoints):
        client = EtcdClient(StoreAccess((endpoint,)))
        status = await client.status()
        await client.close()
        if status.leader == status.header.member_id:
            return number
    raise AssertionError("etcd has no leader")


def gap(times: list[float], began: float) -> tuple[float, float]:
    """The longest time without an answer, and when it ended."""
    times = [began, *sorted(at for at in times if at > began)]
    return max((later - earlier, later) for earlier, later in pairwise(times))


async def measure(store: EtcdCluster, fleet: Fleet, written: list[float], count: int) -> str:
    first = await leader_of(store)
    some = [(first + n) % NODES for n in range(count)]
    known, began = len(fleet.history), time.monotonic()
    for number in some:
        await asyncio.to_thread(store.kill, number)
    await asyncio.sleep(OUTAGE_S)
    for number in some:
        await asyncio.to_thread(store.start, number)
    await asyncio.sleep(RECOVERY_S)
    answered = defaultdict(list)
    for line in fleet.history[known:]:
        if line.get("answer") == "NONE":
            answered[line["group"]].append(line["ended"])
    own_s, back_at = gap(written, began)
    gaps = [gap(times, began) for times in answered.values()]
    longest = [seconds for seconds, _ in gaps]
    return (
        f"{count} of {NODES} servers killed: etcd itself {own_s:.2f} s; groups "
        f"{statistics.median(longest):.2f} s at the median, {max(longest):.2f} s at worst, which "
        f"is {max(at for _, at in gaps) - back_at:.2f} s after etcd was back"
    )


async def run(rounds: int) -> None:
    store = EtcdCluster(*DEFAULT_TIMERS)
    async with (
        Deployment("etcd", store=store) as deployment,
        Fleet(
            deployment.addresses, random.Random(1), quiet=16, busy=0, members=1,
            quiet_session_ms=20_000, patience_s=1.5,
        ) as fleet,
    ):  # fmt: skip
        await fleet.settle()
        written: list[float] = []
        probes = [
            asyncio.create_task(write_again_and_again(endpoint, written))
            for endpoint in store.endpoints
        ]
        await asyncio.sleep(RECOVERY_S)
        for _ in range(rounds):
            for count in (1, 2):
                print(await measure(store, fleet, written, count), flush=True)
        for probe in probes:
            probe.cancel()


if __name__ == "__main__":
    asyncio.run(run(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
