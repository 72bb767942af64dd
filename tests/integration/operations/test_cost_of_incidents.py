"""The journal's times against the clocks of real processes that write down when they work.

`tests/unit/testing/test_cost_of_incidents.py` has the same incidents on virtual time, exactly.
Here the machine is noisy: the tolerance is what the processes themselves have measured, the longest
time between two successive notes and the longest delay of a thread of this test, and the time in
which a new owner begins after its assignment was stored is its own.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from coordinator.operator.admin import GroupAdmin
from coordinator.v1 import admin_pb2 as pb
from tests.integration.waiting import wait_until
from tests.kit.serving import Process

INTERVAL_MS = 500
TOLERANCE_MS = 100
PROGRAM = """
import asyncio, sys, time
from coordinator.client import Partition, Worker

address, notes, *groups = sys.argv[1:]
notes = open(notes, "a")

def worker_of(group, assignor, slow_s):
    worker = Worker(address, group, topics={"t": 4}, assignors=(assignor,), client_id=notes.name,
                    session_timeout_ms=3_000, heartbeat_interval_ms=500)

    @worker.handler(drain="manual")
    async def handle(p: Partition):
        ends_s = None
        for offset in range(p.position, 10**9):
            if ends_s is None and p.revoking.is_set():
                ends_s = time.monotonic() + slow_s
            if ends_s is not None and time.monotonic() >= ends_s:
                await p.commit(offset)
                return
            notes.write(f"{time.time()} {group} {p.number}\\\\n")
            notes.flush()
            await asyncio.sleep(0.02)

    return worker

async def main():
    workers = []
    for told in groups:
        group, assignor, slow_s = told.split(":")
        workers.append(worker_of(group, assignor, float(slow_s)))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(15, lambda: [worker.stop("stopped") for worker in workers])
    await asyncio.gather(*(worker.serve() for worker in workers))

asyncio.run(main())
""".replace("\\\\n", "\\n")


class Noise:
    """A thread that measures how late it is woken."""

    def __init__(self) -> None:
        self.worst_ms = 0.0
        self._is_over = threading.Event()
        threading.Thread(target=self._measure, daemon=True).start()

    def _measure(self) -> None:
        while not self._is_over.is_set():
            began = time.monotonic()
            time.sleep(0.01)
            self.worst_ms = max(self.worst_ms, (time.monotonic() - began) * 1_000 - 10)

    def end(self) -> None:
        self._is_over.set()


class Member:
    """A process with workers of some groups, and its notes."""

    def __init__(self, address: str, path: Path, groups: Iterable[str]) -> None:
        self.path = path
        path.touch()
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, address, str(path), *groups]
        )

    def notes(self, group: str) -> dict[int, list[int]]:
        """Milliseconds since the epoch, by partition."""
        found: dict[int, list[int]] = {}
        for line in self.path.read_text().splitlines():
            parts = line.split()
            if len(parts) == 3 and parts[1] == group:
                found.setdefault(int(parts[2]), []).append(round(float(parts[0]) * 1_000))
        return found

    def works(self, group: str, count: int) -> bool:
        """True if it works on so many partitions: each was noted within the last half second."""
        now_ms = time.time() * 1_000
        return sum(times[-1] > now_ms - 500 for times in self.notes(group).values()) == count


@pytest.fixture
def node():
    with Process(
        "--group-initial-rebalance-delay-ms", "500", "--group-min-session-timeout-ms", "500"
    ) as process:
        yield process


def moves_of(rebalances: Iterable[pb.Rebalance]) -> list[pb.PartitionMove]:
    return [move for rebalance in rebalances for move in rebalance.moves if move.has_moved]


def check(members: list[Member], group: str, moves: list[pb.PartitionMove], noise_ms: float) -> int:
    """Compare moves with the notes of all members; returns the longest time without work."""
    by_partition: dict[int, list[int]] = {}
    for member in members:
        for partition, times in member.notes(group).items():
            by_partition.setdefault(partition, []).extend(times)
    longest_ms = 0
    for move in moves:
        for number in range(move.partitions[0].first, move.partitions[-1].last + 1):
            if not any(some.first <= number <= some.last for some in move.partitions):
                continue
            times = sorted(by_partition[number])
            stopped = max(at for at in times if at < move.resumed_at_ms)
            begun = min(at for at in times if at >= move.resumed_at_ms)
            stalls = [b - a for a, b in itertools.pairwise(times) if b <= stopped]
            tolerance_ms = TOLERANCE_MS + 2 * (noise_ms + max(stalls, default=0))
            idle_ms = move.resumed_at_ms - stopped
            assert move.unowned_ms_min - tolerance_ms <= idle_ms, (move, idle_ms)
            assert idle_ms <= move.unowned_ms_max + tolerance_ms, (move, idle_ms)
            longest_ms = max(longest_ms, begun - stopped)
    return longest_ms


def test_five_incidents(node, tmp_path):
    eager, cooperative = "range:0.2", "cooperative-sticky:0.2"
    groups = {
        "kill": cooperative,
        "pause": eager,
        "leave": eager,
        "slow": "range:1.5",
        "move": "cooperative-sticky:1",
    }
    told = [f"{group}:{how}" for group, how in groups.items()]

    def member(name: str, *some: str) -> Member:
        return Member(node.address, tmp_path / name, some)

    noise = Noise()
    steady = member("steady", *told)
    killed, paused, leaving = (member(name, told[n]) for n, name in enumerate(groups) if n < 3)
    members = [steady, killed, paused, leaving]
    try:
        with GroupAdmin(node.address) as admin:
            for group, victim in (("kill", killed), ("pause", paused), ("leave", leaving)):
                wait_until(lambda g=group, v=victim: v.works(g, 2) and steady.works(g, 2))
            wait_until(lambda: steady.works("slow", 4) and steady.works("move", 4))
            time.sleep(2 * INTERVAL_MS / 1_000)  # Two heartbeats, so that their interval is known.
            since_ms = round(time.time() * 1_000)
            killed.process.kill()
            paused.process.send_signal(signal.SIGSTOP)
            leaving.process.send_signal(signal.SIGTERM)
            newcomer = member("newcomer", told[3], told[4])
            members.append(newcomer)

            def since(group: str) -> list[pb.Rebalance]:
                found = admin.journal(group).rebalances
                return [item for item in found if item.started_at_ms >= since_ms]

            moves = {}
            for group in groups:
                wait_until(lambda g=group: moves_of(since(g)))
                moves[group] = moves_of(since(group))
            for group in ("kill", "pause", "leave"):
                wait_until(lambda g=group: steady.works(g, 4))
            wait_until(lambda: newcomer.works("slow", 2) and newcomer.works("move", 2))
            moves = {group: moves_of(since(group)) for group in groups}
            longest = {
                group: check(members, group, moves[group], noise.worst_ms) for group in groups
            }
            assert longest["kill"] > 3_000 - INTERVAL_MS
            for group in ("kill", "pause"):
                (gone,) = [r for event in since(group) for r in event.removed]
                assert gone.code == "session_expired"
                width_ms = max(m.unowned_ms_max - m.unowned_ms_min for m in moves[group])
                assert width_ms <= gone.heartbeat_interval_ms
            assert {move.known_by for move in moves["move"]} == {"taken_away"}
            assert {event.cooperative_round for event in since("move")} >= {1, 2}
    finally:
        noise.end()
        for one in members:
            one.process.kill()
            one.process.wait()
