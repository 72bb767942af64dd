"""HTTP proxies in the environment: used only where a client asks for one, and named in errors."""

from __future__ import annotations

import asyncio
import logging

import pytest

from coordinator.cli.main import main
from coordinator.client import Credentials, Member
from tests.campaigns.faults.stores import EtcdCluster, missing_etcd, store_url
from tests.integration.node.test_cluster import rows
from tests.integration.nodes import three_nodes
from tests.kit.patience import HANG_S
from tests.kit.proxy import Tunnel
from tests.kit.serving import Process, running

NOBODY = "http://127.0.0.1:9"
VARIABLES = dict.fromkeys(("http_proxy", "https_proxy", "grpc_proxy"), NOBODY)


@pytest.fixture
def everywhere(monkeypatch):
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)


async def joined(address: str, **more) -> None:
    async with Member(address, "g", {"t": 1}, **more) as member, asyncio.timeout(HANG_S):
        while not member.assignment:
            await member.poll(timeout=0.1)


@pytest.mark.parametrize("protocol", ["classic", "session"])
async def test_clients_do_not_obey_the_environment(everywhere, protocol):
    async with running() as server:
        await joined(server.address, protocol=protocol)
        assert await asyncio.to_thread(main, ["groups", "list", "--bootstrap", server.address]) == 0


@pytest.mark.parametrize("protocol", ["classic", "session"])
async def test_clients_use_the_one_that_they_are_given(protocol):
    async with running() as server, Tunnel() as tunnel:
        proxy = Credentials(proxy=f"http://{tunnel.address}")
        await joined(server.address, credentials=proxy, protocol=protocol)
        tunnel.requests_pass = tunnel.answers_pass = False
        flags = ["--bootstrap", server.address, "--proxy", f"http://{tunnel.address}"]
        assert await asyncio.to_thread(main, ["groups", "list", *flags]) == 1


def test_an_error_names_the_proxy_without_its_password(capsys):
    with Process() as node:
        proxy = "http://me:geheim@127.0.0.1:9"
        assert main(["groups", "list", "--bootstrap", node.address, "--proxy", proxy]) == 1
    error = capsys.readouterr().err
    assert f"no answer from {node.address} through the proxy 127.0.0.1:9: nothing listens" in error
    assert "geheim" not in error


async def test_a_member_names_the_proxy(monkeypatch, caplog):
    caplog.set_level(logging.WARNING)
    monkeypatch.setenv("COORDINATOR_CLIENT_PROXY", "http://me:geheim@127.0.0.1:9")
    async with running() as server, Member(server.address, "g", {"t": 1}) as member:
        async with asyncio.timeout(HANG_S):
            while "through the proxy 127.0.0.1:9" not in caplog.text:
                await member.poll(timeout=0.2)
    assert "geheim" not in caplog.text


async def test_nodes_among_themselves_and_etcd_are_reached_without_one():
    if reason := missing_etcd():
        pytest.skip(reason)
    with EtcdCluster() as etcd:
        async with three_nodes(store_url(etcd, "test"), VARIABLES) as nodes:
            await rows(
                nodes,
                *("cluster", "describe", "--shards"),
                until=lambda found: found and all(len(row["in_sync"]) == 2 for row in found),
            )
