"""The rules of session groups: the cases of the conformance kit, on virtual time.

Each case is played by the kit's scripted members, against a node with its pipeline and services.
`tests/integration/clients/test_conformance_kit.py` plays the same over gRPC.
"""

from __future__ import annotations

import pytest

from coordinator.core.sessions import lease
from coordinator.testing import VirtualGroup
from coordinator.testing.conformance import server
from coordinator.testing.conformance.cases import Case, Result, matching, play_all
from coordinator.testing.conformance.server.group import GroupTrial, ServerUnderTest
from coordinator.testing.environment import VirtualCredentials

LEASE_MS = 2_000


async def played(case: Case[GroupTrial], group: VirtualGroup) -> Result:
    """Play a case against the coordinator of a virtual group."""

    async def restart() -> None:
        group.coordinator.kill()
        group.coordinator.start()
        await group.advance(0)

    await group.advance(0)
    kit = group.loop.process("the kit")
    credentials = VirtualCredentials.at(group.addresses, kit, "kit", "ipv4:10.0.0.1:5000")
    subject = ServerUnderTest(group.address, LEASE_MS, credentials, restart)
    [result] = [each async for each in play_all([case], subject.trial, at_a_time=1, guard_s=60.0)]
    return result


@pytest.mark.parametrize("case", [*server.ALL, *server.RESTARTS], ids=lambda case: case.name)
async def test_a_rule_is_kept(case, virtual_group):
    result = await played(case, virtual_group(shards=1))
    assert result.problem is None, "\n".join([result.problem, *result.transcript])


async def test_a_server_that_breaks_a_rule_is_found(virtual_group, monkeypatch):
    """A rule is broken on purpose: heartbeats whose number went back renew leases."""
    kept = lease.heartbeat

    def careless(group, member, beat, *rest):
        member.number = min(member.number, beat.number - 1)
        kept(group, member, beat, *rest)

    monkeypatch.setattr(lease, "heartbeat", careless)
    [case] = matching(server.ALL, ["heartbeat-number-goes-back"])
    result = await played(case, virtual_group(shards=1))
    assert "the other gets them" in str(result.problem)
