"""Kill queries that write to a sink, at random moments, and count the rows that readers see.

    python -m tests.campaigns.faults.sinks parquet|delta|iceberg|sql [KILLS] [--s3] [--seed N]

Two queries share a group, without Spark; each is a process that is killed with SIGKILL, or stopped
until the other one has done its work and then woken. With --s3 the results are in S3, where one
request in twenty is refused, and one has no answer. Exit status: 0 if no row is missing or there
twice. What the run wrote stays behind otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from coordinator.operator.admin import GroupAdmin
from tests.kit.patience import HANG_S
from tests.kit.s3_server import FAIL, LOSE, PASS, S3Server, s3_server
from tests.kit.serving import Process
from tests.kit.sinks import GROUP, KINDS, PARTITIONS, TOPIC, Place, everything, plan, query, rows_of

ROOT = Path(__file__).parents[3]
ROWS_A_KILL = 20
"""Rows that each partition grows by for a kill, so that it hits a query at work."""
IN_SQLITE = ("sql", "iceberg")
"""Sinks whose table, or whose catalog, is a file of SQLite here."""
LOCKED_S = 10.0
"""Longest stop of a query of these: it may hold the file's lock, and then nobody else commits until
it wakes."""


class Log:
    """A log whose partitions have the same length, which is in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            self._set(0)

    @property
    def rows(self) -> int:
        return int(self.path.read_text().split()[0])

    @property
    def has_ended(self) -> bool:
        return "end" in self.path.read_text()

    def grow(self, rows: int) -> None:
        self._set(self.rows + rows)

    def end(self) -> None:
        self._set(self.rows, "end")

    def _set(self, rows: int, more: str = "") -> None:
        hidden = self.path.with_suffix(".new")
        hidden.write_text(f"{rows} {more}")
        hidden.replace(self.path)


@dataclass(frozen=True)
class Verdict:
    """Rows that readers see; kills and stops; batches that were refused."""

    rows: int
    missing: int
    twice: int
    kills: int
    stops: int

    @property
    def is_exact(self) -> bool:
        return not self.missing and not self.twice


def campaign(kind: str, kills: int, *, in_s3: bool, seed: int, folder: Path) -> Verdict:
    """Kill and stop the two queries, each time once they have made progress."""
    dice = random.Random(seed)
    with contextlib.ExitStack() as stack:
        endpoint = ""
        if in_s3:
            s3 = stack.enter_context(s3_server())
            endpoint = s3.endpoint
            _disturb(s3, dice)
        server = stack.enter_context(Process())
        place = Place(kind, str(folder), endpoint)
        log = Log(folder / "rows")
        pair = [_start(place, server.address, log, dice) for _ in range(2)]
        stack.callback(lambda: [process.kill() for process in pair])
        stops = 0
        for _ in range(kills):
            log.grow(ROWS_A_KILL)
            _wait_for_progress(server.address, log)
            time.sleep(dice.random() * 0.1)
            at = dice.randrange(2)
            if dice.random() < 0.2:
                stops += 1
                pair[at].send_signal(signal.SIGSTOP)
                log.grow(ROWS_A_KILL)
                if kind in IN_SQLITE:
                    _see_progress(server.address, log, LOCKED_S)
                else:
                    _wait_for_progress(server.address, log)
                pair[at].send_signal(signal.SIGCONT)
            pair[at].kill()
            pair[at].wait()
            pair[at] = _start(place, server.address, log, dice)
        log.end()
        for process in pair:
            assert process.wait(4 * HANG_S) == 0, "a query failed that nobody killed"
        if in_s3:
            s3.reset()
        query(place, server.address).recover()
        counted, expected = place.rows(server.address), everything(log.rows)
    missing = sum((expected - counted).values())
    return Verdict(sum(counted.values()), missing, sum((counted - expected).values()), kills, stops)


def _disturb(s3: S3Server, dice: random.Random) -> None:
    fates = [FAIL, LOSE] + [PASS] * 38
    s3.choose = lambda method, path: dice.choice(fates) if method in ("PUT", "POST") else PASS


def _start(place: Place, address: str, log: Log, dice: random.Random) -> subprocess.Popen[bytes]:
    document = json.dumps([asdict(place), address, str(log.path), dice.randrange(10**6)])
    command = [sys.executable, "-m", "tests.campaigns.faults.sinks", "--query", document]
    return subprocess.Popen(command, cwd=ROOT)


def _wait_for_progress(address: str, log: Log) -> None:
    """Until something more is committed, or all is."""
    assert _see_progress(address, log, HANG_S), "nothing is committed any more"


def _see_progress(address: str, log: Log, patience_s: float) -> bool:
    """Wait until something more is committed, or all is; False: not in time."""
    before, deadline = _read(address), time.monotonic() + patience_s
    while before == (now := _read(address)) and now < log.rows * PARTITIONS:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _read(address: str) -> int:
    with GroupAdmin(address) as admin:
        return sum(o for p, o in admin.offsets(GROUP).items() if p.topic == TOPIC)


def run_query(place: Place, address: str, log: Log, seed: int) -> None:
    """A query: batch after batch until all is read; what fails is started again."""
    dice, is_done = random.Random(seed), False
    while not is_done:
        exact = query(place, address)
        with _started_again():
            while not (is_done := log.has_ended and _read(address) == log.rows * PARTITIONS):
                one = plan(address, dice, log.rows)
                if one is None:
                    time.sleep(0.02)
                else:
                    exact.write(rows_of(one), one)


@contextlib.contextmanager
def _started_again() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001  # As Spark's drivers are, whatever it was.
        print(f"{os.getpid()} starts again: {error!r}"[:300], file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", nargs="?", choices=KINDS)
    parser.add_argument("kills", nargs="?", type=int, default=100)
    parser.add_argument("--s3", action="store_true")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--query", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.query:
        place, address, log, seed = json.loads(given.query)
        run_query(Place(**place), address, Log(Path(log)), seed)
        return 0
    if given.kind is None:
        parser.error("which sink?")
    folder = Path(tempfile.mkdtemp(prefix="sink-kill-"))
    began = time.monotonic()
    verdict = campaign(given.kind, given.kills, in_s3=given.s3, seed=given.seed, folder=folder)
    where = "S3" if given.s3 else "disk"
    print(verdict)
    print(f"{given.kind} on {where}, seed {given.seed}, {time.monotonic() - began:.0f} s")
    if not verdict.is_exact:
        print(f"BROKEN; see {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
