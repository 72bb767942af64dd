"""Spark Connect: a client without a Java of its own; source, sinks and executors on the server."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from coordinator.operator.admin import GroupAdmin
from coordinator.sources import FileLog
from coordinator.spark import consume
from coordinator.spark.exactly_once import ExactlyOnce
from tests.integration.spark.queries import SLOW_START, run, start
from tests.kit.documents import ROOT, blocks
from tests.kit.patience import HANG_S
from tests.kit.serving import Process
from tests.kit.sinks import GROUP, KINDS, PARTITIONS, TOPIC, Place, everything, log_of

pytestmark = [pytest.mark.alone, pytest.mark.usefixtures("travels_by_value")]

ROWS = 40
PAGE = ROOT / "deploy/docs/spark-connect.md"


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return log_of(ROWS, tmp_path_factory.mktemp("log"))


@pytest.fixture(scope="module")
def server():
    with Process(
        "--group-min-session-timeout-ms", "1000", "--group-initial-rebalance-delay-ms", "0"
    ) as process:
        yield process


def options(server, log, group: str) -> dict[str, str]:
    return {
        "coordinator": server.address, "group": group, "source": str(log), "topic": TOPIC,
        "maxRowsPerBatch": "70", "sessionTimeoutMs": "3000",
    }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_query_writes_each_row_once(connect, log, server, tmp_path, kind):
    place = Place(kind, str(tmp_path))
    group = GROUP if kind == "parquet" else f"{GROUP}-{kind}"
    reading = options(server, log, group)
    rows = connect.readStream.format("consumer_group").options(**reading).load()
    made = rows.selectExpr(
        "p", "n", "timestamp_seconds(n) as at", "cast(n as decimal(10,2)) as amount"
    )
    sink = ExactlyOnce(place.sink())
    assert run(made, sink, tmp_path / "checkpoint") is None
    assert place.rows(server.address) == everything(ROWS)
    assert sink.refused == 0


def test_the_client_sees_how_many_batches_were_refused(connect, log, server, tmp_path):
    place = Place("sql", str(tmp_path))
    sink, other = ExactlyOnce(place.sink()), ExactlyOnce(place.sink())

    def both(rows, batch_id: int) -> None:
        other(rows, batch_id)  # Has the batch done, as a query does that took the partitions over.
        sink(rows, batch_id)

    reading = options(server, log, "refused") | {"maxRowsPerBatch": "60"}
    rows = connect.readStream.format("consumer_group").options(**reading).load()
    assert run(rows, both, tmp_path / "checkpoint") is None
    assert (sink.refused, other.refused) == (2, 0)
    assert place.rows(server.address) == everything(ROWS)


def test_the_client_is_told_refusals_in_their_own_words(connect, log, server, tmp_path):
    reading = options(server, log, "told")
    unknown = connect.readStream.format("consumer_group").options(**reading, colour="red").load()
    with pytest.raises(Exception, match="there is no option colour"):
        _ = unknown.schema  # The server is asked now, and not before.
    rows = connect.readStream.format("rate").load()
    writer = rows.writeStream.foreachBatch(ExactlyOnce(Place("sql", str(tmp_path)).sink()))
    query = start(writer.option("checkpointLocation", str(tmp_path / "checkpoint")))
    with pytest.raises(Exception, match="rows of batch 0 are of no group's stream"):
        query.awaitTermination(2 * HANG_S)


class Recording:
    """Notes the rows that it is given, and where the library was found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, partition: int, batch) -> None:
        import coordinator

        (self.folder / "library").write_text(str(coordinator.__file__))
        with (self.folder / f"rows-{partition}").open("a") as file:
            file.writelines(f"{n}\n" for n in batch["n"].to_pylist())


def test_executors_are_members_of_a_group(connect, log, server, tmp_path):
    (tmp_path / "rows").mkdir()
    done = consume(
        connect, 2, Recording(tmp_path / "rows"), bootstrap=server.address, group_id="executors",
        source=FileLog(str(log), TOPIC), forever=False,
    )  # fmt: skip
    assert sum(summary.rows for summary in done) == PARTITIONS * ROWS
    assert len({summary.member_id for summary in done}) == 2
    assert (tmp_path / "rows/library").read_text().endswith("/library/coordinator/__init__.py")
    for number in range(PARTITIONS):
        rows = (tmp_path / f"rows/rows-{number}").read_text().split()
        assert sorted(map(int, rows)) == list(range(ROWS))
    with GroupAdmin(server.address) as admin:
        assert set(admin.offsets("executors").values()) == {ROWS}


def test_an_error_of_a_handler_reaches_the_client(connect, log, server):
    def fail(partition: int, batch) -> None:
        raise ValueError("no such carrier")

    with pytest.raises(Exception, match="no such carrier"):
        consume(
            connect, 1, fail, bootstrap=server.address, group_id="failing",
            source=FileLog(str(log), TOPIC), forever=False,
        )  # fmt: skip


def test_the_program_of_the_page_works_in_a_client_of_its_own(connect_url, log, server, tmp_path):
    (program,) = blocks(PAGE, "python")
    (tmp_path / program.name).write_text(program.text)
    arguments = [connect_url, server.address, str(log), str(tmp_path / "table")]
    deadline = time.monotonic() + HANG_S
    while True:
        done = subprocess.run(
            [sys.executable, program.name, *arguments],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if SLOW_START not in done.stderr or time.monotonic() > deadline:
            break
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "0 batches were refused"
    assert Place("delta", str(tmp_path)).rows(server.address, "table") == everything(ROWS)
