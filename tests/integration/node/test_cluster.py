"""Three real nodes on a real store, under the hands of operators."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json

import pytest

from coordinator.cli.main import main
from tests.campaigns.faults.stores import (
    EtcdCluster,
    Postgres,
    missing_etcd,
    missing_postgres,
    store_url,
)
from tests.integration.groups import commit_everywhere, members
from tests.integration.nodes import SHARDS, Nodes, three_nodes
from tests.kit.patience import HANG_S

GROUPS = SHARDS
MEMBERS = {"session_timeout_ms": 60_000, "heartbeat_interval_ms": 500}
KINDS = {"etcd": (EtcdCluster, missing_etcd), "postgres": (Postgres, missing_postgres)}


@pytest.fixture
def store(request):
    """URL of a store that runs: of etcd, unless a test asks for another."""
    cluster, missing = KINDS[getattr(request, "param", "etcd")]
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
        await nodes.stop(3)
        await commit_everywhere(some, 3)
