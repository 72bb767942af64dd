"""The rules of session groups: the cases of the conformance kit, on virtual time.

Each case is played by the kit's scripted members, against a node with its pipeline and services.
`tests/integration/clients/test_conformance_kit.py` plays the same over gRPC.
"""

from __future__ import annotations

import pytest

from coordinator.testing.conformance import server
from coordinator.testing.conformance.cases import play_all
from coordinator.testing.conformance.server.group import ServerUnderTest
from coordinator.testing.environment import VirtualCredentials

LEASE_MS = 2_000


@pytest.mark.parametrize("case", [*server.ALL, *server.RESTARTS], ids=lambda case: case.name)
async def test_a_rule_is_kept(case, virtual_group):
    group = virtual_group()

    async def restart() -> None:
        group.coordinator.kill()
        group.coordinator.start()
        await group.advance(0)

    await group.advance(0)
    kit = group.loop.process("the kit")
    credentials = VirtualCredentials.at(group.addresses, kit, "kit", "ipv4:10.0.0.1:5000")
    subject = ServerUnderTest(group.address, LEASE_MS, credentials, restart)
    async for result in play_all([case], subject.trial, at_a_time=1, guard_s=60.0):
        assert result.problem is None, "\n".join([result.problem, *result.transcript])
