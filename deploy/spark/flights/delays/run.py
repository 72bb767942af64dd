"""First part of the main job: a query is upgraded while it runs. From an empty folder to a verdict.

A feed replays the flights of 2013. Version 1 of a streaming query works on them; version 2 is
started beside it, with a Spark driver of its own, and both share the flights as members of one
group. Version 2 is killed and loses its checkpoint; version 1 is stopped for longer than its
session, and is refused when it wakes up; then version 1 is shut down, and version 2 does the rest.
Every row and column of the result must be the one that pandas computes from the raw tables. Exit
status: 0 if they are, 1 if not.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from coordinator.operator import GroupAdmin
from coordinator.spark.exactly_once import committed_files
from flights import dataset
from flights.delays import charts
from flights.delays.checks import (
    check_kill,
    check_rows,
    check_statistics,
    check_upgrade,
    check_versions,
    check_zombie,
    read_rows,
)
from flights.delays.feed import make_log
from flights.delays.groupings import GROUPINGS
from flights.delays.tables import read_flights, read_tables
from flights.history import SIGSTOP
from flights.notes import REFUSED, STAGED, WORKS, read_notes
from flights.processes import check, kill, send, start_coordinator, start_program, stop
from flights.report import report
from flights.screen import Screen
from flights.verdict import exit_status, tell
from flights.watching import STABLE, WOKEN, View, Watcher

GROUP = "delays"
PAUSE_S = 0.08
"""Pause between two days of 2013."""
ALONE, SHARED, KILLED, BACK, STOPPED, YEAR = 60, 110, 220, 260, 310, 366
"""Last day that is fed before version 2 has joined, is killed, is back, before version 1 is
stopped, has woken, and after that: each step finds rows to work on, however slow the machine is."""
DEADLINE_S = 600
DIFFERENCES_SHOWN = 10
NOTES = "notes"
TITLE = "Version 2 of a query takes over from version 1"


def main() -> int:
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    flights, joined = read_flights(), read_tables()
    with contextlib.ExitStack() as stack:
        # The first driver has nobody to wait for.
        address, metrics = start_coordinator(folder, stack, group_initial_rebalance_delay_ms=0)
        print(f"The coordinator listens on {address}; metrics: {metrics}", flush=True)
        admin = stack.enter_context(GroupAdmin(address))
        watcher = Watcher(admin, GROUP, dataset.TOPIC, folder / "coordinator.log")
        old, new = (Driver(version, address, folder, stack) for version in (1, 2))
        story = Story(flights, old, new, watcher, folder, stack)
        with story.screen:
            story.play()
        end_s, journal = watcher.now(), admin.journal(GROUP).rebalances
        print("All flights are committed. Statistics …", flush=True)
        new.process.terminate()
        make_statistics(address, folder, stack)
        stop(new.process)
        check(new.process, new.log)
        rows = read_rows(committed_files(str(folder / "results"), address, GROUP))
    report(watcher.history(folder / NOTES, end_s), TITLE, journal, folder)
    tables = {name: pd.read_parquet(folder / "statistics" / name) for name in GROUPINGS}
    print()
    for name, title in charts.draw(tables, folder / "charts").items():
        print(f"{name + '.svg':17} {title}")
    same_rows, wrong_rows = check_rows(rows, flights, joined)
    same_groups, wrong_groups = check_statistics(tables, flights, joined)
    notes = read_notes(folder / NOTES)
    checks = [
        same_rows,
        same_groups,
        check_versions(rows),
        check_kill(new.client_id, story.killed_at, watcher.views, watcher.happenings),
        check_zombie(old.client_id, story.woken_s, notes),
        check_upgrade(old.client_id, story.left_s, old.process.poll(), notes),
    ]
    return tell(checks, [*wrong_rows, *wrong_groups][:DIFFERENCES_SHOWN])


class Driver:
    """A process with a query of a version; `start` goes on from its checkpoint, if it has one."""

    def __init__(
        self, version: int, address: str, folder: Path, stack: contextlib.ExitStack
    ) -> None:
        self.name = f"v{version}"
        self.client_id = f"spark-{self.name}"
        self.log = folder / f"{self.name}.log"
        self.checkpoint = folder / f"checkpoint-{self.name}"
        self.hold = folder / f"hold-{self.name}"
        self.process: subprocess.Popen[bytes]
        self._notes = folder / NOTES
        self._stack = stack
        self._settings = {
            "coordinator": address,
            "group": GROUP,
            "log": folder / "log",
            "results": folder / "results",
            "checkpoint": self.checkpoint,
            "notes": self._notes,
            "name": self.name,
            "version": version,
            "hold": self.hold,
        }
        make_log(folder / "log")

    def start(self) -> None:
        self.process = start_program(
            "flights.delays.query", [], self._settings, self.log, self._stack
        )

    def has_noted(self, kind: str, since_s: float) -> bool:
        """Whether there is a note of a kind since a moment of `time.monotonic`."""
        return any(
            (note.member, note.kind) == (self.client_id, kind) and note.at_s >= since_s
            for note in read_notes(self._notes)
        )


@dataclass
class Story:
    """The steps of the run, each of which waits until the group has come so far."""

    flights: pd.DataFrame
    old: Driver
    new: Driver
    watcher: Watcher
    folder: Path
    stack: contextlib.ExitStack
    killed_at: float = 1.0
    """Progress when version 2 was killed, from 0 to 1."""
    woken_s: float = 0.0
    left_s: float = 0.0

    def __post_init__(self) -> None:
        numbers = self.flights["tailnum"].map(dataset.partition_of)
        self.screen = Screen(numbers.value_counts().sort_index().to_dict(), "enriched")
        self._running: dict[Path, subprocess.Popen[bytes]] = {}

    def play(self) -> None:
        self._begin()
        self._share()
        self._kill()
        self._stop_and_wake()
        self._hand_over()

    def _begin(self) -> None:
        self._start(self.old)
        self._watch_until(lambda view: self.old.client_id in view.owning_clients())
        self._feed_until(ALONE)
        log = self.folder / "feed.log"
        settings = {
            "log": self.folder / "log",
            "pause": PAUSE_S,
            "until": self.folder / "until",
        }
        self._running[log] = start_program("flights.delays.feed", [], settings, log, self.stack)
        self._start(self.new)
        self.watcher.note("version 1 has all partitions, and version 2 is started beside it")

    def _share(self) -> None:
        self._watch_until(lambda view: self.new.client_id in view.owning_clients())
        self.watcher.note("version 2 has joined the group, and works on its share")
        since_s = time.monotonic()
        self._feed_until(SHARED)
        self._watch_until(lambda _: all(d.has_noted(WORKS, since_s) for d in (self.old, self.new)))

    def _kill(self) -> None:
        """Kill version 2 between a batch's rows and its decision, and delete its checkpoint."""
        victim = self.new
        self._hold(victim, KILLED)
        at_s = self.watcher.now()
        self.killed_at = self.screen.progress(self.watcher.views[-1])
        kill(victim.process)
        self.watcher.note_kill(victim.client_id, at_s)
        shutil.rmtree(victim.checkpoint)
        victim.hold.unlink()
        self._start(victim)
        self.watcher.note(
            "version 2 is killed with a batch in hand, its checkpoint is deleted, and it is "
            "started again"
        )
        self._watch_until(lambda view: victim.client_id not in view.clients())
        self._watch_until(lambda view: victim.client_id in view.owning_clients())
        self.watcher.note("version 2 is back, and goes on at the group's offsets")
        since_s = time.monotonic()
        self._feed_until(BACK)
        self._watch_until(lambda _: victim.has_noted(WORKS, since_s))

    def _stop_and_wake(self) -> None:
        """Stop version 1 at the same point; wake it when version 2 has done its batch."""
        zombie = self.old
        self._hold(zombie, STOPPED)
        begins = self.watcher.offsets()
        in_hand = [p for p, owner in self.watcher.look().owners.items()
                   if owner.client_id == zombie.client_id]  # fmt: skip
        at_s = self.watcher.now()
        send(zombie.process, signal.SIGSTOP)
        self.watcher.note_kill(zombie.client_id, at_s, SIGSTOP)
        zombie.hold.unlink()
        self._watch_until(lambda view: zombie.client_id not in view.clients())
        self._watch_until(
            lambda view: any(view.offsets.get(p, 0) > begins.get(p, 0) for p in in_hand)
        )
        self.woken_s = time.monotonic()
        send(zombie.process, signal.SIGCONT)
        self.watcher.note(f"{zombie.client_id} is woken", WOKEN, zombie.client_id)
        self._watch_until(lambda _: zombie.has_noted(REFUSED, self.woken_s))
        self.watcher.note("version 1 wakes up, and its batch is refused")

    def _hand_over(self) -> None:
        self.old.process.terminate()
        self._watch_until(lambda _: self.old.process.poll() is not None)
        self._watch_until(lambda view: self.old.client_id not in view.clients())
        self.left_s = time.monotonic()
        self.watcher.note("version 1 has been shut down: the upgrade is done")
        self._feed_until(YEAR)
        self._watch_until(lambda view: self.screen.progress(view) >= 1.0)

    def _start(self, driver: Driver) -> None:
        driver.start()
        self._running[driver.log] = driver.process

    def _hold(self, driver: Driver, day: int) -> None:
        """Feed more, and wait until a driver has written a batch and not decided that it counts."""
        driver.hold.touch()
        since_s = time.monotonic()
        self._feed_until(day)
        self._watch_until(lambda view: view.state == STABLE and driver.has_noted(STAGED, since_s))

    def _feed_until(self, day: int) -> None:
        hidden = self.folder / "until.new"
        hidden.write_text(str(day))
        hidden.replace(self.folder / "until")

    def _watch_until(self, holds: Callable[[View], bool]) -> None:
        while True:
            view = self.watcher.look()
            self.screen.show(view, self.watcher.happenings)
            if holds(view):
                return
            for log, process in self._running.items():
                check(process, log)
            if view.at_s > DEADLINE_S:
                raise SystemExit(f"not done after {DEADLINE_S} s: see the logs in {self.folder}")
            time.sleep(0.2)


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
