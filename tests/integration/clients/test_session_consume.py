"""`consume` as a member of a session group: exactly-once results, whoever is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.operator.admin import GroupAdmin
from tests.integration.waiting import wait_until
from tests.kit.patience import HANG_S
from tests.kit.serving import Process

ROWS, PARTITIONS = 400, 4
PROGRAM = """
import json, pathlib, sys, time
from coordinator.client import BlockingMember
from coordinator.sources.group import consume
from coordinator.sources import open_source

address, group, protocol, logs, results, is_victim = sys.argv[1:]
results = pathlib.Path(results)

class Sums:
    # The victim stops for ever with its third result half written.

    def __init__(self):
        self.sums, self.left = {}, 3 if is_victim == "victim" else -1

    def resume(self, partition, offset):
        path = results / f"{partition}-{offset}.json"
        self.sums[partition] = json.loads(path.read_text()) if offset else 0

    def add(self, partition, batch):
        self.sums[partition] += sum(row["value"] for row in batch.to_pylist())
        if is_victim != "victim" and not list(results.glob("*.half")):
            time.sleep(0.2)  # It leaves rows for the victim, however slowly that starts.

    def store(self, partition, offset):
        path, text = results / f"{partition}-{offset}.json", json.dumps(self.sums[partition])
        self.left -= 1
        if not self.left:
            path.write_text(text[:-1])
            path.with_suffix(".half").touch()
            time.sleep(3_600)
        path.write_text(text)

source = open_source(logs)
topics = {source.topic: 4}
if protocol == "session":
    wishes = {"lease_ms": 2_000, "join_quiet_ms": 0, "initial_delay_ms": 0}
    member = BlockingMember(address, group, topics, protocol="session", wishes=wishes)
else:
    member = BlockingMember(
        address, group, topics, assignors="cooperative-sticky", session_timeout_ms=2_000,
        heartbeat_interval_ms=200,
    )
with member:
    print(consume(member, source, Sums(), rows_per_commit=10).rows, flush=True)
"""


@pytest.fixture(scope="module")
def node():
    flags = ("--group-initial-rebalance-delay-ms", "20", "--group-min-session-timeout-ms", "100")
    with Process(*flags) as process:
        yield process


@pytest.fixture(scope="module")
def logs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    for number in range(PARTITIONS):
        lines = [json.dumps({"value": number * ROWS + row}) + "\n" for row in range(ROWS)]
        (folder / f"partition={number}").mkdir()
        (folder / f"partition={number}" / "0.jsonl").write_text("".join(lines))
    return folder


@pytest.mark.parametrize("protocol", ["classic", "session"])
def test_a_consumer_that_is_killed_with_a_result_half_written_loses_and_doubles_nothing(
    node, logs, tmp_path, protocol
):
    command = [
        sys.executable, "-c", PROGRAM, node.address, protocol, protocol, f"jsonl:{logs}",
        str(tmp_path),
    ]  # fmt: skip
    begun = [
        subprocess.Popen([*command, role], stdout=subprocess.PIPE, text=True)
        for role in ("victim", "successor")
    ]
    try:
        wait_until(lambda: list(tmp_path.glob("*.half")))
        begun[0].kill()
        assert begun[1].wait(HANG_S) == 0
    finally:
        for process in begun:
            process.kill()
            process.communicate()
    assert begun[0].returncode == -signal.SIGKILL
    (half,) = tmp_path.glob("*.half")
    number, offset = map(int, half.stem.split("-"))
    written = json.loads(half.with_suffix(".json").read_text())
    assert written == sum(number * ROWS + row for row in range(offset)), (
        "the successor wrote it anew"
    )
    for number in range(PARTITIONS):
        total = sum(number * ROWS + row for row in range(ROWS))
        assert json.loads((tmp_path / f"{number}-{ROWS}.json").read_text()) == total
    with GroupAdmin(node.address) as admin:
        assert list(admin.offsets(protocol).values()) == [ROWS] * PARTITIONS
