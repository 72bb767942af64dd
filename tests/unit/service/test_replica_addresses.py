"""A node dials others at the addresses that they have announced."""

from __future__ import annotations

import pytest

from coordinator.core.values.ids import ShardId
from coordinator.dial import CannotDial, Credentials
from coordinator.runtime.standby import LeaderUnreachable
from coordinator.service.grpc.replica_service import Peers
from coordinator.storage.coordination import NodeInfo


@pytest.mark.parametrize(
    ("host", "address"),
    [("node-1", "node-1:7400"), ("fd00::1", "[fd00::1]:7400"), ("[fd00::1]", "[fd00::1]:7400")],
)
async def test_an_ipv6_address_is_dialled_in_brackets(host, address, monkeypatch):
    dialled = []

    def refuse(_: Credentials, to: str, *__: object) -> None:
        dialled.append(to)
        raise CannotDial(to)

    monkeypatch.setattr(Credentials, "open_aio", refuse)
    peers = Peers(2)
    with pytest.raises(LeaderUnreachable):
        await peers.fetch(NodeInfo(1, host, 7_400, "i"), ShardId(0), 1, 0, 1, 10)
    assert dialled == [address]
