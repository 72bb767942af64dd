"""A client that writes all the time, to see for how long nobody answers."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from typing import Any

import grpc

from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import group_pb2_grpc
from coordinator.v1.errors_pb2 import ErrorCode

PROBE_PAUSE_S, PROBE_TIMEOUT_S = 0.002, 0.3


class CommitProbe:
    """Commits to one group again and again, wherever that is coordinated.

    Args:
        addresses: of the nodes.
        pause_s: between two commits.
    """

    def __init__(
        self, addresses: Sequence[str], group_id: str, *, pause_s: float = PROBE_PAUSE_S
    ) -> None:
        self._pause_s = pause_s
        self._channels = {address: grpc.aio.insecure_channel(address) for address in addresses}
        self._addresses = itertools.cycle(addresses)
        self._address = next(self._addresses)
        self._group_id = group_id
        self._offset = 0
        self.acknowledged: list[float] = []
        """Times of answered commits, in seconds of the monotonic clock."""

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                if await self._commit():
                    await asyncio.sleep(self._pause_s)
                    continue
                await self._find()
            except grpc.aio.AioRpcError:
                self._address = next(self._addresses)
            await asyncio.sleep(self._pause_s)

    async def close(self) -> None:
        """Hang up."""
        for channel in self._channels.values():
            await channel.close()

    async def _commit(self) -> bool:
        self._offset += 1
        partition = pb.OffsetCommitRequest.Partition(
            partition_index=0, committed_offset=self._offset
        )
        request = pb.OffsetCommitRequest(
            group_id=self._group_id,
            generation_id=-1,
            topics=[pb.OffsetCommitRequest.Topic(name="probe", partitions=[partition])],
        )
        response = await self._stub().OffsetCommit(request, timeout=PROBE_TIMEOUT_S)
        done = response.topics[0].partitions[0].error_code == ErrorCode.NONE
        if done:
            self.acknowledged.append(time.monotonic())
        return bool(done)

    async def _find(self) -> None:
        request = pb.FindCoordinatorRequest(group_id=self._group_id)
        reply = await self._stub().FindCoordinator(request, timeout=PROBE_TIMEOUT_S)
        address = f"{reply.host}:{reply.port}"
        if reply.host and address != self._address:
            self._channels.setdefault(address, grpc.aio.insecure_channel(address))
            self._address = address
        elif not reply.host:
            self._address = next(self._addresses)

    def _stub(self) -> Any:
        return group_pb2_grpc.GroupCoordinatorStub(self._channels[self._address])
