"""Time for which partitions rest, in classic groups and in one of sessions.

The same workers, as processes of their own, are members of a group with eager rebalances, of one
with cooperative rebalances and of one of sessions, on a server each, in one run. One worker joins,
one leaves, one is killed, and the coordinator is killed and started again. A partition rests from
the answer to the last commit of one worker to the beginning of the work of the next one: a worker
that waits for the answer to a commit does not rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from coordinator.operator.admin import GroupAdmin
from tests.bench.figures import Figures, Goal, percentile
from tests.bench.report import Panel, Picture, Report, Spans
from tests.bench.rolling import Commit, Fleet, successions
from tests.bench.rolling_worker import Program
from tests.bench.servers import Server, scratch

NOTICED_S = 0.05
"""A shorter rest is the pause between two pieces of work."""
AHEAD_S = 2.0
"""Time for which all is watched before and after something happens."""
GOALS_S = {"leaves": 0.15, "killed": 0.25}
"""Longest rest that sessions promise; of a killed worker's partitions, beyond the lease."""


@dataclass(frozen=True, slots=True)
class Size:
    """Number of workers, and their settings."""

    workers: int = 30
    partitions: int = 300
    work_s: float = 1.0
    heartbeat_interval_ms: int = 3_000
    session_timeout_ms: int = 45_000
    lease_ms: int = 10_000
    initial_delay_ms: int = 3_000

    @classmethod
    def quick(cls) -> Size:
        """Little of everything."""
        return cls(2, 6, 0.1, 300, 6_000, 2_000, 100)


@dataclass(frozen=True, slots=True)
class Rest:
    """A partition that nobody works on; `is_moved`: it has another worker afterwards.

    Times are seconds since the event.
    """

    partition: int
    began_s: float
    ended_s: float
    is_moved: bool

    @property
    def length_s(self) -> float:
        return self.ended_s - self.began_s


@dataclass(frozen=True, slots=True)
class Watched:
    """An event: the rests from then on, and the time until all was settled."""

    rests: tuple[Rest, ...]
    moved: int
    settled_s: float


class Group:
    """One group, its server and its workers."""

    def __init__(self, name: str, size: Size, folder: Path) -> None:
        self._folder = folder
        self._flags = ["--data-dir", f"{folder}/data"]
        self._flags += ["--group-initial-rebalance-delay-ms", str(size.initial_delay_ms)]
        self._size = size
        self.name = name
        self.server: Server = Server(folder, *self._flags).__enter__()
        program = Program(
            self.server.address, name, f"{folder}/commits", size.partitions, size.work_s, False,
            KINDS[name], size.heartbeat_interval_ms, size.session_timeout_ms,
            size.lease_ms if name == "sessions" else None,
        )  # fmt: skip
        self.fleet: Fleet = Fleet(program, size.workers)

    def close(self) -> None:
        """Stop the workers, then the server."""
        self.fleet.__exit__()
        self.server.__exit__()

    def watch(self, happen: Callable[[Group], None]) -> Watched:
        """Have something happen; return once all partitions are worked on again, evenly."""
        self.fleet.settle()
        time.sleep(AHEAD_S)
        began_s = time.monotonic()
        happen(self)
        self.fleet.settle()
        settled_s = time.monotonic() - began_s
        time.sleep(AHEAD_S + 2 * self._size.work_s)
        found = list(_rests(self.fleet.commits(), began_s))
        long = tuple(rest for rest in found if rest.length_s > NOTICED_S)
        return Watched(long, len({rest.partition for rest in found if rest.is_moved}), settled_s)

    def restart(self) -> None:
        """Kill the coordinator, and start it again at the same address."""
        self.server.kill()
        address = self.server.address
        self.server = Server(self._folder, *self._flags, "--listen", address).__enter__()

    def rebalances(self) -> int:
        """Number of rebalances of a classic group so far."""
        with GroupAdmin(self.server.address) as admin:
            return admin.journal(self.name, 1).rebalances[0].generation_after


def _rests(commits: list[Commit], since_s: float) -> list[Rest]:
    return [
        Rest(
            commit.number,
            max(before.at_s, since_s) - since_s,
            commit.began_s - since_s,
            commit.pid != before.pid,
        )
        for before, commit in successions(commits, since_s)
        if commit.began_s > since_s
    ]


KINDS = {"eager": "range", "cooperative": "cooperative-sticky", "sessions": ""}
"""Groups by name, with the assignor of their workers."""

EVENTS: dict[str, Callable[[Group], None]] = {
    "joins": lambda group: group.fleet.start(),
    "leaves": lambda group: group.fleet.end(0),
    "killed": lambda group: group.fleet.end(0, is_killed=True),
    "coordinator killed": lambda group: group.restart(),
}


def bench_sessions(size: Size) -> Report:
    """Watch every event in a group of each kind."""
    found: dict[tuple[str, str], Watched] = {}
    with scratch() as folder:
        for name in KINDS:
            below = folder / name
            below.mkdir()
            group = Group(name, size, below)
            try:
                for event, happen in EVENTS.items():
                    found[name, event] = group.watch(happen)
            finally:
                group.close()
    figures: Figures = {"workers": size.workers, "partitions": size.partitions}
    for (name, event), watched in found.items():
        figures |= _figures(f"{event}, {name}", name, event, watched, size)
    return Report(figures, (_picture(found, size),))


def _figures(head: str, name: str, event: str, watched: Watched, size: Size) -> Figures:
    lengths_s = [rest.length_s for rest in watched.rests]
    moved_s = [rest.length_s for rest in watched.rests if rest.is_moved]
    unmoved_s = [rest.length_s for rest in watched.rests if not rest.is_moved]
    figures: Figures = {
        f"{head}: partitions that moved": watched.moved,
        f"{head}: others that rested": len(
            {rest.partition for rest in watched.rests if not rest.is_moved}
        ),
        f"{head}: rest of those that moved, p99, s": percentile(moved_s, 99),
        f"{head}: rest of the others, longest, s": max(unmoved_s, default=0.0),
        f"{head}: rest of all partitions together, s": sum(lengths_s),
        f"{head}: until all was settled, s": watched.settled_s,
    }
    if name == "sessions" and event in GOALS_S:
        goal_s = GOALS_S[event] + (size.lease_ms / 1_000 if event == "killed" else 0.0)
        what = f"{head}: rest of those that moved, p99, s"
        figures[what] = Goal(percentile(moved_s, 99), at_most=goal_s)
    if name == "sessions" and event == "coordinator killed":
        figures[f"{head}: partitions that moved"] = Goal(watched.moved, at_most=0)
    return figures


def _picture(found: dict[tuple[str, str], Watched], size: Size) -> Picture:
    panels = []
    for event in EVENTS:
        ends = [
            max((rest.ended_s for rest in found[name, event].rests), default=1.0) for name in KINDS
        ]
        for name in KINDS:
            bars = tuple(
                (float(rest.partition), rest.began_s, rest.ended_s)
                for rest in found[name, event].rests
            )
            title = f"{name}: {event}" if "coord" in event else f"{name}: one {event}"
            spans = (Spans("nobody works on it", bars),)
            panels.append(
                Panel(
                    title,
                    "seconds since then",
                    "partition",
                    spans=spans,
                    x_end=max(ends),
                    y_end=size.partitions,
                )
            )
    return Picture(
        "sessions", "For how long nobody works on a partition", tuple(panels), columns=len(KINDS)
    )
