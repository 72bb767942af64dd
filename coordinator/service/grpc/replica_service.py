"""Calls between nodes: followers fetch a shard's tail; nodes exchange topics and log ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.ids import ShardId
from coordinator.dial import CannotDial, Credentials, address_of
from coordinator.runtime.node import Node
from coordinator.runtime.slices import PART, Work, in_slices
from coordinator.runtime.standby import LeaderUnreachable
from coordinator.service.calls import Call
from coordinator.service.grpc import translate
from coordinator.service.topics import LogEnds, Partitions, ShardTopics, TopicCounts
from coordinator.shard.followers import FetchedEntries, FetchEntries, TailEntry
from coordinator.storage.coordination import NodeInfo
from coordinator.v1 import replica_pb2 as pb
from coordinator.v1 import replica_pb2_grpc, topics_pb2, topics_pb2_grpc

GRACE_S = 2.0
"""Seconds that a fetch may take beyond `max_wait_ms`, for which the leader may park it."""


class ReplicaService:
    """Leader's side: handlers of the ShardReplica service."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def Fetch(self, request: pb.FetchRequest, call: Call) -> pb.FetchResponse:
        fetch = FetchEntries(
            call_id=self._node.new_call_id(),
            follower=request.node_id,
            offset=request.offset,
            min_bytes=request.min_bytes,
            max_wait_ms=request.max_wait_ms,
        )
        fetched = await self._node.fetch(ShardId(request.shard), request.leader_epoch, fetch)
        return pb.FetchResponse(
            error_code=translate.error_code(fetched.error),
            error_message=fetched.message,
            entries=[
                pb.FetchResponse.Entry(
                    sequence=entry.sequence, base_offset=entry.base_offset, records=entry.records
                )
                for entry in fetched.entries
            ],
            end_offset=fetched.end_offset,
            is_gone=fetched.is_gone,
        )


class Peers:
    """Client side: a channel to each other node.

    Args:
        node_id: id of this node.
        credentials: TLS and token of this node; channels are reopened when their files change.
    """

    def __init__(self, node_id: int, credentials: Credentials | None = None) -> None:
        self._node_id = node_id
        self._credentials = credentials or Credentials()
        self._state = self._credentials.state()
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._outdated: list[grpc.aio.Channel] = []

    async def fetch(
        self,
        leader: NodeInfo,
        shard: ShardId,
        leader_epoch: int,
        offset: int,
        min_bytes: int,
        max_wait_ms: int,
    ) -> FetchedEntries:
        """Fetch the entries from `offset` on in a shard's log.

        Raises:
            LeaderUnreachable: no answer came.
        """
        request = pb.FetchRequest(
            node_id=self._node_id,
            shard=shard,
            leader_epoch=leader_epoch,
            offset=offset,
            min_bytes=min_bytes,
            max_wait_ms=max_wait_ms,
        )
        timeout_s = max_wait_ms / 1000 + GRACE_S
        response = await self._request(
            leader, replica_pb2_grpc.ShardReplicaStub, "Fetch", request, timeout_s
        )
        return FetchedEntries(
            ErrorCode(response.error_code),
            response.error_message,
            tuple(TailEntry(e.sequence, e.base_offset, tuple(e.records)) for e in response.entries),
            response.end_offset,
            response.is_gone,
        )

    async def fetch_topics(self, node: NodeInfo) -> dict[ShardId, ShardTopics]:
        """Ask for the topics of the shards that a node leads; see `TopicPeers`."""
        request = topics_pb2.FetchTopicsRequest()
        stub = topics_pb2_grpc.TopicReplicaStub
        response = await self._request(node, stub, "FetchTopics", request, GRACE_S)
        return await in_slices(_topics(response))

    async def fetch_log_ends(self, node: NodeInfo, wanted: Partitions) -> LogEnds:
        """Ask for the log ends that the groups of a node know; see `TopicPeers`."""
        request = topics_pb2.FetchLogEndsRequest()
        for name, partitions in wanted.items():
            request.topics.add(name=name, partitions=partitions)
        stub = topics_pb2_grpc.TopicReplicaStub
        response = await self._request(node, stub, "FetchLogEnds", request, GRACE_S)
        return {
            topic.name: {
                partition: (end, committed)
                for partition, end, committed in zip(
                    wanted[topic.name], topic.log_ends, topic.committed, strict=True
                )
            }
            for topic in response.topics
        }

    async def close(self) -> None:
        """Close all channels."""
        channels = [*self._channels.values(), *self._outdated]
        self._channels, self._outdated = {}, []
        for channel in channels:
            await channel.close()

    # Any: the stub of a service, and the messages of its method.
    async def _request(
        self, node: NodeInfo, stub: Callable[..., Any], method: str, request: Any, timeout_s: float
    ) -> Any:
        """Call a method of a node. Raises `LeaderUnreachable`."""
        try:
            call = getattr(stub(self._channel(node)), method)
            return await call(request, timeout=timeout_s, metadata=self._credentials.metadata())
        except grpc.aio.AioRpcError as error:
            raise LeaderUnreachable(error.details()) from error
        except CannotDial as error:
            raise LeaderUnreachable(str(error)) from error

    def _channel(self, leader: NodeInfo) -> grpc.aio.Channel:
        if (state := self._credentials.state()) != self._state:
            # Old channels have calls under way; they are few, and are closed by `close`.
            self._outdated += self._channels.values()
            self._state, self._channels = state, {}
        address = address_of(leader.host, leader.port)
        channel = self._channels.get(address)
        if channel is None:
            options = (("grpc.max_receive_message_length", -1),)
            channel = self._channels[address] = self._credentials.open_aio(address, options)
        return channel


def _topics(response: topics_pb2.FetchTopicsResponse) -> Work[dict[ShardId, ShardTopics]]:
    by_shard: dict[ShardId, ShardTopics] = {}
    for shard in response.shards:
        counts: dict[str, TopicCounts] = {}
        for number, topic in enumerate(shard.topics):
            counts[topic.name] = TopicCounts(
                topic.set_partitions, topic.reported_partitions, topic.groups
            )
            if not number % PART:
                yield
        by_shard[ShardId(shard.shard)] = counts
    return by_shard
