"""Blocking client of the TopicAdmin service: partition counts of topics."""

from __future__ import annotations

from typing import Any

import grpc

from coordinator.client.transport.wire import code_name
from coordinator.operator.nodes import TIMEOUT_S, Nodes
from coordinator.v1 import topics_pb2 as pb
from coordinator.v1 import topics_pb2_grpc
from coordinator.v1.errors_pb2 import ErrorCode

TOPICS_GROUP = "__coordinator_topics"
"""Reserved group whose coordinator keeps the counts."""

Topic = pb.ListTopicsResponse.Topic


class TopicRefused(LookupError):
    """A change of a topic was refused. `code` is the name of the error code."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class TopicAdmin(Nodes):
    """Queries and changes of topics, blocking. Use it as a context manager.

    Every method raises grpc.RpcError when the coordinator cannot be reached, and LookupError when
    it refuses.
    """

    def list_topics(self) -> list[Topic]:
        """Topics that operators have set or groups know, sorted by name.

        Every node knows all of them; the first one that answers is asked.
        """
        response = self._listed()
        if response.error_code != ErrorCode.NONE:
            raise LookupError(f"The topics cannot be listed at present: {response.error_message}.")
        return list(response.topics)

    def set_topic(self, topic: str, partitions: int, *, may_shrink: bool = False) -> int:
        """Set the number of partitions of a topic.

        Args:
            may_shrink: the number may be smaller than the one in force.
        Returns:
            The number in force before; 0: the topic was unknown.
        Raises:
            TopicRefused: the name or the number is not allowed.
        """
        request = pb.SetTopicRequest(topic=topic, partitions=partitions, may_shrink=may_shrink)
        response = self._leader().SetTopic(request, timeout=TIMEOUT_S)
        _judge(response)
        return int(response.partitions_before)

    def delete_topic(self, topic: str) -> int:
        """Delete the number that was set for a topic.

        Returns:
            The number that groups still tell; 0: the topic is unknown now.
        Raises:
            TopicRefused: none is set.
        """
        response = self._leader().DeleteTopic(pb.DeleteTopicRequest(topic=topic), timeout=TIMEOUT_S)
        _judge(response)
        return int(response.told_partitions)

    def _listed(self) -> pb.ListTopicsResponse:
        *others, last = self.addresses().values()
        for address in others:
            try:
                return self._list(address)
            except grpc.RpcError:
                continue
        return self._list(last)

    def _list(self, address: str) -> pb.ListTopicsResponse:
        stub = topics_pb2_grpc.TopicAdminStub(self.channel(address))
        return stub.ListTopics(pb.ListTopicsRequest(), timeout=TIMEOUT_S)

    def _leader(self) -> topics_pb2_grpc.TopicAdminStub:
        return topics_pb2_grpc.TopicAdminStub(self.channel(self.coordinator_of(TOPICS_GROUP)))


def _judge(response: Any) -> None:  # Any: a response with error code and message.
    if response.error_code != ErrorCode.NONE:
        code = code_name(response.error_code)
        raise TopicRefused(response.error_message or code, code)
