"""Two nodes on one machine beside one: heartbeats a second, each way in turn.

Each node shares a core with its clients, which cost a tenth of it. Left to the system, one node
uses a good third of a second core, for gRPC has threads of its own: that is shown too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
from collections import defaultdict
from pathlib import Path

from google.protobuf.message import Message

from coordinator.shard.placement import shard_of
from tests.bench import h2load
from tests.bench.figures import Figures, Goal
from tests.bench.load import heartbeat, heartbeat_batch
from tests.bench.resting import (
    GENERATION,
    MEMBERS,
    SHARDS,
    fill,
    group_id,
    member_id,
)
from tests.bench.servers import Server, pin, scratch

NODES = 2
ALONE = (1, 1)
GROUPS = 64
"""Enough for each node to have some."""
CALLS, ROUNDS = 20_000, 5
BEATS = {"Heartbeat": 1, "HeartbeatBatch": 20}
"""Heartbeats per call."""


def bench_cores(calls: int = CALLS, rounds: int = ROUNDS) -> Figures:
    """One node has all groups; then two have half of the shards each, as with `serve --nodes`."""
    if not h2load.is_installed() or not hasattr(os, "sched_setaffinity"):
        return {"both cores": "not measured: needs Linux and h2load (Debian: nghttp2-client)"}
    shares = [(number, NODES) for number in range(1, NODES + 1)]
    found: dict[tuple[str, int, bool], list[float]] = defaultdict(list)
    with scratch() as folder:
        for share in (ALONE, *shares):
            asyncio.run(fill(_data_folder(folder, share), GROUPS, share=share))
        for _ in range(rounds):
            for pinned in (True, False):
                for divided in ([ALONE], shares):
                    for kind, rate in _calls_a_second(folder, divided, calls, pinned).items():
                        found[kind, len(divided), pinned].append(rate)
    figures: Figures = {}
    for kind, each in BEATS.items():
        for pinned, where in ((True, "a core each"), (False, "cores shared")):
            one, two = (each * statistics.median(found[kind, n, pinned]) for n in (1, NODES))
            ratio = two / one
            figures |= {
                f"{kind}, {where}: one node, heartbeats/s": one,
                f"{kind}, {where}: {NODES} nodes, heartbeats/s": two,
                f"{kind}, {where}: {NODES} nodes, in one": Goal(ratio, at_least=1.7)
                if pinned
                else ratio,
            }
    return figures


def _calls_a_second(
    folder: Path, shares: list[tuple[int, int]], calls: int, pinned: bool
) -> dict[str, float]:
    """Calls per second of all nodes together; each node has a client with as many calls."""
    with contextlib.ExitStack() as running:
        addresses = []
        for number, share in enumerate(shares):
            flags = ("--data-dir", str(_data_folder(folder, share)), "--shards", str(SHARDS))
            divided = () if share == ALONE else ("--share", "{}/{}".format(*share))
            server = running.enter_context(Server(folder, *flags, *divided))
            addresses.append(server.address)
            if pinned:
                pin(server.pid, number)
        rates = {}
        for kind in BEATS:
            targets = [
                (address, _messages(number, len(shares))[kind])
                for number, address in enumerate(addresses)
            ]
            cores = range(len(shares)) if pinned else None
            h2load.send_at_once(targets, kind, calls // 10)  # Warm.
            rates[kind] = sum(h2load.send_at_once(targets, kind, calls, cores=cores))
        return rates


def _data_folder(folder: Path, share: tuple[int, int]) -> Path:
    return folder / "data-{}-of-{}".format(*share)


def _messages(share: int, shares: int) -> dict[str, Message]:
    """Heartbeats of members whose groups are in a share."""
    groups = [g for g in map(group_id, range(GROUPS)) if shard_of(g, SHARDS) % shares == share]
    beats = [
        heartbeat(group, member_id(number, group), GENERATION)
        for group in groups
        for number in range(MEMBERS)
    ]
    batch = heartbeat_batch(beats[: BEATS["HeartbeatBatch"]])
    return {"Heartbeat": beats[0], "HeartbeatBatch": batch}
