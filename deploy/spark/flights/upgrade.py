"""First part of the main job: a query is upgraded while it runs. From an empty folder to a verdict.

A feed replays the flights of 2013. Version 1 of a query works on them; version 2 is started beside
it, with a Spark driver of its own, and both share the flights as members of a group. Version 2 is
killed with a batch in hand and loses its checkpoint; version 1 is frozen with a batch in hand, and
is refused when it wakes up; then version 1 is shut down, and version 2 does the span.

Each driver runs the query twice, in a classic group and in a session group, so that the two
protocols are seen side by side. Every row and column of both results must be the one that pandas
computes from the raw tables. Exit status: 0 if they are, 1 if not.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from coordinator.operator import GroupAdmin
from coordinator.spark.exactly_once import committed_files
from flights import dataset, judge
from flights.feed import Feed
from flights.history import SIGKILL, SIGSTOP, History, IdleSpan, Strike, history_of, member_of
from flights.notes import REFUSED, STAGED, WORKS, Note, read_notes
from flights.picture import draw, lengths
from flights.processes import check, kill, send, start_coordinator, start_program
from flights.query import PROTOCOLS, group_of

DEADLINE_S = 600
DIFFERENCES_SHOWN = 10
TITLE = "Version 2 of a query takes over from version 1"
ALL = frozenset(range(dataset.PARTITIONS))


class Driver:
    """A process with both queries; `start` goes on from their checkpoints, if there are some."""

    def __init__(
        self, version: int, address: str, folder: Path, stack: contextlib.ExitStack
    ) -> None:
        self.name = f"v{version}"
        self.log = folder / f"{self.name}.log"
        self.checkpoint = folder / f"checkpoint-{self.name}"
        self.hold = folder / f"hold-{self.name}"
        self.process: subprocess.Popen[bytes] | None = None
        self._stack = stack
        self._settings = {
            "coordinator": address, "folder": folder, "name": self.name, "version": version,
        }  # fmt: skip

    def start(self) -> None:
        self.process = start_program("flights.query", [], self._settings, self.log, self._stack)


@dataclass
class Story:
    """The steps of the run, each of which waits until the one before has had its effect."""

    admin: GroupAdmin
    folder: Path
    feed: Feed
    old: Driver
    new: Driver
    started_s: float = field(default_factory=time.monotonic)
    steps: list[tuple[float, str]] = field(default_factory=list)
    strikes: list[Strike] = field(default_factory=list)

    def play(self) -> None:
        old, new = self.old, self.new
        old.start()
        self.feed.start()
        self._until(lambda p: self._worked_on(p, old) == ALL)
        self._step("version 1 works alone, and version 2 is started beside it")
        new.start()
        self._until_shared()
        self._step("both share the flights")
        self._until_in_hand(new)
        self._strike(new, SIGKILL)
        shutil.rmtree(new.checkpoint)
        self._step("version 2 is killed with a batch in hand, loses its checkpoint, and is started")
        killed_s = self._now()
        new.start()
        self._until(lambda p: self._worked_on(p, old, killed_s) == ALL)
        self._step("version 1 has done that batch")
        self._until(lambda p: self._noted(p, new, WORKS, killed_s))
        self._step("version 2 is back")
        self._until_in_hand(old)
        self._strike(old, SIGSTOP)
        self._step("version 1 is frozen with a batch in hand")
        frozen_s = self._now()
        self._until(lambda p: self._worked_on(p, new, frozen_s) == ALL)
        woken_s = self._now()
        send(old.process, signal.SIGCONT)
        self._step("version 2 has done that batch; version 1 is woken")
        self._until(lambda p: self._noted(p, old, REFUSED, woken_s))
        self._step("version 1's batch is refused")
        old.process.terminate()
        self._until(lambda _: old.process.poll() is not None)
        self._step("version 1 is shut down, and the span of the year comes at once")
        self.feed.finish()
        self._until(lambda p: sum(self._offsets(p).values()) == dataset.FLIGHTS)
        self._step("all flights are enriched")

    def notes(self, protocol: str) -> list[Note]:
        """Notes of a group's queries; times since the begin."""
        return read_notes(self.folder / "notes" / protocol, self.started_s)

    def history(self, protocol: str) -> History:
        return history_of(self.notes(protocol), self.strikes)

    # --- Inside ---

    def _now(self) -> float:
        return time.monotonic() - self.started_s

    def _step(self, text: str) -> None:
        done = sum(sum(self._offsets(p).values()) for p in PROTOCOLS) / len(PROTOCOLS)
        self.steps.append((self._now(), text))
        print(f"{self._now():6.1f} s  {done / dataset.FLIGHTS:4.0%}  {text}", flush=True)

    def _strike(self, driver: Driver, how: str) -> None:
        self.strikes.append(Strike(driver.name, self._now(), how))
        if how == SIGKILL:
            kill(driver.process)
        else:
            send(driver.process, signal.SIGSTOP)
        driver.hold.unlink()

    def _until_shared(self) -> None:
        """Until each query works on half of the partitions."""

        def is_shared(protocol: str) -> bool:
            members = [*map(member_of, self.history(protocol).latest().values())]
            return members.count(self.old.name) == members.count(self.new.name)

        self._until(is_shared)

    def _until_in_hand(self, driver: Driver) -> None:
        """Until a driver has written a batch of each query and not decided that it counts."""
        since_s = self._now()
        driver.hold.touch()
        self._until(lambda p: self._noted(p, driver, STAGED, since_s))

    def _until(self, holds: Callable[[str], bool]) -> None:
        """Wait until something holds for both protocols."""
        while not all(map(holds, PROTOCOLS)):
            for driver in (self.old, self.new):
                if driver.process is not None:
                    check(driver.process, driver.log)
            if self._now() > DEADLINE_S:
                raise SystemExit(f"not done after {DEADLINE_S} s: see the logs in {self.folder}")
            time.sleep(0.2)

    def _noted(self, protocol: str, driver: Driver, kind: str, since_s: float) -> bool:
        return bool(self._worked_on(protocol, driver, since_s, kind))

    def _worked_on(
        self, protocol: str, driver: Driver, since_s: float = 0.0, kind: str = WORKS
    ) -> set[int]:
        """Partitions about which a driver has made notes of a kind."""
        return {
            note.partition
            for note in self.notes(protocol)
            if (note.member, note.kind) == (driver.name, kind) and note.at_s >= since_s
        }

    def _offsets(self, protocol: str) -> dict[int, int]:
        stored = self.admin.offsets(group_of(protocol))
        return {p.partition: offset for p, offset in stored.items() if p.topic == dataset.TOPIC}


