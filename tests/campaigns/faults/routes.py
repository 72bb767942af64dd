"""Routes of the workload to the coordinator of a group, found again when it moves."""

from __future__ import annotations

import random
from typing import Any

import grpc

from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import group_pb2_grpc

FIND_S = 0.5
OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 100),
    ("grpc.use_local_subchannel_pool", 1),
)


class Routes:
    """Asks any node, remembers the answer, and asks again when it was wrong.

    Args:
        addresses: with one there is nothing to ask.
    """

    def __init__(self, addresses: list[str], dice: random.Random) -> None:
        self._addresses = addresses
        self._dice = dice
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._known: dict[str, str] = {}

    async def stub(self, group: str) -> Any:
        """Stub of the node that coordinates a group, or did when it was last asked for.

        Raises:
            grpc.aio.AioRpcError: the one that was asked does not answer.
        """
        if len(self._addresses) == 1:
            return self._stub(self._addresses[0])
        if group not in self._known:
            asked = self._dice.choice(self._addresses)
            reply = await self._stub(asked).FindCoordinator(
                pb.FindCoordinatorRequest(group_id=group), timeout=FIND_S
            )
            if not reply.host:
                return self._stub(asked)  # It will say so itself.
            self._known[group] = f"{reply.host}:{reply.port}"
        return self._stub(self._known[group])

    def lost(self, group: str) -> None:
        """The node has not answered, or is not the one."""
        self._known.pop(group, None)

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()

    def _stub(self, address: str) -> Any:
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, options=OPTIONS)
        return group_pb2_grpc.GroupCoordinatorStub(self._channels[address])
