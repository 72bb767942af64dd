"""Second part of the main job, from an empty folder to a verdict.

Two Spark executors share their work with workers outside Spark: one from the beginning, and one of
another application that joins in mid-run and leaves again. All count the flights of 2013 as members
of one session group. An executor's worker is killed. The result must equal that of a direct
computation. Exit status: 0 if it does, 1 if not.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from coordinator.operator import GroupAdmin
from coordinator.sources import FileLog, write_log
from coordinator.spark import run_members
from flights import dataset, judge
from flights.counting import Counting, merge, notes_folder
from flights.history import SIGKILL, History, Strike, history_of
from flights.notes import read_notes
from flights.picture import draw, lengths
from flights.processes import start_coordinator, start_program, stop
from flights.sessions import start_spark, stop_spark

GROUP = "counts"
TITLE = "Spark executors share partitions with workers outside Spark"
PLAIN, HELPER = "plain-worker", "other-application"
EXECUTORS = 2
LEASE_MS = 3_000
ROWS_PER_COMMIT = 500
PAUSE_S = 0.06
HELP_FROM, KILL_AT, HELP_UNTIL = 0.2, 0.4, 0.75
DEADLINE_S = 240


class SparkJob:
    """The Spark side, in a thread: two executors, a member in each."""

    def __init__(
        self, address: str, source: FileLog, results: Path, stack: contextlib.ExitStack
    ) -> None:
        self.failure: BaseException | None = None
        self._arguments = (address, source, str(results))
        self._thread = threading.Thread(target=self._run, daemon=True)
        folder = results.parent
        self._log = folder / "spark.log"
        self._spark = _make_spark(folder, self._log)
        stack.callback(stop_spark, self._spark, folder / "executors")
        self._thread.start()

    def join(self) -> None:
        self._thread.join(DEADLINE_S)
        if self.failure is not None:
            raise SystemExit(f"the Spark job failed: {self.failure}\nSpark's log: {self._log}")

    def _run(self) -> None:
        address, source, results = self._arguments
        try:
            run_members(
                self._spark,
                EXECUTORS,
                bootstrap=address,
                group_id=GROUP,
                source=source,
                make_work=lambda client_id: Counting(results, client_id),
                protocol="session",
                member_settings={"wishes": {"lease_ms": LEASE_MS}},
                rows_per_commit=ROWS_PER_COMMIT,
                pause_s=PAUSE_S,
            )
        except BaseException as error:  # noqa: BLE001  # It is raised again in the main thread.
            self.failure = error


class Watch:
    """The run as its workers' notes and the coordinator's offsets tell it."""

    def __init__(self, admin: GroupAdmin, results: Path) -> None:
        self._admin, self._results = admin, results
        self._started_s = time.monotonic()
        self.steps: list[tuple[float, str]] = []
        self.strikes: list[Strike] = []

    def now(self) -> float:
        return time.monotonic() - self._started_s

    def offsets(self) -> dict[int, int]:
        """Committed offsets by partition."""
        return {key.partition: n for key, n in self._admin.offsets(GROUP).items()}

    def progress(self) -> float:
        return sum(self.offsets().values()) / dataset.FLIGHTS

    def history(self) -> History:
        return history_of(read_notes(notes_folder(self._results), self._started_s), self.strikes)

    def step(self, text: str) -> None:
        self.steps.append((self.now(), text))
        print(f"{self.now():6.1f} s  {self.progress():4.0%}  {text}", flush=True)

    def kill_one(self) -> None:
        """Kill a worker of Spark's that owns partitions."""
        owners = sorted(set(self.history().latest().values()))
        victim = next((owner for owner in owners if owner.startswith("spark-")), None)
        if victim is not None:
            os.kill(int((self._results / "pids" / victim).read_text()), signal.SIGKILL)
            self.strikes.append(Strike(victim, self.now(), SIGKILL))
            self.step(f"the worker {victim} is killed")


def main() -> int:
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    log, results = folder / "log", folder / "results"
    results.mkdir(parents=True)
    for number, flights in dataset.partitioned(dataset.read()):
        write_log(log, number, pa.Table.from_pandas(flights, preserve_index=False))
    source = FileLog(str(log), dataset.TOPIC)
    with contextlib.ExitStack() as stack:
        address, metrics = start_coordinator(folder, stack)
        print(f"The coordinator listens on {address}; metrics: {metrics}", flush=True)
        job = SparkJob(address, source, results, stack)
        start = partial(_start_worker, address, log, results, folder, stack)
        start(PLAIN)
        watch = Watch(stack.enter_context(GroupAdmin(address)), results)
        _watch(watch, job, partial(start, HELPER))
        job.join()
        watch.step("all flights are counted")
        counted = merge(results, watch.offsets())
    history = watch.history()
    draw(folder / "owners.svg", TITLE, {"session group": history}, watch.steps)
    print(f"\n{TITLE}: {folder / 'owners.svg'}")
    killed = [span for span in history.idle_spans if span.strike is not None]
    others = [span for span in history.idle_spans if span.strike is None]
    print(f"How long partitions stood idle, in seconds: of a killed worker {lengths(killed)};")
    print(f"of one that left, or shared with another, {lengths(others)}.")
    return _verdict(counted, history)


def _start_worker(
    address: str, log: Path, results: Path, folder: Path, stack: contextlib.ExitStack, name: str
) -> subprocess.Popen[bytes]:
    settings = {
        "bootstrap": address,
        "group": GROUP,
        "log": log,
        "topic": dataset.TOPIC,
        "results": results,
        "client-id": name,
        "pause": PAUSE_S,
        "lease-ms": LEASE_MS,
        "rows-per-commit": ROWS_PER_COMMIT,
    }
    return start_program("flights.worker", [], settings, folder / f"{name}.log", stack)


def _make_spark(folder: Path, log: Path) -> Any:
    settings = {
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).resolve().parent.parent),
        "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
    }
    master = f"local-cluster[{EXECUTORS},1,1024]"
    print(f"Spark starts; its warnings go to {log}", flush=True)
    return start_spark(master, GROUP, folder / "spark", settings, log)


def _watch(watch: Watch, job: SparkJob, start_helper: Callable[[], Any]) -> None:
    """Watch until all is counted; kill a Spark worker meanwhile, and have a helper."""
    helper = None
    while job.failure is None and (progress := watch.progress()) < 1 and watch.now() < DEADLINE_S:
        if helper is None and progress >= HELP_FROM:
            helper = start_helper()
            watch.step("a worker of another application is started")
        if not watch.strikes and progress >= KILL_AT:
            watch.kill_one()
        if helper and helper.poll() is None and progress >= HELP_UNTIL:
            stop(helper)
            watch.step("the other application needs its worker back, which leaves")
        time.sleep(0.2)


def _verdict(counted: dict[tuple[str, int], tuple[int, int]], history: History) -> int:
    truth = judge.counted()
    flights = sum(n for n, _ in counted.values())
    taken = [span for span in history.idle_spans if span.strike is not None]
    checks = {
        f"every flight counted once: {flights:,} of {dataset.FLIGHTS:,}": (
            flights == dataset.FLIGHTS
        ),
        f"all {len(truth)} carrier-months equal the direct computation": counted == truth,
        f"a worker was killed, and others took {len(taken)} partitions over": bool(taken),
        f"workers outside Spark did some of the work: {PLAIN}, {HELPER}": (
            {PLAIN, HELPER} <= set(history.owners)
        ),
    }
    return judge.tell(list(checks.items()))


if __name__ == "__main__":
    sys.exit(judge.exit_status(main))
