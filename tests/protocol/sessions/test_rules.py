"""The rules of session groups, on virtual time: of a node with its pipeline and services, and of a
member. `tests/integration/clients/test_session_rules.py` plays those of the node over gRPC.
"""

from __future__ import annotations

import pytest

from coordinator.client.member.session.leases import Lease
from coordinator.core.sessions import lease
from coordinator.testing import VirtualGroup
from coordinator.testing.environment import VirtualCredentials
from tests.protocol.sessions import coordinator_rules, member_rules
from tests.protocol.sessions.coordinator_rules.group import GroupTrial, ServerUnderTest
from tests.protocol.sessions.member_rules.coordinator import MemberTrial
from tests.protocol.sessions.rules import Case
from tests.protocol.sessions.trial import Failed

LEASE_MS = 2_000
BY_NAME = {case.name: case for case in [*coordinator_rules.ALL, *member_rules.ALL]}


def name_of(case: Case) -> str:
    return case.name


async def play_at_coordinator(case: Case[GroupTrial], group: VirtualGroup) -> None:
    """Play a case against the coordinator of a virtual group."""

    async def restart() -> None:
        group.coordinator.kill()
        group.coordinator.start()
        await group.advance(0)

    await group.advance(0)
    process = group.loop.process("the case")
    credentials = VirtualCredentials.at(group.addresses, process, "case", "ipv4:10.0.0.1:5000")
    subject = ServerUnderTest(group.address, LEASE_MS, credentials, restart)
    async with subject.trial(case.name) as trial:
        await case.play(trial)


async def play_at_member(case: Case[MemberTrial], group: VirtualGroup) -> None:
    """Play a case against a member of a virtual group."""
    async with MemberTrial.of(group, LEASE_MS) as trial:
        await case.play(trial)


@pytest.mark.parametrize("case", [*coordinator_rules.ALL, *coordinator_rules.RESTARTS], ids=name_of)
async def test_the_coordinator_keeps_a_rule(case, virtual_group):
    await play_at_coordinator(case, virtual_group(shards=1))


@pytest.mark.parametrize("case", member_rules.ALL, ids=name_of)
async def test_a_member_keeps_a_rule(case, virtual_group):
    await play_at_member(case, virtual_group(shards=1))


async def test_a_coordinator_that_breaks_a_rule_is_found(virtual_group, monkeypatch):
    """A rule is broken on purpose: heartbeats whose number went back renew leases."""
    kept = lease.heartbeat

    def careless(group, member, beat, *rest):
        member.number = min(member.number, beat.number - 1)
        kept(group, member, beat, *rest)

    monkeypatch.setattr(lease, "heartbeat", careless)
    with pytest.raises(Failed, match="the other gets them"):
        await play_at_coordinator(BY_NAME["heartbeat-number-goes-back"], virtual_group(shards=1))


async def test_a_member_that_breaks_a_rule_is_found(virtual_group, monkeypatch):
    """A rule is broken on purpose: it counts three leases."""
    monkeypatch.setattr(Lease, "suspended_ms", property(lambda lease: 3 * lease.length_ms))
    with pytest.raises(Failed, match="no effect may leave"):
        await play_at_member(BY_NAME["suspends-without-a-stream"], virtual_group(shards=1))
