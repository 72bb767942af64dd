"""A worker that writes to two sinks, for `tests.campaigns.faults.sessions`.

    python -m tests.campaigns.faults.session_worker {"addresses": …}

One sink checks tokens, a table in SQLite: it takes an effect if its token is not below the highest
that it has seen of the partition. The other one takes everything: a file of lines. The worker notes
what it is granted, tries and commits, each note one line of JSON in the same file, with the time by
a clock that all processes of a machine share.

A classic group has no tokens that are compared between processes: there it is the time of the grant
by that clock.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from coordinator.client import Partition, Worker

TOPIC = "t"
EACH_S = 0.05
"""Time from one effect of a partition to the next, at least."""
CHECK_TO_EFFECT_S = EACH_S / 2
"""Part of it that lies between a worker's check and its effect: one that is stopped there acts when
it wakes, whoever holds the partition then."""
COMMIT_EVERY = 4
BUSY_S = 30.0


@dataclass(frozen=True, slots=True)
class Program:
    """Settings of a worker. folder: of the sinks and the notes. lease_ms: in a classic group, the
    session time-out."""

    addresses: str
    group: str
    folder: str
    partitions: int
    lease_ms: int
    protocol: str = "session"


class CheckingSink:
    """Takes effects under the highest token of their partition, and remembers their order."""

    def __init__(self, folder: str) -> None:
        self._file = f"{folder}/sink.db"
        with closing(self._open()) as table:
            table.execute(
                "CREATE TABLE IF NOT EXISTS effects (number INTEGER PRIMARY KEY, partition INTEGER,"
                " token INTEGER, position INTEGER, pid INTEGER)"
            )
            table.execute("CREATE INDEX IF NOT EXISTS tokens ON effects (partition, token)")

    def put(self, partition: int, token: int, position: int) -> bool:
        """Take an effect, unless the partition was granted anew since; True if it was taken."""
        with closing(self._open()) as table:
            done = table.execute(
                "INSERT INTO effects (partition, token, position, pid) SELECT ?, ?, ?, ? WHERE"
                " NOT EXISTS (SELECT 1 FROM effects WHERE partition = ? AND token > ?)",
                (partition, token, position, os.getpid(), partition, token),
            )
            return done.rowcount == 1

    def effects(self) -> list[tuple[int, int, int, int]]:
        """Partition, token, position and process of each effect, in the order of taking."""
        with closing(self._open()) as table:
            rows = table.execute(
                "SELECT partition, token, position, pid FROM effects ORDER BY number"
            )
            return list(rows)

    def _open(self) -> sqlite3.Connection:
        # A connection for each call: a process that is stopped keeps no lock but in the middle.
        table = sqlite3.connect(self._file, timeout=BUSY_S, isolation_level=None)
        table.execute("PRAGMA journal_mode=WAL")
        table.execute("PRAGMA synchronous=OFF")
        return table


class Notes:
    """A file of lines to which many processes append."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def add(self, op: str, partition: int, **more: object) -> None:
        line = {"op": op, "p": partition, "pid": os.getpid(), "at": time.monotonic(), **more}
        os.write(self._file, json.dumps(line).encode() + b"\n")


def notes_of(folder: Path) -> Path:
    return folder / "notes.jsonl"


def run(program: Program) -> None:
    """Work until SIGTERM."""
    notes, sink = Notes(notes_of(Path(program.folder))), CheckingSink(program.folder)
    worker = Worker(
        program.addresses,
        program.group,
        {TOPIC: program.partitions},
        protocol=program.protocol,
        **(
            {"wishes": {"lease_ms": program.lease_ms}}
            if program.protocol == "session"
            else {"session_timeout_ms": program.lease_ms}
        ),
    )

    def put_late(partition: int, token: int, position: int) -> bool:
        time.sleep(CHECK_TO_EFFECT_S)  # In a thread, which nothing cancels.
        notes.add("tried", partition, token=token, position=position)
        return sink.put(partition, token, position)

    @worker.handler
    async def work(p: Partition) -> None:
        token, position = p.token, max(p.position, 0)
        if program.protocol != "session":
            token = time.monotonic_ns()
        notes.add("granted", p.number, token=token, offset=p.position)
        while True:
            await asyncio.sleep(EACH_S - CHECK_TO_EFFECT_S)
            if not p.valid:  # Doubt and suspension are told by comparison, at the point of use.
                continue
            position += 1
            taken = await asyncio.to_thread(put_late, p.number, token, position)
            notes.add("taken" if taken else "refused", p.number, token=token, position=position)
            if position % COMMIT_EVERY == 0:
                await p.commit(position)
                notes.add("committed", p.number, token=token, offset=position)

    worker.run()


if __name__ == "__main__":
    run(Program(**json.loads(sys.argv[1])))
