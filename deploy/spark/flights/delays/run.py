"""Second part of the main job, from an empty folder to a verdict.

A feed replays the flights of 2013. Two streaming queries, each with a Spark driver
of its own, share them as members of one group; one is killed in mid-run and started again.
The statistics of the result must be those that pandas computes from the raw tables. Exit
status: 0 if they are, 1 if not.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from coordinator.client.admin import GroupAdmin
from flights import dataset
from flights.delays import charts
from flights.delays.checks import check_flights, check_kill, check_statistics
from flights.delays.feed import make_log
from flights.delays.groupings import GROUPINGS
from flights.delays.query import noted_batches
from flights.delays.tables import read_flights
from flights.processes import check, kill, start_coordinator, start_program, stop
from flights.report import report
from flights.screen import Screen
from flights.verdict import exit_status, tell
from flights.watching import STABLE, View, Watcher

GROUP = "delays"
PAUSE_S = 0.08
"""Pause between two days of 2013: the year takes about 29 seconds."""
KILL_AT = 0.1
"""Progress at the kill: early, since a driver takes many seconds to restart."""
INITIAL_DELAY_MS = 1_000
"""Initial rebalance delay of the group, so that both drivers join its first generation."""
DEADLINE_S = 400
DIFFERENCES_SHOWN = 10
NOTES = "notes"
TITLE = "Which query worked on which partition"


def main() -> int:
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    flights = read_flights()
    with contextlib.ExitStack() as stack:
        address, metrics = start_coordinator(
            folder, stack, group_initial_rebalance_delay_ms=INITIAL_DELAY_MS
        )
        print(f"The coordinator listens on {address}; metrics: {metrics}", flush=True)
        admin = stack.enter_context(GroupAdmin(address))
        watcher = Watcher(admin, GROUP, dataset.TOPIC, folder / "coordinator.log")
        drivers = [Driver(f"driver-{n}", address, folder, stack) for n in (1, 2)]
        killed_at = stream_all(flights, drivers, watcher, folder, stack)
        end_s, journal = watcher.now(), admin.journal(GROUP).rebalances
        print("All flights are committed. Statistics …", flush=True)
        for driver in drivers:
            driver.process.terminate()
        make_statistics(address, folder, stack)
        for driver in drivers:
            stop(driver.process)
            check(driver.process, driver.log)
    report(watcher.history(folder / NOTES, end_s), TITLE, journal, folder)
    tables = {name: pd.read_parquet(folder / "statistics" / name) for name in GROUPINGS}
    print()
    for name, title in charts.draw(tables, folder / "charts").items():
        print(f"{name + '.svg':17} {title}")
    generations = sum(happening.kind == "generation" for happening in watcher.happenings)
    counting, refused = map(sum, zip(*(driver.batches() for driver in drivers), strict=True))
    print(f"\n{generations} generations; batches: {counting} count, {refused} refused")
    same, wrong = check_statistics(tables, flights)
    checks = [
        check_flights(folder / "statistics"),
        same,
        check_kill(drivers[1].client_id, killed_at, watcher.views, watcher.happenings),
        ("both drivers did some of the work", all(driver.batches()[0] for driver in drivers)),
    ]
    return tell(checks, wrong[:DIFFERENCES_SHOWN])


class Driver:
    """A process with a query; `start` resumes from its checkpoint."""

    def __init__(self, name: str, address: str, folder: Path, stack: contextlib.ExitStack) -> None:
        self.name = name
        self.client_id = f"spark-{name}"
        self.log = folder / f"{name}.log"
        self._batches = folder / f"{name}.batches"
        self._stack = stack
        self._settings = {
            "coordinator": address,
            "group": GROUP,
            "log": folder / "log",
            "results": folder / "results",
            "checkpoint": folder / f"checkpoint-{name}",
            "notes": folder / NOTES,
            "name": name,
            "batches": self._batches,
        }
        make_log(folder / "log")
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        self.process = start_program(
            "flights.delays.query", [], self._settings, self.log, self._stack
        )
        return self.process

    def batches(self) -> tuple[int, int]:
        """Numbers of its committed and of its refused batches."""
        return noted_batches(self._batches)


def stream_all(
    flights: pd.DataFrame,
    drivers: list[Driver],
    watcher: Watcher,
    folder: Path,
    stack: contextlib.ExitStack,
) -> float:
    """Start the feed, kill a driver, start it again, and wait until every flight is committed.

    Returns:
        Progress when the driver was killed, from 0 to 1.
    """
    ends = flights["tailnum"].map(dataset.partition_of).value_counts().sort_index().to_dict()
    _, victim = drivers
    running = {driver.log: driver.process for driver in drivers}
    with Screen(ends, "enriched") as screen:

        def watch_until(holds: Callable[[View], bool]) -> None:
            while not holds(view := watcher.look()):
                screen.show(view, watcher.happenings)
                for log, process in running.items():
                    check(process, log)
                if view.at_s > DEADLINE_S:
                    raise SystemExit(f"not done after {DEADLINE_S} s: see the logs in {folder}")
                time.sleep(0.2)
            screen.show(view, watcher.happenings)

        watch_until(lambda view: len(view.owning_clients()) == len(drivers))
        settings = {"log": folder / "log", "pause": PAUSE_S}
        log = folder / "feed.log"
        running[log] = start_program("flights.delays.feed", [], settings, log, stack)
        watcher.note("the feed starts", "start")
        watch_until(
            lambda view: (
                view.state == STABLE
                and screen.progress(view) >= KILL_AT
                and victim.batches()[0] > 0
            )
        )
        at_s = watcher.now()
        kill(victim.process)
        watcher.note_kill(victim.client_id, at_s)
        killed_at = screen.progress(watcher.views[-1])
        watch_until(lambda view: victim.client_id not in view.clients())
        running[victim.log] = victim.start()
        watcher.note(f"{victim.client_id} started again on its checkpoint", "start")
        watch_until(lambda view: victim.client_id in view.owning_clients())
        watch_until(lambda view: screen.progress(view) >= 1.0)
    return killed_at


def make_statistics(address: str, folder: Path, stack: contextlib.ExitStack) -> None:
    """Compute the statistics in a process of its own, so that Spark's output goes to a log."""
    settings = {
        "coordinator": address,
        "group": GROUP,
        "results": folder / "results",
        "tables": folder / "statistics",
    }
    log = folder / "statistics.log"
    process = start_program("flights.delays.statistics", [], settings, log, stack)
    process.wait(DEADLINE_S)
    check(process, log)


if __name__ == "__main__":
    sys.exit(exit_status(main))
