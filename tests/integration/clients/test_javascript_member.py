"""The members in JavaScript of `deploy/examples/worker.mjs` in a group with one in Python."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.kit.documents import ROOT
from tests.kit.npm import install, missing_node
from tests.kit.patience import HANG_S
from tests.kit.serving import Process, free_port

pytestmark = pytest.mark.integration

PARTITIONS = 6
ROW = re.compile(r"^t-(\d+) row (\d+) token (\d+)$", re.MULTILINE)
PYTHON = """
import sys, time
from coordinator.client import Worker
topics = {"t": int(sys.argv[2])}
wishes = {"lease_ms": 2_000, "join_quiet_ms": 200}
worker = Worker(sys.argv[1], "jobs", topics=topics, protocol="session", wishes=wishes)
@worker.handler
def work(p):
    for row in range(p.position, 10**6):
        time.sleep(0.1)
        try:
            p.commit(row + 1)
        finally:
            if p.position > row:
                # In one write: other threads print too.
                print(f"t-{p.number} row {row} token {p.token}\\n", end="", flush=True)
worker.run()
"""


class Worker:
    """A process; the rows that it has printed, each after its commit."""

    def __init__(self, folder: Path, name: str, *command: str) -> None:
        self._printed = folder / name
        with self._printed.open("w") as out:
            self.process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out)

    def text(self) -> str:
        return self._printed.read_text()

    def rows(self) -> list[tuple[int, int, int]]:
        """(partition, row, token)."""
        return [(int(p), int(row), int(token)) for p, row, token in ROW.findall(self.text())]

    def partitions(self) -> set[int]:
        return {partition for partition, _, _ in self.rows()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A copy of the program, with its packages."""
    if reason := missing_node():
        pytest.skip(reason)
    top = tmp_path_factory.mktemp("javascript")
    shutil.copytree(ROOT / "protos", top / "protos")
    folder = top / "deploy/examples"
    skipped = shutil.ignore_patterns("node_modules", "kafka")
    shutil.copytree(ROOT / "deploy/examples", folder, ignore=skipped)
    if reason := install(folder):
        pytest.skip(reason)
    return folder


@pytest.fixture
def workers(folder) -> Iterator[Callable[..., Worker]]:
    begun: list[Worker] = []

    def begin(name: str, address: str) -> Worker:
        javascript = ["node", "worker.mjs", address, "jobs", "t", str(PARTITIONS)]
        python = [sys.executable, "-c", PYTHON, address, str(PARTITIONS)]
        begun.append(Worker(folder, name, *(python if name == "python" else javascript)))
        return begun[-1]

    yield begin
    for handoff in begun:
        handoff.process.kill()
        handoff.process.wait()
        print(f"--- {handoff.process.args}\n{handoff.text()}")


def until(condition: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.05)


def check(*all_workers: Worker, cut_off: int = 0) -> None:
    """Each row is done once, in order, under tokens that rise; one process has a token.

    Args:
        cut_off: rows that may lack, since a process was killed between its commit and its line.
    """
    owners: dict[int, Worker] = {}
    done: dict[int, list[tuple[int, int]]] = {}
    for worker in all_workers:
        for partition, row, token in worker.rows():
            assert owners.setdefault(token, worker) is worker
            done.setdefault(partition, []).append((token, row))
    assert set(done) == set(range(PARTITIONS))
    lacking = 0
    for rows in done.values():
        rows.sort()
        lacking += rows[0][1]
        for (before, one), (after, other) in pairwise(rows):
            assert other > one, f"row {other} was done under {after} and {before}"
            lacking += other - one - 1
    assert lacking <= cut_off


def test_two_of_them_share_a_group_with_a_python_worker(folder, workers, monkeypatch):
    monkeypatch.setenv("WORK_MS", "100")
    with Process() as node:
        python = workers("python", node.address)
        until(lambda: len(python.partitions()) == PARTITIONS)
        one, other = workers("one", node.address), workers("other", node.address)
        until(lambda: len(one.partitions()) >= 2 and len(other.partitions()) >= 2)
        one.process.kill()
        killed = {(p, t) for p, _, t in one.rows()}
        held = {p for p, t in killed if t == max(token for q, token in killed if q == p)}
        others = (python, other)
        until(
            lambda: all(any(_is_after(one_worker, p, one) for one_worker in others) for p in held)
        )
        other.process.terminate()
        assert other.process.wait(HANG_S) == 0
        until(lambda: all(_is_after(python, p, other) for p in other.partitions()))
        python.process.terminate()
        assert python.process.wait(HANG_S) == 0
    check(python, one, other, cut_off=PARTITIONS)
    assert "lost" not in other.text(), "who leaves hands over"


def test_it_goes_on_where_it_was_when_the_node_comes_back(folder, workers, monkeypatch, tmp_path):
    monkeypatch.setenv("WORK_MS", "100")
    port = free_port()
    flags = ["--listen", f"127.0.0.1:{port}", "--data-dir", str(tmp_path / "data")]
    with Process(*flags) as node:
        worker = workers("alone", node.address)
        until(lambda: len(worker.partitions()) == PARTITIONS)
        node.kill()
    done = len(worker.rows())
    with Process(*flags):
        until(lambda: len(worker.rows()) > done + 3 * PARTITIONS)
        worker.process.terminate()
        assert worker.process.wait(HANG_S) == 0
    check(worker)
    assert len({token for _, _, token in worker.rows()}) == PARTITIONS, (
        "its leases outlive the node"
    )


def _is_after(worker: Worker, partition: int, before: Worker) -> bool:
    """True if a worker has done rows of a partition after another one had it."""
    newest = [
        max((t for p, _, t in one.rows() if p == partition), default=0) for one in (worker, before)
    ]
    return newest[0] > newest[1]
