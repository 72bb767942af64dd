"""A real local cluster: executors as members, one of them killed in mid-run."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

from coordinator.client.admin import GroupAdmin
from coordinator.spark import ArrowLog, run_members, write_arrow_log
from tests.serving import Process

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


def test_a_killed_worker_costs_a_rebalance_and_no_row(tmp_path, monkeypatch):
    import pyarrow as pa
    from pyspark.sql import SparkSession

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    for number in range(PARTITIONS):
        write_arrow_log(tmp_path / "log", number, pa.table({"n": range(ROWS)}))
    results = tmp_path / "results"
    results.mkdir()
    root = str(Path(__file__).parents[2])
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Process("--group-min-session-timeout-ms", "1000"))
        spark = (
            SparkSession.builder.master("local-cluster[2,1,1024]")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.executorEnv.PYTHONPATH", root)
            .config("spark.worker.dir", str(tmp_path / "work"))
            .config("spark.local.dir", str(tmp_path / "local"))
            .getOrCreate()
        )
        stack.callback(spark.stop)
        admin = stack.enter_context(GroupAdmin(server.address))
        directory = str(results)
        done: list = []
        job = threading.Thread(
            target=lambda: done.extend(
                run_members(
                    spark,
                    2,
                    bootstrap=server.address,
                    group_id="sums",
                    source=ArrowLog(str(tmp_path / "log"), "numbers"),
                    make_work=lambda client_id: Summing(directory, client_id),
                    member_settings={"session_timeout_ms": 2_000, "heartbeat_interval_ms": 300},
                    rows_per_commit=200,
                    pause_s=0.05,
                )
            ),
            daemon=True,
        )
        job.start()
        killed = _kill_one_in_mid_run(admin, results)
        job.join(120)
        assert len(done) == 2
        committed = admin.offsets("sums")
    assert killed.startswith("spark-")
    assert {key.partition: offset for key, offset in committed.items()} == dict.fromkeys(
        range(PARTITIONS), ROWS
    )
    sums = [int((results / f"{n}-{ROWS}").read_text()) for n in range(PARTITIONS)]
    assert sums == [sum(range(ROWS))] * PARTITIONS


def _kill_one_in_mid_run(admin: GroupAdmin, results: Path) -> str:
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:
        described = admin.describe_group("sums")
        rows = sum(admin.offsets("sums").values())
        if described.group_state == "Stable" and len(described.members) == 2 and rows > 2_000:
            client_id = described.members[0].client_id
            os.kill(int((results / f"pid-{client_id}").read_text()), signal.SIGKILL)
            return client_id
        time.sleep(0.1)
    raise AssertionError("the members never got to work")
