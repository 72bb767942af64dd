"""Two attempts at one slot of a Spark job: the later works, the earlier stands by."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from coordinator.client import Partition, Worker
from coordinator.operator.admin import GroupAdmin
from coordinator.sources import FileLog, write_log
from coordinator.spark import executor
from tests.integration.waiting import wait_until
from tests.kit.patience import HANG_S
from tests.kit.serving import Process

ROWS = 150
"""Rows of each partition. A slot pauses after every five."""


class Killed(Exception):
    """Raised in a task, as Spark kills it."""


class Attempt:
    """Handles rows in a thread, until it is killed."""

    def __init__(self, address: str, source: FileLog) -> None:
        self.rows = 0
        self.killed = False
        self.ended: object = None
        settings = {
            "instance_id": "slot-0", "session_timeout_ms": 6_000, "heartbeat_interval_ms": 100,
        }  # fmt: skip
        self._arguments = (address, "g", source, lambda: self, settings)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            executor.run_slot(*self._arguments, rows_per_commit=5, pause_s=0.05)
            self.ended = "done"
        except Killed as error:
            self.ended = error

    def join(self) -> None:
        self._thread.join(HANG_S)
        assert not self._thread.is_alive()

    def resume(self, partition: int, offset: int) -> None:
        pass

    def add(self, partition: int, batch) -> None:
        if self.killed:
            raise Killed
        self.rows += batch.num_rows

    def store(self, partition: int, offset: int) -> None:
        pass


@pytest.fixture
def source(tmp_path):
    write_log(tmp_path, 0, pa.table({"n": range(ROWS)}))
    return FileLog(str(tmp_path), "t")


def test_an_attempt_that_was_fenced_stands_by_and_takes_its_place_back(source):
    with Process("--group-min-session-timeout-ms", "1000") as server:
        first = Attempt(server.address, source)
        wait_until(lambda: first.rows > 0)
        second = Attempt(server.address, source)
        wait_until(lambda: second.rows > 0)
        before = first.rows
        wait_until(lambda: second.rows > 100)
        assert first.rows <= before + 5, "it stands by"
        assert first.ended is None
        second.killed = True
        second.join()
        assert isinstance(second.ended, Killed)
        first.join()
        assert first.ended == "done"
        with GroupAdmin(server.address) as admin:
            assert set(admin.offsets("g").values()) == {ROWS}


def test_slots_and_plain_workers_share_a_group(tmp_path):
    for partition in range(4):
        write_log(tmp_path, partition, pa.table({"n": range(ROWS)}))
    source = FileLog(str(tmp_path), "t")
    with Process("--group-min-session-timeout-ms", "1000") as server:
        worker = Worker(server.address, "g", topics={"t": 4}, protocol="classic")
        held: set[int] = set()

        @worker.handler
        async def hold(p: Partition) -> None:
            held.add(p.number)
            await p.revoking.wait()
            held.discard(p.number)

        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        wait_until(lambda: held == set(range(4)))
        attempt = Attempt(server.address, source)
        wait_until(lambda: attempt.rows == 2 * ROWS or attempt.ended)
        assert attempt.ended is None
        assert len(held) == 2
        with GroupAdmin(server.address) as admin:
            assert admin.describe_group("g").protocol_data == "cooperative-sticky"
        worker.stop("done")
        thread.join(HANG_S)
        attempt.join()
        assert attempt.ended == "done"
