"""Addresses at which a node cannot listen: each is named by its setting, before anything else."""

from __future__ import annotations

import contextlib
import socket

import pytest

from coordinator.cli.ports import ListenAddress, addresses, problems
from coordinator.settings import Settings
from tests.kit.serving import NODES_APART, Process, free_port

OFF = {"metrics_listen": "", "console_listen": ""}


@contextlib.contextmanager
def taken(family=socket.AF_INET, host: str = "127.0.0.1", port: int = 0):
    """A port at which another process listens."""
    with socket.create_server((host, port), family=family) as listener:
        yield listener.getsockname()[1]


def said(**settings: str) -> list[str]:
    return problems(addresses(Settings.of(**{"listen": "127.0.0.1:0", **OFF, **settings})))


@pytest.mark.parametrize(
    ("setting", "otherwise"),
    [
        ("listen", "port 0 lets the system choose one"),
        ("metrics_listen", "an empty one serves no metrics"),
        ("console_listen", "an empty one serves no console"),
        ("kafka_listen", "an empty one serves no Kafka clients"),
    ],
)
def test_a_taken_port_is_named_by_its_setting_and_how_to_choose_another(setting, otherwise):
    with taken() as port:
        (sentence,) = said(**{setting: f"127.0.0.1:{port}"})
    assert sentence == (
        f"cannot listen at {setting}, 127.0.0.1:{port}: another process listens there; choose "
        f"another with --{setting.replace('_', '-')} HOST:PORT or COORDINATOR_{setting.upper()}"
        f" ({otherwise})"
    )
    assert said(**{setting: f"127.0.0.1:{port}"}) == []


def test_two_settings_with_one_port_are_both_named():
    port = free_port()
    (sentence,) = said(listen=f"127.0.0.1:{port}", metrics_listen=f"127.0.0.1:{port}")
    assert f"metrics_listen, 127.0.0.1:{port}: that is the port of listen, 127.0." in sentence


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("no-such-host.invalid", "the host cannot be resolved"),
        ("192.0.2.1", "no network interface of this machine has this address"),
        ("[2001:db8::1]", "no network interface of this machine has this address"),
    ],
)
def test_a_host_that_is_none_of_this_machine(host, reason):
    (sentence,) = said(listen=f"{host}:7400")
    assert reason in sentence


def test_a_port_that_needs_a_privilege(monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket, "create_server", refuse)  # Tests may run as root.
    (sentence,) = said(listen="127.0.0.1:443")
    assert "this user may not listen on this port (below 1024 that takes a privilege)" in sentence


def test_addresses_of_ipv6_and_names_and_ports_that_the_system_chooses():
    for listen in ("localhost:0", "[::1]:0", "[::]:0", "0.0.0.0:0"):
        assert said(listen=listen, metrics_listen=listen) == []
    with taken(socket.AF_INET6, "::1") as port:
        (sentence,) = said(listen=f"[::1]:{port}")
        assert f"listen, [::1]:{port}: another process listens there" in sentence


def test_a_port_of_another_node_of_this_machine():
    port = free_port(NODES_APART)
    wanted = [
        ListenAddress("listen", "127.0.0.1", port, 1),
        ListenAddress("metrics_listen", "127.0.0.1", port + 10, 1),
        ListenAddress("listen", "127.0.0.1", port + 10, 2),
    ]
    (sentence,) = problems(wanted)
    assert f"at listen of node 2, 127.0.0.1:{port + 10}" in sentence
    assert "that is the port of metrics_listen of node 1, " in sentence
    assert "each further node's is 10 higher" in sentence


@pytest.mark.parametrize("flag", ["--listen", "--metrics-listen"])
def test_a_node_says_nothing_else_first_and_opens_nothing(flag, tmp_path):
    with taken() as port:
        node = Process(flag, f"127.0.0.1:{port}", "--data-dir", str(tmp_path / "data"), wait=False)
        assert node.wait() == 1
    (line,) = node.lines
    assert (line["event"], line["level"], node.other) == ("cannot_start", "error", "")
    assert f"{flag} HOST:PORT" in line["what"]
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("is_taken", [True, False])
def test_no_node_of_a_machine_starts_unless_all_can(is_taken):
    first = free_port(NODES_APART) if is_taken else 65_530
    with taken(port=first + NODES_APART[1] if is_taken else 0) as port:
        node = Process("--nodes", "2", "--listen", f"127.0.0.1:{first}", "--metrics-listen", "",
                       wait=False)  # fmt: skip
        assert node.wait() == 1
    (line,) = node.lines
    assert line["event"] == "cannot_start"
    if is_taken:
        assert f"at listen of node 2, 127.0.0.1:{port}: another process" in line["what"]
    else:
        assert "listen of node 2 would have port 65540" in line["what"]
