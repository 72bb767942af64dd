"""Members of two checkouts beside each other: CPU of a heartbeat, a commit and a hand-over.

Each half of a pair is a process that runs one checkout's member library against a server of this
one. Its program uses what both checkouts have, so that the other one may be older.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.bench.figures import CannotMeasure
from tests.bench.servers import environment

PROTOCOLS = ("classic", "session")
WORK = ("a heartbeat", "a commit", "a hand-over")
FLAGS = ("--group-min-lease-ms", "800", "--group-initial-rebalance-delay-ms", "0")
"""Flags of the server: leases so short that heartbeats are frequent."""
PROGRAM = """
import json, sys, time
import coordinator.client as client

address, protocol, group, commits, rounds = sys.argv[1:4] + [int(each) for each in sys.argv[4:]]
TOPICS, BEAT_MS = {"t": 4}, 10 if protocol == "classic" else 200


def member(**settings):
    if protocol == "classic":
        return client.BlockingMember(
            address, group, TOPICS, assignors="cooperative-sticky",
            heartbeat_interval_ms=BEAT_MS, session_timeout_ms=6_000, **settings
        )
    wishes = {"lease_ms": 4 * BEAT_MS, "join_quiet_ms": 0, "initial_delay_ms": 0,
              "plan_interval_ms": 0, "plan_window_ms": 0}
    if hasattr(client, "BlockingSessionMember"):
        return client.BlockingSessionMember(address, group, TOPICS, wishes=wishes, **settings)
    return client.BlockingMember(
        address, group, TOPICS, protocol="session", wishes=wishes, **settings
    )


def receive(one):
    for event in one.poll(timeout=0.01):
        if protocol == "session" and type(event).__name__ in ("Draining", "Revoking", "Lost"):
            if not getattr(event, "was_warming", False):
                one.released(getattr(event, "holdings", None) or event.partition)


def until(condition, *members):
    until_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until_s, "the members do not get on"
        for one in members:
            receive(one)


def cost_us(work, number):
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1e6 / number


with member() as first:
    until(lambda: len(first.assignment) == 4, first)
    beats = 200 if protocol == "classic" else 20
    costs = {"a heartbeat": cost_us(lambda: time.sleep(beats * BEAT_MS / 1000), beats)}

    def commit_all():
        for offset in range(commits):
            receive(first) if offset % 100 == 0 else None
            first.commit({("t", 0): offset})

    costs["a commit"] = cost_us(commit_all, commits)

    def hand_over():
        for _ in range(rounds):
            with member() as second:
                until(lambda: len(first.assignment) == len(second.assignment) == 2, first, second)
            until(lambda: len(first.assignment) == 4, first)

    costs["a hand-over"] = cost_us(hand_over, 2 * rounds)
print(json.dumps(costs))
"""


class LostMember(CannotMeasure):
    """A member that did not do its work; the message has what it said."""


class MemberCosts:
    """CPU in microseconds of members of one checkout, measured once for each pair."""

    def __init__(self, address: str, commits: int, rounds: int) -> None:
        self._address, self._sizes = address, (str(commits), str(rounds))

    def measure(self, tree: Path, protocol: str, group: str) -> dict[str, float]:
        """Run the program once; costs by kind of work.

        Raises:
            LostMember: it failed.
        """
        answer = subprocess.run(  # noqa: S603  # Our own program.
            [sys.executable, "-c", PROGRAM, self._address, protocol, group, *self._sizes],
            cwd=tree,
            env=environment(tree),
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode:
            raise LostMember(f"a {protocol} member of {tree}: {answer.stderr[-500:]}")
        found: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
        return found
