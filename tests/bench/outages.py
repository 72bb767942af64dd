"""Benchmark of outages of etcd: unanswered time of groups when its leader or a majority dies.

Each round kills etcd's leader, then the leader and another server, with etcd's own default timers
and our default sessions. Groups at rest beat and commit meanwhile. How long etcd itself is away is
measured beside it, by writing to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from coordinator.storage.access import StoreAccess
from coordinator.storage.etcd_api import rpc_pb2 as pb
from coordinator.storage.etcd_client import EtcdClient
from coordinator.storage.etcd_txn import put
from coordinator.storage.log import LogError
from tests.bench.figures import CannotMeasure, Figures
from tests.faults.deployment import Deployment
from tests.faults.fleet import Fleet
from tests.faults.stores import NODES, EtcdCluster, missing_etcd

DEFAULT_TIMERS = ("--heartbeat-interval", "100", "--election-timeout", "1000")
OUTAGE_S = 4.0
RECOVERY_S = 10.0
PROBE_S = 0.03
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class _Outage:
    """Seconds without an answer: of etcd, of each group, and after etcd was back."""

    store_s: float
    groups_s: tuple[float, ...]
    after_s: float


def bench_outages(rounds: int = ROUNDS) -> Figures:
    """Start three servers of etcd and three nodes, and kill servers.

    Raises:
        CannotMeasure: etcd is not installed.
    """
    if missing := missing_etcd():
        raise CannotMeasure(missing)
    found = asyncio.run(_run(rounds))
    figures: Figures = {"rounds": rounds}
    for killed, outages in found.items():
        groups_s = [seconds for outage in outages for seconds in outage.groups_s]
        figures |= {
            f"{killed} of {NODES} servers killed: etcd not answering, median, s": statistics.median(
                outage.store_s for outage in outages
            ),
            f"{killed} of {NODES} servers killed: groups not answered, median, s": (
                statistics.median(groups_s)
            ),
            f"{killed} of {NODES} servers killed: groups not answered, worst, s": max(groups_s),
            f"{killed} of {NODES} servers killed: the last group after etcd, worst, s": max(
                outage.after_s for outage in outages
            ),
        }
    return figures


async def _run(rounds: int) -> dict[int, list[_Outage]]:
    """Outages by the number of servers that were killed."""
    store = EtcdCluster(*DEFAULT_TIMERS)
    found: dict[int, list[_Outage]] = defaultdict(list)
    async with (
        Deployment("etcd", store=store) as deployment,
        Fleet(
            deployment.addresses, random.Random(1), quiet=16, busy=0, members=1,  # noqa: S311
            quiet_session_ms=20_000, patience_s=1.5,
        ) as fleet,
    ):  # fmt: skip
        await fleet.settle()
        written: list[float] = []
        probes = [
            asyncio.create_task(_write_again_and_again(endpoint, written))
            for endpoint in store.endpoints
        ]
        await asyncio.sleep(RECOVERY_S)
        for _ in range(rounds):
            for killed in (1, 2):
                found[killed].append(await _measure(store, fleet, written, killed))
        for probe in probes:
            probe.cancel()
    return found


async def _write_again_and_again(endpoint: str, written: list[float]) -> None:
    client = EtcdClient(StoreAccess((endpoint,)), call_timeout_s=0.3)
    while True:
        with contextlib.suppress(LogError):
            await client.txn(pb.TxnRequest(success=[put(b"probe", b"")]))
            written.append(time.monotonic())
        await asyncio.sleep(PROBE_S)


async def _measure(store: EtcdCluster, fleet: Fleet, written: list[float], killed: int) -> _Outage:
    first = await _leader_of(store)
    some = [(first + n) % NODES for n in range(killed)]
    known, began = len(fleet.history), time.monotonic()
    for number in some:
        await asyncio.to_thread(store.kill, number)
    await asyncio.sleep(OUTAGE_S)
    for number in some:
        await asyncio.to_thread(store.start, number)
    await asyncio.sleep(RECOVERY_S)
    answered: dict[str, list[float]] = defaultdict(list)
    for line in fleet.history[known:]:
        if line.get("answer") == "NONE":
            answered[line["group"]].append(line["ended"])
    store_s, back_at = _gap(written, began)
    gaps = [_gap(times, began) for times in answered.values()]
    return _Outage(
        store_s, tuple(seconds for seconds, _ in gaps), max(at for _, at in gaps) - back_at
    )


async def _leader_of(store: EtcdCluster) -> int:
    for number, endpoint in enumerate(store.endpoints):
        client = EtcdClient(StoreAccess((endpoint,)))
        status = await client.status()
        await client.close()
        if status.leader == status.header.member_id:
            return number
    raise CannotMeasure("etcd has no leader")


def _gap(times: list[float], began: float) -> tuple[float, float]:
    """The longest time without an answer, and when it ended."""
    times = [began, *sorted(at for at in times if at > began)]
    return max((later - earlier, later) for earlier, later in pairwise(times))
