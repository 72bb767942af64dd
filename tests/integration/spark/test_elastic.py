"""Executors that come, go, are decommissioned, or run a task twice; members of other kinds beside.

The application is the Connect server's: dynamic allocation, decommissioning and speculation are on.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from coordinator.assignors.consumer_protocol import decode_assignment
from coordinator.client import Partition, Worker
from coordinator.operator.admin import GroupAdmin
from coordinator.sources import FileLog, write_log
from coordinator.spark import consume
from coordinator.spark.exactly_once import ExactlyOnce
from tests.campaigns.faults.spark.processes import executors, processes
from tests.integration.spark import standalone
from tests.integration.spark.queries import run, start
from tests.integration.waiting import until, wait_until
from tests.kit.patience import HANG_S
from tests.kit.requests import assignment
from tests.kit.serving import Process
from tests.kit.sinks import PARTITIONS, TOPIC, Place, everything, log_of

ROWS = 60
CHUNK = 20
LEAVING = 2
"""Number of the worker that is decommissioned."""
NOTHING = assignment(TOPIC, ())


pytestmark = [pytest.mark.alone, pytest.mark.usefixtures("travels_by_value")]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return log_of(ROWS, tmp_path_factory.mktemp("log"), rows_per_batch=CHUNK)


@pytest.fixture(autouse=True)
def opened(tmp_path):
    """Lets jobs of a test that has failed end, since the next one needs their executors."""
    yield
    for gate in ("open", "attempt-1"):
        (tmp_path / gate).touch()


@pytest.fixture
def server():
    with Process("--group-min-session-timeout-ms", "1000") as process:
        yield process


@pytest.fixture
def admin(server):
    with GroupAdmin(server.address) as admin:
        yield admin


SHORT = {
    "classic": {"session_timeout_ms": 2_000, "heartbeat_interval_ms": 300},
    "session": {"wishes": {"lease_ms": 2_000, "join_quiet_ms": 0}},
}
"""Settings of members that are missed soon, by protocol."""


class Gated:
    """Handler that notes its rows by attempt; the first attempt waits for the gate to open."""

    def __init__(self, folder: Path, gate: str = "open") -> None:
        self.folder, self.gate = folder, gate

    def __call__(self, partition: int, batch) -> None:
        from pyspark import TaskContext

        attempt = TaskContext.get().attemptNumber()
        with (self.folder / f"attempt-{attempt}").open("a") as file:
            file.writelines(f"{partition} {n}\n" for n in batch["n"].to_pylist())
        while attempt == 0 and not (self.folder / self.gate).exists():
            time.sleep(0.05)


def noted(folder: Path, attempts: str = "*") -> Counter[tuple[int, ...]]:
    """Rows and how often they were handled."""
    lines = (line for path in folder.glob(f"attempt-{attempts}") for line in path.open())
    return Counter(tuple(map(int, line.split())) for line in lines)


EVERYTHING = everything(ROWS)


class Job:
    """A call of `consume` in the background."""

    def __init__(self, connect, server, log, handler, members: int, **settings) -> None:
        def work() -> None:
            try:
                consume(
                    connect, members, handler, bootstrap=server.address, group_id="g",
                    source=FileLog(str(log), TOPIC), forever=False, rows_per_commit=CHUNK,
                    **settings,
                )  # fmt: skip
            except Exception as error:  # noqa: BLE001  # `join` shows it.
                self._end = error
            else:
                self._end = None

        self._end: object = "it hangs"
        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(2 * HANG_S)
        assert self._end is None


def events(server, name: str) -> int:
    return sum(line["event"] == name for line in server.lines)


def held(admin) -> dict[str, int]:
    """Number of partitions of each member, while the group is stable."""
    group = admin.describe_group("g")
    if group.group_state != "Stable":
        return {}
    return {
        # One that has come and is in no plan yet has no assignment.
        member.client_id: len(decode_assignment(member.member_assignment or NOTHING).partitions)
        for member in group.members
    }


@pytest.mark.parametrize("protocol", ["classic", "session"])
def test_executors_that_come_and_go_are_members_that_come_and_go(
    connect, log, server, admin, tmp_path, protocol
):
    app = connect.conf.get("spark.app.id")
    wait_until(lambda: executors(app) == [])
    settings = {"protocol": protocol, "member_settings": SHORT[protocol]}
    job = Job(connect, server, log, Gated(tmp_path), 2, **settings)
    wait_until(lambda: len(held(admin)) == 2 and all(held(admin).values()))
    assert len(executors(app)) == 2
    assert len({client_id.split("-")[1] for client_id in held(admin)}) == 2, "one on each executor"
    (tmp_path / "open").touch()
    job.join()
    assert noted(tmp_path) == EVERYTHING
    wait_until(lambda: executors(app) == [])
    wait_until(lambda: not admin.describe_group("g").members)


def test_a_slot_that_spark_starts_twice_is_one_member_and_the_first_attempt_is_fenced(
    connect, log, server, admin, tmp_path
):
    # The first attempt is slow until the second one has its place, and would go on then.
    Job(connect, server, log, Gated(tmp_path, "attempt-1"), 1).join()
    assert noted(tmp_path, "1") == EVERYTHING
    first = Counter(p for p, _ in noted(tmp_path, "0").elements())
    assert first
    assert max(first.values()) <= CHUNK, "its first commit of each partition was refused"
    assert events(server, "static_member_replaced") == 1
    assert events(server, "rebalance_completed") == 1
    assert set(admin.offsets("g").values()) == {ROWS}


def test_a_task_that_spark_runs_twice_writes_its_rows_once(connect, server, tmp_path):
    import pyarrow as pa

    write_log(tmp_path / "log", 0, pa.table({"p": [0] * ROWS, "n": range(ROWS)}))

    def slow_at_first(batches):
        from pyspark import TaskContext

        attempt = TaskContext.get().attemptNumber()
        (tmp_path / f"attempt-{attempt}").touch()
        while attempt == 0 and not (tmp_path / "attempt-1").exists():
            time.sleep(0.05)
        yield from batches

    options = {
        "coordinator": server.address, "group": "g", "source": str(tmp_path / "log"),
        "topic": TOPIC,
    }  # fmt: skip
    rows = connect.readStream.format("consumer_group").options(**options).load()
    place = Place("delta", str(tmp_path))
    sink = ExactlyOnce(place.sink())
    assert run(rows.mapInArrow(slow_at_first, rows.schema), sink, tmp_path / "checkpoint") is None
    assert (tmp_path / "attempt-1").exists()
    assert place.rows(server.address) == Counter((0, n) for n in range(ROWS))


LONG = {
    "classic": {"session_timeout_ms": 300_000},
    "session": {"wishes": {"lease_ms": 300_000, "join_quiet_ms": 0}},
}
"""Settings of members that are not missed while a test runs."""


@pytest.mark.parametrize("protocol", ["classic", "session"])
def test_a_decommissioned_workers_slots_move_with_their_places(
    cluster, connect, log, server, admin, tmp_path, protocol
):
    app = connect.conf.get("spark.app.id")
    wait_until(lambda: executors(app) == [])
    with standalone.worker(cluster, tmp_path / "worker", LEAVING, cores=8) as worker:
        settings = {"protocol": protocol, "member_settings": LONG[protocol]}
        job = Job(connect, server, log, Gated(tmp_path), 2, **settings)
        wait_until(lambda: len(held(admin)) == 2 and all(held(admin).values()))
        leaving = [pid for pid in executors(app) if on_host(pid, LEAVING)]
        assert leaving, "it has the most cores that are free"
        rebalances = events(server, "rebalance_completed")
        worker.send_signal(signal.SIGPWR)
        told = tmp_path / "worker/worker.log"
        wait_until(lambda: "Decommission worker" in told.read_text())
        assert len(held(admin)) == 2, "executors with tasks work on until the machine goes"
        worker.terminate()
        wait_until(lambda: not set(leaving) & set(executors(app)))
        (tmp_path / "open").touch()
        job.join()
    handled = noted(tmp_path)
    assert set(handled) == set(EVERYTHING), "no row is missing"
    again = Counter(p for p, _ in (handled - EVERYTHING).elements())
    assert all(rows <= CHUNK for rows in again.values()), "what was not committed is handled again"
    if protocol == "classic":
        assert events(server, "rebalance_completed") == rebalances, "places were kept"
        assert events(server, "static_member_replaced") >= len(leaving)


def on_host(pid: int, number: int) -> bool:
    return f"--hostname {standalone.host(number)} " in processes()[pid].command


def test_workers_executors_and_queries_share_a_group(connect, log, server, admin, tmp_path):
    gate, done = tmp_path / "open", Counter()
    worker = Worker(server.address, "g", topics={TOPIC: PARTITIONS}, protocol="classic")

    @worker.handler
    async def handle(p: Partition) -> None:
        await until(lambda: gate.exists() or p.revoking.is_set())
        if not p.revoking.is_set():
            done.update((p.number, n) for n in range(p.position, ROWS))
            await p.commit(ROWS)
            await p.done()

    def batch(rows, batch_id: int) -> None:
        while not gate.exists():
            time.sleep(0.05)
        with (tmp_path / "attempt-query").open("a") as file:
            file.writelines(f"{row.p} {row.n}\n" for row in rows.collect())

    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    wait_until(lambda: list(held(admin).values()) == [PARTITIONS])
    job = Job(connect, server, log, Gated(tmp_path), 1)
    wait_until(lambda: len(held(admin)) == 2 and all(held(admin).values()))
    options = {"coordinator": server.address, "group": "g", "source": str(log), "topic": TOPIC}
    rows = connect.readStream.format("consumer_group").options(**options).load()
    writer = rows.writeStream.foreachBatch(batch)
    query = start(writer.option("checkpointLocation", str(tmp_path / "checkpoint")))
    wait_until(lambda: list(held(admin).values()) == [1, 1, 1])
    assert admin.describe_group("g").protocol_data == "cooperative-sticky"
    gate.touch()
    wait_until(lambda: set(admin.offsets("g").values()) == {ROWS})
    job.join()
    query.stop()
    worker.stop("all is done")
    thread.join(HANG_S)
    # Spark may start the slot twice, as it is the only one and endures: rows count by name.
    slot = Counter(set(noted(tmp_path, "[0-9]")))
    parts = [done, slot, noted(tmp_path, "query")]
    assert [len({p for p, _ in part}) for part in parts] == [1, 1, 1], "a partition each"
    assert sum(parts, Counter()) == EVERYTHING
