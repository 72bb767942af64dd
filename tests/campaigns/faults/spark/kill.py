"""Kill tasks, workers, executors, source processes, drivers and the coordinator, at random.

    python -m tests.campaigns.faults.spark.kill SINK PROTOCOL [KILLS] [SEED]

SINK: plain, parquet, delta, iceberg, sql. PROTOCOL: classic, session. Two Spark drivers on a
standalone cluster read the flights of 2013 as members of one group: in one Spark reads the files,
in the other a source in Python. Exit status: 0 if every claim holds. What the run wrote stays
behind if one does not.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from coordinator.assignors import TopicPartition
from coordinator.operator.admin import GroupAdmin
from tests.campaigns.faults.spark.driver import PLAIN, Settings
from tests.campaigns.faults.spark.feed import Feed
from tests.campaigns.faults.spark.judge import Verdict, judge, judge_counted
from tests.campaigns.faults.spark.processes import (
    below,
    executors,
    python_workers,
    send,
    source_processes,
)
from tests.integration.spark import standalone
from tests.kit.patience import HANG_S
from tests.kit.serving import Process, free_port
from tests.kit.sinks import GROUP, Place

ROOT = Path(__file__).parents[4]
KINDS = ("task", "worker", "executor", "source", "driver", "coordinator")
SESSION_MS = 6_000
PATIENCE_S = 2 * HANG_S
ROWS_A_BATCH, ROWS_AT_LAST = 600, 40_000
STOPS_MAX = 10
"""Until one of them was in the middle of a batch."""


class Coordinator:
    """A coordinator that keeps its address over kills and restarts."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self._flags = (
            "--data-dir", str(folder / "data-dir"), "--listen", self.address,
            "--metrics-listen", "", "--group-min-session-timeout-ms", "1000",
            "--group-initial-rebalance-delay-ms", "500",
        )  # fmt: skip
        self._process = Process(*self._flags)

    def kill(self) -> None:
        self._process.kill()
        self._process = Process(*self._flags)

    def stop(self) -> None:
        self._process.kill()

    def committed(self) -> int:
        """Rows of all partitions."""
        return sum(self.offsets().values())

    def offsets(self) -> dict[TopicPartition, int]:
        """Committed offsets of the flights."""
        with GroupAdmin(self.address) as admin:
            return {p: o for p, o in admin.offsets(GROUP).items() if p.topic == "flights"}


class Driver:
    """A driver's process; it is started again when it was killed."""

    def __init__(self, settings: Settings, environment: dict[str, str]) -> None:
        self.settings = settings
        self._environment = environment
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.campaigns.faults.spark.driver"]
        with Path(self.settings.folder, f"driver-{self.settings.name}.log").open("a") as log:
            self.process = subprocess.Popen(
                [*command, json.dumps(asdict(self.settings))],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=self._environment,
            )

    @property
    def app(self) -> str:
        """Spark's name of the application; of the last one, while a new one starts."""
        path = Path(self.settings.folder, f"app-{self.settings.name}")
        return path.read_text() if path.exists() else "none"

    def kill(self) -> int:
        family = [p.pid for p in below(self.process.pid)]
        heard = send(family, signal.SIGKILL)
        self.process.wait()
        return heard

    def fail_a_task(self) -> int:
        self.process.stdin.write("kill-task\n")
        self.process.stdin.flush()
        return 1


