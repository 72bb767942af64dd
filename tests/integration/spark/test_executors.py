"""Executors as members on a real cluster, one of them killed in mid-run."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from coordinator.operator.admin import GroupAdmin
from coordinator.sources import FileLog, write_log
from coordinator.spark import consume, run_members
from coordinator.spark.executor import executor_id
from tests.kit.patience import HANG_S
from tests.kit.serving import Process

pytestmark = pytest.mark.usefixtures("travels_by_value")

PARTITIONS, ROWS = 6, 4_000


class Summing:
    """Sums the rows of each partition; stores a sum under its offset."""

    def __init__(self, directory: str, client_id: str) -> None:
        self.directory = Path(directory)
        (self.directory / f"pid-{client_id}").write_text(str(os.getpid()))
        self.sums: dict[int, int] = {}

    def resume(self, partition: int, offset: int) -> None:
        path = self.directory / f"{partition}-{offset}"
        self.sums[partition] = int(path.read_text()) if offset else 0

    def add(self, partition: int, batch) -> None:
        self.sums[partition] += sum(batch["n"].to_pylist())

    def store(self, partition: int, offset: int) -> None:
        (self.directory / f"{partition}-{offset}").write_text(str(self.sums[partition]))


class Recording:
    """Notes which rows it was given, and by whom."""

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)

    def __call__(self, partition: int, batch) -> None:
        # Renamed, so that it is never empty: it is read while it is written again.
        written = self.directory / f"{partition}-pid-{executor_id()}"
        written.write_text(str(os.getpid()))
        written.rename(self.directory / f"pid-{executor_id()}")
        with (self.directory / f"rows-{partition}").open("a") as file:
            file.writelines(f"{n}\n" for n in batch["n"].to_pylist())


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    import pyarrow as pa

    folder = tmp_path_factory.mktemp("log")
    for number in range(PARTITIONS):
        write_log(folder, number, pa.table({"n": range(ROWS)}))
    return FileLog(str(folder), "numbers")


@pytest.fixture
def server():
    with Process("--group-min-session-timeout-ms", "1000") as process:
        yield process


@pytest.fixture
def admin(server):
    with GroupAdmin(server.address) as admin:
        yield admin


def in_background(work) -> tuple[threading.Thread, list]:
    done: list = []
    thread = threading.Thread(target=lambda: done.extend(work()), daemon=True)
    thread.start()
    return thread, done


SETTINGS = {
    "classic": {"session_timeout_ms": 2_000, "heartbeat_interval_ms": 300},
    "session": {"wishes": {"lease_ms": 2_000, "join_quiet_ms": 0}},
}


@pytest.mark.parametrize("protocol", ["classic", "session"])
def test_a_killed_worker_costs_a_rebalance_and_no_row(
    spark, log, server, admin, tmp_path, protocol
):
    directory = str(tmp_path)
    job, done = in_background(
        lambda: run_members(
            spark,
            2,
            bootstrap=server.address,
            group_id="sums",
            source=log,
            make_work=lambda client_id: Summing(directory, client_id),
            member_settings=SETTINGS[protocol],
            protocol=protocol,
            rows_per_commit=200,
            pause_s=0.1,
        )
    )
    killed = kill_one_in_mid_run(admin, "sums", lambda member: tmp_path / f"pid-{member.client_id}")
    job.join(2 * HANG_S)
    assert len(done) == 2
    assert killed.client_id.startswith("spark-")
    assert ends(admin, "sums") == dict.fromkeys(range(PARTITIONS), ROWS)
    sums = [int((tmp_path / f"{n}-{ROWS}").read_text()) for n in range(PARTITIONS)]
    assert sums == [sum(range(ROWS))] * PARTITIONS


def test_a_slot_that_spark_runs_again_takes_its_place_without_a_rebalance(
    spark, log, server, admin, tmp_path
):
    directory = str(tmp_path)
    job, done = in_background(
        lambda: consume(
            spark,
            2,
            Recording(directory),
            bootstrap=server.address,
            group_id="rows",
            source=log,
            forever=False,
            member_settings={"session_timeout_ms": 120_000, "heartbeat_interval_ms": 300},
            rows_per_commit=200,
            pause_s=0.1,
        )
    )
    killed = kill_one_in_mid_run(
        admin, "rows", lambda member: tmp_path / f"pid-{member.client_id.split('-')[1]}"
    )
    generations = completed_rebalances(server)
    job.join(2 * HANG_S)
    assert len(done) == 2
    assert killed.group_instance_id in ("slot-0", "slot-1")
    assert completed_rebalances(server) == generations, "the slot's place was kept"
    assert any(line["event"] == "static_member_replaced" for line in server.lines)
    assert ends(admin, "rows") == dict.fromkeys(range(PARTITIONS), ROWS)
    again = 0
    for number in range(PARTITIONS):
        rows = [int(n) for n in (tmp_path / f"rows-{number}").read_text().split()]
        assert set(rows) == set(range(ROWS)), "no row is missing"
        again += len(rows) - ROWS
    assert again <= 200, "what the dead one had not committed is handled again"


def completed_rebalances(server) -> int:
    return sum(line["event"] == "rebalance_completed" for line in server.lines)


def ends(admin: GroupAdmin, group: str) -> dict[int, int]:
    return {key.partition: offset for key, offset in admin.offsets(group).items()}


def kill_one_in_mid_run(admin: GroupAdmin, group: str, pid_file):
    """SIGKILL a member's Python worker; the member."""
    deadline = time.monotonic() + 2 * HANG_S
    while time.monotonic() < deadline:
        described = admin.describe_group(group)
        rows = sum(admin.offsets(group).values())
        if described.group_state == "Stable" and len(described.members) == 2 and rows > 2_000:
            member = described.members[0]
            os.kill(int(pid_file(member).read_text()), signal.SIGKILL)
            return member
        time.sleep(0.1)
    raise AssertionError("the members never got to work")
