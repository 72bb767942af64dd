"""Two nodes on one machine beside one: heartbeats a second, each way in turn."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
from pathlib import Path

from google.protobuf.message import Message

from coordinator.cli.bench import h2load
from coordinator.cli.bench.figures import Figures, Goal
from coordinator.cli.bench.resting import GENERATION, SHARDS, fill, group_id, member_id
from coordinator.cli.bench.service import Server
from coordinator.client.load import heartbeat
from coordinator.shard.placement import shard_of

NODES = 2
GROUPS = 64
"""Enough for each node to have some."""
CALLS, ROUNDS = 30_000, 5


def bench_cores(calls: int = CALLS, rounds: int = ROUNDS) -> Figures:
    """One node has all groups; then two have half of the shards each, as with `serve --nodes`."""
    if not h2load.is_installed():
        return {"both cores": "not measured: no h2load (Debian: nghttp2-client)"}
    shares = [f"{number}/{NODES}" for number in range(1, NODES + 1)]
    alone, together = [], []
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        for number in range(1 + NODES):
            asyncio.run(fill(folder / f"data-{number}", GROUPS))
        for _ in range(rounds):
            alone.append(_beats_a_second(folder, ["1/1"], calls))
            together.append(_beats_a_second(folder, shares, calls))
    one, two = statistics.median(alone), statistics.median(together)
    return {
        "one node, heartbeats/s": one,
        f"{NODES} nodes, heartbeats/s": two,
        f"{NODES} nodes, in one": Goal(two / one, at_least=1.7),
    }


def _beats_a_second(folder: Path, shares: list[str], calls: int) -> float:
    """Of all nodes together; each is asked by a client of its own, for as many calls."""
    with contextlib.ExitStack() as running:
        targets = []
        for number, share in enumerate(shares):
            data = folder / f"data-{number + len(shares) - 1}"
            flags = ("--data-dir", str(data), "--shards", str(SHARDS))
            divided = () if share == "1/1" else ("--share", share)
            server = running.enter_context(Server(folder, *flags, *divided))
            targets.append((server.address, _beat_of(number, len(shares))))
        h2load.send_at_once(targets, "Heartbeat", calls // 10)  # Warm.
        return sum(h2load.send_at_once(targets, "Heartbeat", calls))


def _beat_of(share: int, shares: int) -> Message:
    """Of a member of one of the groups that a share has."""
    group = next(
        group for group in map(group_id, range(GROUPS)) if shard_of(group, SHARDS) % shares == share
    )
    return heartbeat(group, member_id(0, group), GENERATION)