class Run:
    """Two drivers and a coordinator. There are always some batches more to read."""

    def __init__(
        self,
        folder: Path,
        cluster: standalone.Cluster,
        sink: str,
        protocol: str,
    ) -> None:
        self.folder, self.sink = folder, sink
        self.feed = Feed(folder / "log")
        self.feed.grow(ROWS_A_BATCH // 2)
        self.coordinator = Coordinator(folder)
        environment = {
            **cluster.environment,
            "PYSPARK_PYTHON": sys._base_executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": str(cluster.unpacked),
        }
        first = Settings(
            name="one", folder=str(folder), master=cluster.master, library=str(cluster.unpacked),
            source=self.feed.source, coordinator=self.coordinator.address, sink=sink,
            protocol=protocol, rows_per_batch=ROWS_A_BATCH, session_timeout_ms=SESSION_MS,
            static=True, by_spark=True,
        )  # fmt: skip
        second = replace(first, name="two", static=False, by_spark=False)
        self.drivers = [Driver(settings, environment) for settings in (first, second)]
        self.killed: dict[str, int] = {}

    def close(self) -> None:
        for driver in self.drivers:
            driver.kill()
        self.coordinator.stop()

    # --- What happens ---

    def hit(self, kind: str, dice: random.Random) -> None:
        """Kill one of a kind; wait for there to be one."""
        deadline = time.monotonic() + PATIENCE_S
        while not self._try_to_hit(kind, dice):
            assert time.monotonic() < deadline, f"there is no {kind} to kill"
            self._look_after_all()
            time.sleep(0.2)
        self.killed[kind] = self.killed.get(kind, 0) + 1

    def _try_to_hit(self, kind: str, dice: random.Random) -> int:
        driver = dice.choice(self.drivers)
        match kind:
            case "task":
                return driver.fail_a_task() if python_workers(driver.app) else 0
            case "worker":
                return send(_one(dice, python_workers(driver.app)), signal.SIGKILL)
            case "executor":
                return send(_one(dice, executors(driver.app)), signal.SIGKILL)
            case "source":
                return send(source_processes(driver.process.pid), signal.SIGKILL)
            case "stop":
                return self._stop_and_go_on(driver)
            case "driver":
                driver.kill()
                driver.start()
                return 1
            case "coordinator":
                self.coordinator.kill()
                return 1
        raise ValueError(kind)

    def _stop_and_go_on(self, driver: Driver) -> int:
        """It stands still until others have done some of its work, and goes on as if nothing were.

        What it was writing meanwhile is a zombie's.
        """
        family = [p.pid for p in below(driver.process.pid)]
        before = self.coordinator.offsets()
        heard = send(family, signal.SIGSTOP)
        deadline = time.monotonic() + PATIENCE_S
        # Until all partitions get on, those that it had as well.
        while any(self.coordinator.offsets().get(p) == offset for p, offset in before.items()):
            self._look_after_all()
            if time.monotonic() > deadline:
                break  # The other one is being started; the next claim says whether it comes.
            time.sleep(0.1)
        send(family, signal.SIGCONT)
        return heard

    def wait_for_progress(self, rows: int = 1) -> None:
        """Until so many more rows are committed."""
        deadline = time.monotonic() + PATIENCE_S
        goal = self.coordinator.committed() + rows
        while self.coordinator.committed() < goal:
            assert time.monotonic() < deadline, "nothing is committed any more"
            self._look_after_all()
            time.sleep(0.2)

    def _look_after_all(self) -> None:
        """Let the feed have some batches for each driver that nobody has read."""
        for driver in self.drivers:
            status = driver.process.poll()
            assert status is None, f"driver {driver.settings.name} has ended by itself: {status}"
        committed = self.coordinator.committed()
        if self.feed.rows < committed + 4 * ROWS_A_BATCH:
            self.feed.grow(ROWS_A_BATCH // 2)
            assert self.feed.rows > committed, "all flights are read before all is killed"

    def finish(self, *, everything: bool) -> None:
        """Read the rest: of the log, or of all flights, in large batches."""
        if everything:
            self.feed.grow(None)
            for driver in self.drivers:
                driver.settings = replace(driver.settings, rows_per_batch=ROWS_AT_LAST)
                driver.kill()
                driver.start()
        deadline, before = time.monotonic() + PATIENCE_S, -1
        while (committed := self.coordinator.committed()) < self.feed.rows:
            if committed > before:
                deadline, before = time.monotonic() + PATIENCE_S, committed
            assert time.monotonic() < deadline, f"nothing is committed any more, at {committed}"
            time.sleep(0.2)

    # --- What is left ---

    def verdict(self) -> Verdict:
        if self.sink == PLAIN:
            paths = [p for p in (self.folder / "data").iterdir() if any(p.glob("*.parquet"))]
            return judge(paths, self.feed.lengths)
        place, deadline = Place(self.sink, str(self.folder)), time.monotonic() + PATIENCE_S
        while True:
            verdict = judge_counted(place.rows(self.coordinator.address), self.feed.lengths)
            if not verdict.missing or time.monotonic() > deadline:
                return verdict
            time.sleep(0.5)  # A table follows the decision, which the offsets show.

    def refused(self, what: str) -> int:
        """Commits that were refused: of zombies, or of batches done `again` after a start."""
        path = self.folder / "refused"
        lines = path.read_text().splitlines() if path.exists() else []
        return sum(line.startswith(what) for line in lines)


def kill_again_and_again(
    run: Run,
    kills: int,
    stops: int,
    seed: int,
    *,
    kinds: Sequence[str] = KINDS,
    everything: bool = True,
) -> None:
    """Kill and stop jobs, all kinds equally often, each time once they make progress.

    Args:
        everything: read all flights in the end, not only those that are in the log by then.
    """
    dice = random.Random(seed)
    plan = [kinds[n % len(kinds)] for n in range(kills)] + ["stop"] * stops
    dice.shuffle(plan)
    run.wait_for_progress()
    for number, kind in enumerate(plan):
        run.hit(kind, dice)
        run.wait_for_progress()
        time.sleep(dice.random())
        print(f"{number + 1:4} {kind:12} {run.coordinator.committed():8} rows", flush=True)
    while run.sink != PLAIN and not run.refused("zombie"):
        assert run.killed["stop"] < STOPS_MAX, "no zombie tried to commit: the race was not tested"
        run.hit("stop", dice)
        run.wait_for_progress()
    run.finish(everything=everything)


def claims(run: Run, verdict: Verdict) -> list[str]:
    """Claims that do not hold."""
    broken = []
    if verdict.missing:
        broken.append(f"{verdict.missing} rows are missing")
    if run.sink == PLAIN:
        if verdict.worst:
            broken.append(f"more than a batch again for a move: {verdict.worst}")
    else:
        if verdict.duplicates:
            broken.append(f"{verdict.duplicates} rows count twice")
    return broken


def _one(dice: random.Random, pids: list[int]) -> list[int]:
    return [dice.choice(pids)] if pids else []


def main() -> int:
    sink, protocol = sys.argv[1:3]
    kills = int(sys.argv[3]) if len(sys.argv) > 3 else 100
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else random.randrange(10**6)
    folder = Path(tempfile.mkdtemp(prefix="spark-kill-"))
    began = time.monotonic()
    with standalone.cluster(folder / "cluster") as cluster:
        run = Run(folder, cluster, sink, protocol)
        with contextlib.closing(run):
            kill_again_and_again(run, kills, stops=max(1, kills // 20), seed=seed)
            verdict = run.verdict()
    broken = claims(run, verdict)
    print(verdict)
    print(f"killed: {run.killed}; zombies refused: {run.refused('zombie')}")
    print(f"done again after a start: {run.refused('again')}")
    print(f"{sink}, {protocol}, {kills} kills, seed {seed}, {time.monotonic() - began:.0f} s")
    for claim in broken:
        print(f"BROKEN: {claim}; see {folder}")
    if not broken:
        shutil.rmtree(folder)
    return len(broken)


if __name__ == "__main__":
    sys.exit(main())
