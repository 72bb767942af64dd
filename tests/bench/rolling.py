"""A rolling restart of workers: for how long does a partition rest?

The workers are processes, `tests.bench.rolling_worker`. Each is stopped with SIGTERM, started again
once it has ended, and the next one follows as soon as it commits. A partition rests while nobody
works on it who may commit: from one accepted commit to the next one, less the time that the work
before the second one took. For comparison, one worker is killed, and started again.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from coordinator.operator.admin import GroupAdmin
from tests.bench.figures import CannotMeasure, Figures, Goal
from tests.bench.rolling_worker import Program
from tests.bench.servers import scratch, with_server

LOOK_S = 0.1
PATIENCE_S = 180.0


@dataclass(frozen=True, slots=True)
class Size:
    """Number of workers, and their settings; the defaults of a `Worker` where it has any."""

    workers: int = 6
    partitions: int = 60
    work_s: float = 1.0
    heartbeat_interval_ms: int = 3_000
    session_timeout_ms: int = 45_000
    initial_delay_ms: int = 3_000

    @classmethod
    def quick(cls) -> Size:
        """Little of everything."""
        return cls(2, 4, 0.1, 300, 6_000, 100)

    @property
    def allowed_s(self) -> float:
        """A heartbeat interval, in which all hear of the rebalance, and a second."""
        return self.heartbeat_interval_ms / 1000 + 1


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of a partition, and the work before it."""

    pid: int
    number: int
    offset: int
    began_s: float
    worked_s: float
    at_s: float


def bench_rolling(size: Size) -> Figures:
    """Restart workers of each kind, and kill one; each group on a server of its own."""
    goal = size.allowed_s
    figures: Figures = {"workers": size.workers, "partitions": size.partitions}
    for name, has_threads in (("async def", False), ("def", True)):
        figures |= _measure(name, size, "cooperative-sticky", has_threads, _restart_all, goal)
    figures |= _measure("range", size, "range", False, _restart_all, None)
    figures |= _measure("killed", size, "cooperative-sticky", False, _kill_one, None)
    return figures


class Fleet:
    """Workers of one group, and the file of their commits."""

    def __init__(self, program: Program, workers: int) -> None:
        self._program = program
        self.processes = [self._started() for _ in range(workers)]

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()

    def restart(self, place: int, *, is_killed: bool = False) -> None:
        """Stop a worker and start it again; return once it commits."""
        process = self.processes[place]
        process.kill() if is_killed else process.terminate()
        process.wait()
        started = self.processes[place] = self._started()
        self._until(lambda: any(commit.pid == started.pid for commit in self.commits()))

    def start(self) -> None:
        """Start one worker more."""
        self.processes.append(self._started())

    def end(self, place: int, *, is_killed: bool = False) -> None:
        """Stop a worker for good; return once its process has ended."""
        process = self.processes.pop(place)
        process.kill() if is_killed else process.terminate()
        process.wait()

    def settle(self) -> None:
        """Wait until all work, on as many partitions each, give or take one."""

        def is_balanced() -> bool:
            last = {commit.number: commit.pid for commit in self.commits()}
            shares = Counter(last.values())
            fair = self._program.partitions // len(self.processes)
            return (
                len(last) == self._program.partitions
                and shares.keys() == {process.pid for process in self.processes}
                and min(shares.values()) >= fair
            )

        self._until(is_balanced)

    def commits(self) -> list[Commit]:
        """Commits so far, in the order in which they were answered."""
        with contextlib.suppress(FileNotFoundError):
            whole, _, _ = Path(self._program.file).read_text().rpartition("\n")
            return [
                Commit(int(pid), int(number), int(offset), *map(float, times))
                for pid, number, offset, *times in map(str.split, whole.splitlines())
            ]
        return []

    def _started(self) -> subprocess.Popen[bytes]:
        program = json.dumps(asdict(self._program))
        return subprocess.Popen(  # noqa: S603  # Our own program.
            [sys.executable, "-m", "tests.bench.rolling_worker", program]
        )

    def _until(self, holds: Callable[[], bool]) -> None:
        """Wait for a condition.

        Raises:
            CannotMeasure: a worker has ended, or it takes minutes.
        """
        until_s = time.monotonic() + PATIENCE_S
        while not holds():
            if any(process.poll() is not None for process in self.processes):
                raise CannotMeasure("a worker has ended; see above")
            if time.monotonic() > until_s:
                raise CannotMeasure(f"the workers have not settled within {PATIENCE_S:g} s")
            time.sleep(LOOK_S)


def successions(commits: list[Commit], since_s: float) -> Iterator[tuple[Commit, Commit]]:
    """Each accepted commit since then, and the one of its partition before it.

    Of commits of the same offset the last one counts: the others were refused.
    """
    accepted = {(commit.number, commit.offset): commit for commit in commits}
    for key in sorted(accepted):
        before, commit = accepted.get((key[0], key[1] - 1)), accepted[key]
        if before is not None and commit.at_s >= since_s:
            yield before, commit


def rests(commits: list[Commit], since_s: float) -> Iterator[tuple[float, bool]]:
    """Seconds before each commit since then in which its partition rested; is its worker new?"""
    for before, commit in successions(commits, since_s):
        rest_s = commit.at_s - before.at_s - commit.worked_s
        yield max(rest_s, 0.0), commit.pid != before.pid


def _measure(
    name: str,
    size: Size,
    assignor: str,
    has_threads: bool,
    disturb: Callable[[Fleet], None],
    goal_s: float | None,
) -> Figures:
    def run(address: str, _: int) -> Figures:
        with scratch() as folder:
            program = Program(
                address, name, f"{folder}/commits", size.partitions, size.work_s, has_threads,
                assignor, size.heartbeat_interval_ms, size.session_timeout_ms,
            )  # fmt: skip
            with Fleet(program, size.workers) as fleet, GroupAdmin(address) as admin:
                fleet.settle()
                time.sleep(2 * size.work_s)
                began_s, before = time.monotonic(), admin.journal(name, 1).rebalances[0]
                disturb(fleet)
                fleet.settle()
                took_s = time.monotonic() - began_s
                time.sleep(4 * size.work_s)
                after = admin.journal(name, 1).rebalances[0]
                found = list(rests(fleet.commits(), began_s))
        longest_s = max(rest_s for rest_s, _ in found)
        handed = [rest_s for rest_s, is_new in found if is_new]
        return {
            f"{name}: longest rest of a partition, s": (
                longest_s if goal_s is None else Goal(longest_s, at_most=goal_s)
            ),
            f"{name}: partitions that changed workers": len(handed),
            f"{name}: their rest, mean, s": sum(handed) / len(handed),
            f"{name}: rest of all, % of the time": 100
            * sum(rest_s for rest_s, _ in found)
            / (took_s * size.partitions),
            f"{name}: rebalances": after.generation_after - before.generation_after,
            f"{name}: until all was settled, s": took_s,
        }

    return with_server(run, "--group-initial-rebalance-delay-ms", str(size.initial_delay_ms))


def _restart_all(fleet: Fleet) -> None:
    for place in range(len(fleet.processes)):
        fleet.restart(place)


def _kill_one(fleet: Fleet) -> None:
    fleet.restart(0, is_killed=True)
