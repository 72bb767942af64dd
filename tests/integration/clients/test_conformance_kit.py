"""The conformance kit of the session protocol, against our own server and our own member."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import threading

from coordinator.testing.conformance.__main__ import main
from tests.serving import Process, free_port, running


async def test_our_server_conforms(capsys):
    async with running() as server:
        arguments = ["--server", server.address, "--json"]
        status = await asyncio.to_thread(main, arguments)
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["name"], each["problem"]) for each in results if each["problem"]] == []
    assert len(results) > 88
    assert status == 0


RESTARTS = ("restart-keeps-holdings", "restart-raises-tokens")
"""Cases that a log on a disk could fail. The others are played on virtual time."""


def test_holdings_outlive_a_restart(capsys, tmp_path):
    """The command asks this test by one pipe to restart the server, and hears by another."""
    flags = ("--data-dir", str(tmp_path / "data"), "--listen", f"127.0.0.1:{free_port()}")
    asked, done = tmp_path / "asked", tmp_path / "done"
    os.mkfifo(asked)
    os.mkfifo(done)
    restarts = []

    def restart() -> None:
        while asked.read_text() == "restart":
            restarts.append(server.address)
            servers.pop().kill()
            servers.append(Process(*flags))
            done.write_text("")

    server = Process(*flags)
    servers, restarting = [server], threading.Thread(target=restart)
    restarting.start()
    try:
        command = f"printf restart > {asked} && cat {done}"
        arguments = ["--server", server.address, "--restart", command, "--json", *RESTARTS]
        status = main(arguments)
    finally:
        asked.write_text("end")
        restarting.join()
        servers.pop().kill()
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["name"], each["problem"]) for each in results if each["problem"]] == []
    assert len(results) == len(RESTARTS) <= len(restarts)
    assert status == 0


OWN_CLIENT = [sys.executable, "-m", "coordinator.testing.conformance.subject"]
BROKEN_CLIENT = """
import runpy
from coordinator.client.member.session.leases import Lease
Lease.suspended_ms = property(lambda lease: 3 * lease.length_ms)
runpy.run_module("coordinator.testing.conformance.subject", run_name="__main__")
"""


def played(capsys, command, *words) -> dict[str, str | None]:
    """Problems by case."""
    main(["--client", shlex.join(command), "--json", *words])
    lines = capsys.readouterr().out.splitlines()
    return {each["name"]: each["problem"] for each in map(json.loads, lines)}


def test_our_member_conforms(capsys):
    problems = played(capsys, OWN_CLIENT)
    assert {name: problem for name, problem in problems.items() if problem} == {}
    assert len(problems) > 35


def test_a_client_that_breaks_rules_is_found(capsys):
    """A rule is broken on purpose: it counts three leases."""
    problems = played(
        capsys, [sys.executable, "-c", BROKEN_CLIENT], "suspends-without", "first-attach"
    )
    assert problems["first-attach"] is None
    assert problems["suspends-without-a-stream"] is not None
    assert "no effect may leave" in problems["suspends-without-a-stream"]


def test_a_client_that_does_not_start_is_said(capsys):
    command = shlex.join([sys.executable, "-c", "raise SystemExit(3)"])
    assert main(["--client", command, "--json", "first-attach"]) == 1
    assert "ended with 3" in json.loads(capsys.readouterr().out)["problem"]
