"""Heartbeats of other groups while a large session group is planned and told its partitions.

The large group's members are raw streams in this process. Members of ten other groups are in a
process of their own (`tests.bench.session_probe`), which notes how long each acknowledgement took.
So server, planner, members and probe share the machine; on two cores the figures are higher than a
server's that has the machine for itself.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from coordinator.v1 import session_pb2 as pb
from tests.bench.connections import allow
from tests.bench.figures import CannotMeasure, Figures, Goal, percentile
from tests.bench.servers import with_server
from tests.bench.session_members import LEASE_MS, Member, attach_all

PARTITIONS = 50
"""Partitions for each member."""
SHORTEST_S = 1.0
"""A span lasts so long at least: a thousand heartbeats."""
REST_S = 5.0
GOAL_MS = 20
PLANS = ("during the first plan", "after one has left", "after one has joined")
HELD_S = 300.0
ATTACH_MS = 120_000
"""Longest time for which the first plan waits for members."""


def bench_session_plans(members: int = 5_000) -> Figures:
    """Measure heartbeats of others at rest, during a first plan, a leave and a join."""
    allow(members + 400)
    return with_server(
        lambda address, _: asyncio.run(_measure(address, members)),
        "--max-streams", str(members + 300),
    )  # fmt: skip


class _Probe:
    """The process of the other groups' members."""

    def __init__(self, address: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603  # Our own program.
            [sys.executable, "-m", "tests.bench.session_probe", address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            raise CannotMeasure("the members of other groups could not attach")

    def end(self) -> list[tuple[float, float]]:
        """Stop; returns when each heartbeat was sent, and how long it took, monotonic seconds."""
        said, _ = self._process.communicate("\n")
        return [(sent_s, late_s) for sent_s, late_s in json.loads(said)]


async def _measure(address: str, number: int) -> Figures:
    partitions = number * PARTITIONS
    probe = _Probe(address)
    spans: dict[str, tuple[float, float]] = {}
    # The first plan waits for all of them, as one would have it that knows how many there are.
    policy = pb.GroupPolicy(lease_ms=LEASE_MS, expected_members=number, initial_delay_ms=ATTACH_MS)

    def member(number: int) -> Member:
        return Member(address, number, group="large", partitions=partitions, policy=policy)

    members = [member(n) for n in range(number)]
    began_s = time.monotonic()
    await attach_all(members)
    spans["while members attach"] = began_s, time.monotonic()
    first, left, joined = PLANS
    await _span(spans, first, lambda: _held(members) == partitions)
    began_s = time.monotonic()
    await asyncio.sleep(REST_S)
    spans["at rest, then"] = began_s, time.monotonic()
    await members.pop().leave()
    await _span(spans, left, lambda: _held(members) == partitions)
    joiner = member(number)
    members.append(joiner)
    await joiner.attach()
    await _span(spans, joined, lambda: len(joiner.held) >= PARTITIONS - 1)
    for each in members:
        each.close()
    heard = probe.end()
    figures: Figures = {"members": number, "partitions": partitions}
    for what, (first_s, last_s) in spans.items():
        late_ms = [1_000 * late for sent, late in heard if first_s <= sent < last_s]
        if not late_ms:
            raise CannotMeasure(f"no heartbeat was sent {what}")
        figures[f"{what}, s"] = last_s - first_s
        p99_ms = percentile(late_ms, 99)
        goal = Goal(p99_ms, at_most=GOAL_MS) if what in PLANS else p99_ms
        figures[f"{what}, p99 ms"] = goal
        figures[f"{what}, longest ms"] = max(late_ms)
    return figures


async def _span(
    spans: dict[str, tuple[float, float]], what: str, is_over: Callable[[], bool]
) -> None:
    """Wait until something is over, some seconds at least, and note from when to when that was."""
    began_s = time.monotonic()
    await asyncio.sleep(SHORTEST_S)
    while not is_over():
        if time.monotonic() - began_s > HELD_S:
            raise CannotMeasure(f"not all partitions are held {what}")
        await asyncio.sleep(0.1)
    spans[what] = began_s, time.monotonic()


def _held(members: Sequence[Member]) -> int:
    return sum(len(each.held) for each in members)
