"""`coordinator health` and what systemd is told, of real nodes."""

from __future__ import annotations

import asyncio
import json
import signal
import socket

import pytest

from coordinator.cli.main import main
from tests.serving import Process, Running, free_port


def health(*nodes: str) -> int:
    return main(["health", "--bootstrap", ",".join(nodes), "--timeout", "5", "-o", "json"])


def test_health_is_0_while_a_node_serves_and_1_when_it_is_gone(capsys):
    with Process() as node:
        assert health(node.address) == 0
        assert json.loads(capsys.readouterr().out) == [{"NODE": node.address, "STATUS": "SERVING"}]
        node.kill()
        assert health(node.address) == 1
        assert json.loads(capsys.readouterr().out)[0]["STATUS"] == "UNREACHABLE"


def test_health_is_1_if_one_of_several_does_not_answer(capsys):
    nobody = f"127.0.0.1:{free_port()}"
    with Process() as node:
        assert health(node.address, nobody) == 1
    statuses = {row["NODE"]: row["STATUS"] for row in json.loads(capsys.readouterr().out)}
    assert statuses == {node.address: "SERVING", nobody: "UNREACHABLE"}


async def test_health_is_1_while_a_node_loads(capsys):
    loading = Running()
    await loading.server.listen()
    try:
        assert await asyncio.to_thread(health, loading.address) == 1
    finally:
        await loading.server.stop()
    assert json.loads(capsys.readouterr().out)[0]["STATUS"] == "NOT_SERVING"


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_systemd_is_told_when_a_node_serves_and_when_it_stops(kind, tmp_path, monkeypatch):
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(30)
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
        systemd.settimeout(30)
        systemd.bind(name)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        flags = ["--nodes", "2", "--listen", f"127.0.0.1:{port}", "--metrics-listen", ""]
        with Process(*flags, "--data-dir", str(tmp_path / "data")) as nodes:
            said = {systemd.recv(4096).decode() for _ in range(2)}
            assert said == {f"READY=1\nSTATUS=serving on 127.0.0.1:{port + n}" for n in (0, 10)}
            assert health(f"127.0.0.1:{port}", f"127.0.0.1:{port + 10}") == 0
            nodes.signal(signal.SIGTERM)
            assert nodes.wait() == 0
