"""The example of deploy/examples/kafka: confluent-kafka and kafkajs in one group."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.kafka.served import Served
from tests.integration.waiting import wait_until
from tests.kit.documents import ROOT
from tests.kit.npm import install, missing_node

pytestmark = pytest.mark.integration

EXAMPLE = ROOT / "deploy/examples/kafka"
PARTITIONS, ROWS = 6, 20


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A copy of the example, with its package."""
    if reason := missing_node():
        pytest.skip(reason)
    folder = tmp_path / "kafka"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("node_modules"))
    if reason := install(folder):
        pytest.skip(reason)
    return folder


def test_two_workers_with_different_clients_share_the_work_and_finish_it(served: Served, installed):
    served.run("topics", "set", "orders", str(PARTITIONS))
    commands = ([sys.executable, "worker.py", served.kafka], ["node", "worker.mjs", served.kafka])
    logs = [installed / "python.log", installed / "node.log"]
    workers = []
    try:
        for command, log in zip(commands, logs, strict=True):
            with log.open("w") as file:
                workers.append(
                    subprocess.Popen(command, cwd=installed, stdout=file, stderr=subprocess.STDOUT)
                )
        wait_until(lambda: shares(logs) == ["0 2 4", "1 3 5"])
        done = {("orders", number): ROWS for number in range(PARTITIONS)}
        wait_until(lambda: served.offsets("orders") == done)
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
            assert worker.wait() == 0
        assert [cause for cause, _ in served.causes("orders")].count("member_left") >= 1
    except TimeoutError:
        raise AssertionError("\n".join(log.read_text()[-2000:] for log in logs)) from None
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def shares(logs: list[Path]) -> list[str]:
    """The partitions that each worker has said last that it works on, sorted."""
    said = [re.findall(r"works on ([\d ]+)$", log.read_text(), re.MULTILINE) for log in logs]
    return sorted(message[-1] if message else "" for message in said)
