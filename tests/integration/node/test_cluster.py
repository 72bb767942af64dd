"""Three real nodes on a real store: members do not notice who coordinates them."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import signal

import pytest

from coordinator.cli.main import main
from tests.faults.stores import (
    EtcdCluster,
    Postgres,
    ZooKeeperCluster,
    missing_etcd,
    missing_postgres,
    missing_zookeeper,
    store_url,
)
from tests.integration.groups import commit_everywhere, members
from tests.integration.nodes import SHARDS, Nodes, three_nodes
from tests.patience import HANG_S

GROUPS = SHARDS
MEMBERS = {"session_timeout_ms": 60_000, "heartbeat_interval_ms": 500}
KINDS = {
    "etcd": (EtcdCluster, missing_etcd),
    "zookeeper": (ZooKeeperCluster, missing_zookeeper),
    "postgres": (Postgres, missing_postgres),
}


@pytest.fixture(params=KINDS)
def store(request):
    cluster, missing = KINDS[request.param]
    if reason := missing():
        pytest.skip(reason)
    with cluster() as running:
        yield store_url(running, "test")


async def nothing_happens(some, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        events = await asyncio.gather(*(m.poll(timeout=0.2) for m in some))
        assert events == [[]] * len(some)


async def test_members_notice_neither_kills_nor_restarts_of_nodes(store):
    async with three_nodes(store) as nodes, members(nodes.addresses, GROUPS, **MEMBERS) as some:
        before = [(m.member_id, m.generation) for m in some]
        await commit_everywhere(some, 1)
        await nodes.kill(1)
        await commit_everywhere(some, 2)  # Others lead by then, however long it took.
        await nothing_happens(some, 2.0)
        await nodes.start(1)
        await shares(nodes, [2, 3, 3])  # It gets its share back.
        await nothing_happens(some, 2.0)
        await commit_everywhere(some, 3)
        await nodes.stop(2)
        await commit_everywhere(some, 4)
        await nothing_happens(some, 2.0)
        await nodes.kill(3)
        await commit_everywhere(some, 5)
        await nothing_happens(some, 2.0)
        assert [(m.member_id, m.generation) for m in some] == before


async def test_a_stopped_node_that_wakes_up_cannot_do_harm(store):
    async with three_nodes(store) as nodes, members(nodes.addresses, GROUPS, **MEMBERS) as some:
        await commit_everywhere(some, 1)
        nodes.running[1].signal(signal.SIGSTOP)
        await commit_everywhere(some, 2)
        await nothing_happens(some, 2.0)
        nodes.running[1].signal(signal.SIGCONT)
        await commit_everywhere(some, 3)
        await nothing_happens(some, 4.0)
        await commit_everywhere(some, 4)


def command(nodes: Nodes, *line: str) -> list[dict]:
    """Rows that `coordinator` prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = main([*line, "--bootstrap", ",".join(nodes.addresses), "-o", "json"])
    assert status == 0
    return json.loads(out.getvalue())


async def rows(nodes: Nodes, *line: str, until=lambda rows: True) -> list[dict]:
    """They are as they should be, sooner or later."""
    async with asyncio.timeout(HANG_S):
        while True:
            found = await asyncio.to_thread(command, nodes, *line)
            if until(found):
                return found
            await asyncio.sleep(0.2)


def led(rows: list[dict]) -> list[int]:
    return [row["leads"] for row in rows]


async def shares(nodes: Nodes, wanted: list[int]) -> list[dict]:
    """The nodes, as soon as they lead so many shards."""
    return await rows(nodes, "cluster", "describe", until=lambda rows: sorted(led(rows)) == wanted)


async def test_operators_see_and_move_what_nodes_lead(store):
    async with three_nodes(store) as nodes, members(nodes.addresses, GROUPS, **MEMBERS) as some:
        everybody = [f"group-{n}" for n in range(GROUPS)]
        await rows(
            nodes,
            *("groups", "list"),
            until=lambda rows: [row["group"] for row in rows] == everybody,
        )
        found = await shares(nodes, [2, 3, 3])
        assert sum(row["replicas"] for row in found) == 2 * SHARDS
        assert sum(row["controller_epoch"] is not None for row in found) == 1
        await rows(
            nodes,
            *("cluster", "describe", "--shards"),
            until=lambda rows: all(len(row["in_sync"]) == 2 for row in rows),
        )
        await rows(nodes, "cluster", "drain", "2")
        found = await rows(nodes, "cluster", "describe", until=lambda rows: led(rows)[1] == 0)
        assert found[1]["state"] == "draining"
        await commit_everywhere(some, 1)
        await rows(nodes, "cluster", "drain", "2", "--undo")
        await rows(nodes, "cluster", "describe", until=lambda rows: led(rows)[1] >= 2)
        await rows(nodes, "cluster", "move", "5", "3", "1")
        found = await rows(
            nodes,
            *("cluster", "describe", "--shards"),
            until=lambda rows: rows[5]["leader"] == 3,
        )
        assert found[5]["replicas"] == [3, 1]
        await rows(nodes, "cluster", "elect")
        await nothing_happens(some, 1.0)
        await commit_everywhere(some, 2)
