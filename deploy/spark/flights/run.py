"""Second part of the main job, from an empty folder to a verdict.

Two Spark executors share their work with workers outside Spark: one from the beginning, and one of
another application that joins in mid-run and leaves again. All count the flights of 2013 as members
of one group. An executor's worker is killed. The result must equal that of a direct computation.
Exit status: 0 if it does, 1 if not.
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

from coordinator.operator import GroupAdmin
from coordinator.sources import FileLog
from coordinator.spark import run_members
from flights import dataset
from flights.counting import Counting, merge, notes_folder
from flights.history import History
from flights.processes import start_coordinator, start_program, stop
from flights.report import report
from flights.screen import Screen
from flights.sessions import start_spark, stop_spark
from flights.verdict import exit_status, tell
from flights.watching import STABLE, View, Watcher

GROUP = "flights"
TITLE = "Spark executors share partitions with workers outside Spark"
PLAIN, HELPER = "plain-worker", "other-application"
EXECUTORS = 2
SESSION_TIMEOUT_MS = 3_000
ROWS_PER_COMMIT = 500
PAUSE_S = 0.06
HELP_FROM, KILL_AT, HELP_UNTIL = 0.2, 0.4, 0.75
DEADLINE_S = 240


def main() -> int:
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    log, results = folder / "log", folder / "results"
    results.mkdir(parents=True)
    print(
        f"Laying {dataset.FLIGHTS:,} flights out as {dataset.PARTITIONS} partitions …", flush=True
    )
    dataset.lay_out(log)
    source = FileLog(str(log), dataset.TOPIC)
    with contextlib.ExitStack() as stack:
        address, metrics = start_coordinator(folder, stack)
        print(f"The coordinator listens on {address}; metrics: {metrics}", flush=True)
        job = _SparkJob(address, source, results, stack)
        start_plain = partial(_start_plain_worker, address, log, results, folder, stack)
        start_plain(PLAIN)
        admin = stack.enter_context(GroupAdmin(address))
        watcher = Watcher(admin, GROUP, dataset.TOPIC, folder / "coordinator.log")
        killed = _watch(watcher, source, job, results, partial(start_plain, HELPER))
        end_s = watcher.now()
        job.join()
        watcher.look()
        committed = watcher.offsets()
        journal = admin.journal(GROUP).rebalances
    history = watcher.history(notes_folder(results), end_s)
    report(history, TITLE, journal, folder)
    return _verdict(merge(results, committed), killed, watcher, history)


def _start_plain_worker(
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
        "session-timeout-ms": SESSION_TIMEOUT_MS,
        "rows-per-commit": ROWS_PER_COMMIT,
    }
    return start_program("flights.worker", [], settings, folder / f"{name}.log", stack)


class _SparkJob:
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

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

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
                member_settings={
                    "assignors": ("cooperative-sticky",),
                    "session_timeout_ms": SESSION_TIMEOUT_MS,
                    "heartbeat_interval_ms": SESSION_TIMEOUT_MS // 6,
                },
                rows_per_commit=ROWS_PER_COMMIT,
                pause_s=PAUSE_S,
            )
        except BaseException as error:  # noqa: BLE001  # It is raised again in the main thread.
            self.failure = error


def _make_spark(folder: Path, log: Path):
    settings = {
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).resolve().parent.parent),
        "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
    }
    master = f"local-cluster[{EXECUTORS},1,1024]"
    print(f"Spark starts; its warnings go to {log}", flush=True)
    return start_spark(master, "flights", folder / "spark", settings, log)


def _watch(
    watcher: Watcher,
    source: FileLog,
    job: _SparkJob,
    results: Path,
    start_helper: Callable[[], subprocess.Popen[bytes]],
) -> str | None:
    """Watch until all is counted, and kill a Spark worker meanwhile; returns its client id."""
    ends = {partition: source.end_offset(partition) for partition in source.partitions()}
    killed = helper = None
    with Screen(ends, "counted") as screen:
        while job.failure is None:
            view = watcher.look()
            screen.show(view, watcher.happenings)
            progress = screen.progress(view)
            if helper is None and progress >= HELP_FROM:
                helper = start_helper()
                watcher.note("a worker of another application is started")
            if killed is None and progress >= KILL_AT and view.state == STABLE:
                killed = _kill_one(view, results, watcher)
            if helper and helper.poll() is None and progress >= HELP_UNTIL:
                stop(helper)
                watcher.note("the other application needs its worker back, which leaves")
            if progress >= 1.0 or view.at_s > DEADLINE_S:
                return killed
            time.sleep(0.2)
    return killed


def _kill_one(view: View, results: Path, watcher: Watcher) -> str | None:
    for client_id in sorted(view.owning_clients()):
        if client_id.startswith("spark-"):
            pid = int((results / "pids" / client_id).read_text())
            at_s = watcher.now()
            os.kill(pid, signal.SIGKILL)
            watcher.note_kill(client_id, at_s)
            return client_id
    return None


def _verdict(
    counted: dict[tuple[str, int], tuple[int, int]],
    killed: str | None,
    watcher: Watcher,
    history: History,
) -> int:
    truth = dataset.count_directly()
    flights = sum(n for n, _ in counted.values())
    evicted = [h for h in watcher.happenings if h.kind == "evicted"]
    print(f"\ncarrier  {'flights':>8}  {'delayed':>8}")
    for carrier in sorted({carrier for carrier, _ in counted}):
        rows = [value for (c, _), value in counted.items() if c == carrier]
        print(f"{carrier:7}  {sum(n for n, _ in rows):>8,}  {sum(d for _, d in rows):>8,}")
    checks = [
        (
            f"every flight counted once: {flights:,} of {dataset.FLIGHTS:,}",
            flights == dataset.FLIGHTS,
        ),
        (f"all {len(truth)} carrier-months equal the direct computation", counted == truth),
        (f"a worker was killed in mid-run: {killed}", killed is not None),
        ("the coordinator noticed and rebalanced", bool(evicted)),
        (
            f"workers outside Spark did some of the work: {PLAIN}, {HELPER}",
            {PLAIN, HELPER} <= {stint.owner for stint in history.stints},
        ),
    ]
    return tell(checks)


if __name__ == "__main__":
    sys.exit(exit_status(main))
