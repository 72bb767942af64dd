"""`coordinator health` and what systemd is told, of real nodes."""

from __future__ import annotations

import asyncio
import json
import signal
import socket

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from coordinator.cli.main import main
from tests.integration.groups import eventually
from tests.kit.patience import HANG_S
from tests.kit.serving import Process, Running, free_port


def health(*nodes: str) -> int:
    return main(["health", "--bootstrap", ",".join(nodes), "--timeout", "5", "-o", "json"])


def test_health_is_0_while_a_node_serves_and_1_when_it_is_gone(capsys):
    with Process() as node:
        assert health(node.address) == 0
        assert json.loads(capsys.readouterr().out) == [{"node": node.address, "status": "SERVING"}]
        node.kill()
        assert health(node.address) == 1
        assert json.loads(capsys.readouterr().out)[0]["status"] == "UNREACHABLE"


def test_health_is_1_if_one_of_several_does_not_answer(capsys):
    nobody = f"127.0.0.1:{free_port()}"
    with Process() as node:
        assert health(node.address, nobody) == 1
    statuses = {row["node"]: row["status"] for row in json.loads(capsys.readouterr().out)}
    assert statuses == {node.address: "SERVING", nobody: "UNREACHABLE"}


async def test_health_waits_until_a_node_serves(capsys):
    address = f"127.0.0.1:{free_port()}"
    late = Running(listen=address)
    command = ["health", "--bootstrap", address, "--wait", "60", "-o", "json"]
    waits = asyncio.create_task(asyncio.to_thread(main, command))
    await asyncio.sleep(0.5)  # At first nothing listens, then the node loads.
    await late.server.listen()
    await asyncio.sleep(0.5)
    assert not waits.done()
    await late.server.load()
    try:
        assert await waits == 0
    finally:
        await late.server.stop()
    assert json.loads(capsys.readouterr().out) == [{"node": address, "status": "SERVING"}]


def test_health_waits_no_longer_than_it_was_told(capsys):
    nobody = f"127.0.0.1:{free_port()}"
    assert main(["health", "--bootstrap", nobody, "--wait", "0.3"]) == 1
    assert "UNREACHABLE" in capsys.readouterr().out


async def test_health_is_1_while_a_node_loads(capsys):
    loading = Running()
    await loading.server.listen()
    try:
        assert await asyncio.to_thread(health, loading.address) == 1
    finally:
        await loading.server.stop()
    assert json.loads(capsys.readouterr().out)[0]["status"] == "NOT_SERVING"


async def test_watches_of_health_are_streams_and_hear_of_each_change():
    node = Running(max_streams=2)
    await node.server.listen()
    async with grpc.aio.insecure_channel(node.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        def watch(service: str = ""):
            return stub.Watch(health_pb2.HealthCheckRequest(service=service))

        first, second = watch(), watch()
        of = health_pb2.HealthCheckResponse
        for each in (first, second):
            assert (await each.read()).status == of.NOT_SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await watch().read()
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "max_streams" in caught.value.details()
        await node.server.load()
        first.cancel()  # A watcher that goes does not disturb the others.
        assert (await second.read()).status == of.SERVING
        await eventually(lambda: node.server.pipeline.quotas.streams == 1)
        unknown = watch("nothing.like.it")
        assert (await unknown.read()).status == of.SERVICE_UNKNOWN
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Check(health_pb2.HealthCheckRequest(service="nothing.like.it"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        stopping = asyncio.create_task(node.server.stop())
        assert (await second.read()).status == of.NOT_SERVING
        unknown.cancel()
        second.cancel()
        await stopping
    assert node.server.pipeline.quotas.streams == 0


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_systemd_is_told_when_a_node_serves_and_when_it_stops(kind, tmp_path, monkeypatch):
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(HANG_S)
        systemd.bind(name if kind == "path" else f"\0{name}")
        monkeypatch.setenv("NOTIFY_SOCKET", name if kind == "path" else f"@{name}")
        with Process() as node:
            ready = systemd.recv(4096).decode().splitlines()
            assert ready == ["READY=1", f"STATUS=serving on {node.address}"]
            node.signal(signal.SIGTERM)
            assert systemd.recv(4096).decode().splitlines()[0] == "STOPPING=1"
            assert node.wait() == 0


def test_a_systemd_that_is_gone_stops_nobody(tmp_path, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    with Process() as node:
        assert health(node.address) == 0


def test_of_several_nodes_of_one_machine_each_says_when_it_serves(tmp_path, monkeypatch):
    port = free_port()
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(HANG_S)
        systemd.bind(name)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        flags = ["--nodes", "2", "--listen", f"127.0.0.1:{port}", "--metrics-listen", ""]
        with Process(*flags, "--data-dir", str(tmp_path / "data")) as nodes:
            said = {systemd.recv(4096).decode() for _ in range(2)}
            assert said == {f"READY=1\nSTATUS=serving on 127.0.0.1:{port + n}" for n in (0, 10)}
            assert health(f"127.0.0.1:{port}", f"127.0.0.1:{port + 10}") == 0
            nodes.signal(signal.SIGTERM)
            assert nodes.wait() == 0