def main() -> int:
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    flights = dataset.read()
    feed = Feed(folder / "log", flights)
    with contextlib.ExitStack() as stack:
        # The first driver has nobody to wait for.
        address, metrics = start_coordinator(folder, stack, group_initial_rebalance_delay_ms=0)
        print(f"The coordinator listens on {address}; metrics: {metrics}", flush=True)
        admin = stack.enter_context(GroupAdmin(address))
        old, new = (Driver(version, address, folder, stack) for version in (1, 2))
        story = Story(admin, folder, feed, old, new)
        story.play()
        for protocol in PROTOCOLS:
            (folder / f"explain-{protocol}.txt").write_text(explained(address, protocol))
        results = {
            protocol: judge.read_rows(
                committed_files(str(folder / "results" / protocol), address, group_of(protocol))
            )
            for protocol in PROTOCOLS
        }
    histories = {f"{protocol} group": story.history(protocol) for protocol in PROTOCOLS}
    draw(folder / "owners.svg", TITLE, histories, story.steps)
    print(f"\n{TITLE}: {folder / 'owners.svg'}\n\nHow long partitions stood idle, in seconds:")
    print("\n".join(idle_table(histories)))
    print(f"What the coordinator says of it: {folder}/explain-*.txt (`coordinator explain`)")
    true = judge.enriched(flights, dataset.read_tables())
    checks, details = [], []
    for protocol, rows in results.items():
        more, wrong = judged(rows, true, story.history(protocol))
        checks += [(f"{protocol}: {text}", holds) for text, holds in more]
        details += wrong
    status = old.process.returncode
    checks.append((f"version 1 was shut down with status {status}", status == 0))
    return judge.tell(checks, details[:DIFFERENCES_SHOWN])


def judged(
    rows: pd.DataFrame, true: pd.DataFrame, history: History
) -> tuple[list[judge.Check], list[str]]:
    """Checks of one group, and differences between its rows and the true ones."""
    same, wrong = judge.check_rows(rows, true)
    first, second = (int((rows["version"] == version).sum()) for version in (1, 2))
    refused = len(history.refusals)
    return [
        same,
        (f"version 1 wrote {first:,} of them, version 2 {second:,}", bool(first and second)),
        (f"the frozen batch, of {refused} partitions, was refused", bool(refused)),
    ], wrong


def explained(address: str, protocol: str) -> str:
    """What the coordinator, which knows nothing of the demo, says of a group's rebalances."""
    command = [sys.executable, "-m", "coordinator", "explain", group_of(protocol)]
    return subprocess.run(
        [*command, "--last", "20", "--bootstrap", address],
        stdout=subprocess.PIPE, text=True, check=True,
    ).stdout  # fmt: skip


def idle_table(histories: dict[str, History]) -> list[str]:
    """A table: for each kind of hand-over, partitions and the shortest and longest time."""
    kinds = {
        "a version joins, or is shut down": lambda span: span.strike is None,
        "a version is killed": lambda span: _signal(span) == SIGKILL,
        "a version is frozen": lambda span: _signal(span) == SIGSTOP,
    }
    rows = [["", *histories]]
    for kind, is_of in kinds.items():
        found = [[r for r in history.idle_spans if is_of(r)] for history in histories.values()]
        rows.append([kind, *map(lengths, found)])
    return ["  ".join(f"{cell:34}" for cell in row).rstrip() for row in rows]


def _signal(span: IdleSpan) -> str | None:
    return None if span.strike is None else span.strike.signal


if __name__ == "__main__":
    sys.exit(judge.exit_status(main))
