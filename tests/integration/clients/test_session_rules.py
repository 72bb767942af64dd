"""The rules of session groups (`tests/protocol/sessions`) over gRPC, and over a log on a disk."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.dial import Credentials
from tests.kit.serving import Process, free_port, running
from tests.protocol.sessions import coordinator_rules
from tests.protocol.sessions.coordinator_rules.group import ServerUnderTest

LEASE_MS = 6_000
"""Members miss it only if the machine stands still for more than four seconds."""


async def no_restart() -> None:
    raise AssertionError("no case of these restarts the server")


async def test_every_rule_is_kept_over_grpc():
    async with running() as server:
        subject = ServerUnderTest(server.address, LEASE_MS, Credentials(), no_restart)

        async def play(case) -> None:
            async with subject.trial(case.name) as trial:
                await case.play(trial)

        async with asyncio.TaskGroup() as group:
            for case in coordinator_rules.ALL:
                group.create_task(play(case), name=case.name)


OF_A_DISK = ("restart-keeps-holdings", "restart-raises-tokens")
"""Cases that a log on a disk could fail."""


@pytest.mark.parametrize("name", OF_A_DISK)
async def test_holdings_outlive_a_restart(name, tmp_path):
    flags = ("--data-dir", str(tmp_path / "data"), "--listen", f"127.0.0.1:{free_port()}")
    servers = [await asyncio.to_thread(Process, *flags)]

    async def restart() -> None:
        await asyncio.to_thread(servers[-1].kill)
        servers.append(await asyncio.to_thread(Process, *flags))

    [case] = [case for case in coordinator_rules.RESTARTS if case.name == name]
    try:
        subject = ServerUnderTest(servers[0].address, 30_000, Credentials(), restart)
        async with subject.trial(case.name) as trial:
            await case.play(trial)
    finally:
        await asyncio.to_thread(servers[-1].kill)
    assert len(servers) == 2
