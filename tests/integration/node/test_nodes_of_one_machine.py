"""`coordinator serve --nodes N`: processes with a share each, watched over by their parent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest

from coordinator.operator.cluster import ClusterAdmin
from coordinator.operator.nodes import Nodes
from tests.campaigns.faults.stores import EtcdCluster, missing_etcd
from tests.integration.groups import commit_everywhere, members
from tests.integration.waiting import until
from tests.kit.patience import HANG_S
from tests.kit.serving import NODES_APART, Process, free_port

GROUPS = 8
MEMBERS = {"heartbeat_interval_ms": 300}


class Machine:
    """The parent process with its nodes, and what they log."""

    def __init__(self, folder, *flags: str, nodes: int = 2, port: int | None = None) -> None:
        self.port = port or free_port(NODES_APART)
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "coordinator", "serve", "--log-format", "json"),
                *("--nodes", str(nodes), "--listen", f"127.0.0.1:{self.port}"),
                *(
                    "--metrics-listen",
                    "",
                    "--console-listen",
                    "",
                    "--group-initial-rebalance-delay-ms",
                    "50",
                ),
                *("--data-dir", str(folder), *flags),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[dict] = []

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{self.port + n}" for n in NODES_APART]

    async def logged(self, event: str, times: int = 1) -> None:
        """Read on until an event has come so many times more."""
        seen = 0
        async with asyncio.timeout(HANG_S):
            while seen < times:
                text = await asyncio.to_thread(self._process.stderr.readline)
                assert text, f"it has ended: {self.lines}"
                self.lines.append(json.loads(text))
                seen += self.lines[-1]["event"] == event

    @property
    def children(self) -> list[int]:
        tasks = f"/proc/{self._process.pid}/task/{self._process.pid}/children"
        with open(tasks) as file:
            return [int(pid) for pid in file.read().split()]

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def wait(self) -> int:
        _, errors = await asyncio.to_thread(self._process.communicate, timeout=HANG_S)
        # The others are gRPC's own.
        self.lines += [json.loads(line) for line in errors.splitlines() if line[0] == "{"]
        return self._process.returncode

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._process.stderr.close()


@contextlib.asynccontextmanager
async def machine(folder, *flags: str, **options):
    server = Machine(folder, *flags, **options)
    try:
        await server.logged("serving", 2)
        yield server
    finally:
        server.end()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with open(f"/proc/{pid}/stat") as file:
        return file.read().split()[2] == "Z"


async def test_each_node_has_a_share_and_a_dead_one_is_started_again(tmp_path):
    async with machine(tmp_path) as server, members(server.addresses, GROUPS, **MEMBERS) as some:
        with Nodes(server.addresses[1]) as nodes:
            homes = {nodes.coordinator_of(f"group-{n}") for n in range(GROUPS)}
            assert homes == set(server.addresses)
            assert nodes.addresses() == dict(enumerate(server.addresses, 1))
        before = [(m.member_id, m.generation) for m in some]
        await commit_everywhere(some, 1)
        os.kill(server.children[0], signal.SIGKILL)
        await server.logged("serving")
        await commit_everywhere(some, 2)
        assert [(m.member_id, m.generation) for m in some] == before
        server.signal(signal.SIGTERM)
        assert await server.wait() == 0
        assert [line["event"] for line in server.lines].count("stopped") == 2


async def test_the_nodes_end_with_their_parent(tmp_path):
    async with machine(tmp_path) as server:
        children = server.children
        assert len(children) == 2
        server.signal(signal.SIGKILL)
        await until(lambda: all(map(gone, children)))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--nodes", "3"), "was made for 2 nodes, not 3"),
        (("--nodes", "1"), "was made for 2 nodes, not 1"),
        (("--listen", "127.0.0.1:0"), "give the port of the first node"),
    ],
)
async def test_what_would_hide_groups_or_nodes_is_refused(tmp_path, flags, words):
    (tmp_path / "share-1-of-2").mkdir()
    server = Machine(tmp_path, *flags)
    assert await server.wait() == 1
    assert words in server.lines[-1]["what"]


async def test_a_node_that_cannot_start_ends_them_all(tmp_path):
    share = ("--share", "2/2", "--data-dir", str(tmp_path / "share-2-of-2"))
    with Process(*share):
        server = Machine(tmp_path)
        assert await server.wait() == 1
        assert any("is in use by process" in line.get("what", "") for line in server.lines)


async def test_with_a_shared_store_they_are_nodes_like_any_other(tmp_path):
    if reason := missing_etcd():
        pytest.skip(reason)
    with EtcdCluster() as etcd:
        store = f"etcd://{','.join(etcd.endpoints)}/test"
        async with machine(tmp_path, "--store", store, "--node-id", "7") as server:
            with ClusterAdmin(server.addresses[0]) as admin:
                await until(lambda: {s.leader for s in admin.describe().shards} == {7, 8})
                assert admin.addresses() == {7: server.addresses[0], 8: server.addresses[1]}
            async with members(server.addresses[1:], GROUPS, **MEMBERS) as some:
                await commit_everywhere(some, 1)
            server.signal(signal.SIGTERM)
            assert await server.wait() == 0
