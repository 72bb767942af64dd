"""Blocking client of the TopicAdmin service: partition counts of topics."""

from __future__ import annotations

from coordinator.operator.nodes import Nodes
from coordinator.v1 import topics_pb2 as pb
from coordinator.v1 import topics_pb2_grpc

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
        request = pb.ListTopicsRequest()
        nodes = self.addresses().values()
        listed = self._first(
            nodes, lambda topic: self._request(self._topics(topic).ListTopics, request)
        )
        return list(listed.topics)

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
        return self._request(self._leader().SetTopic, request).partitions_before

    def delete_topic(self, topic: str) -> int:
        """Delete the number that was set for a topic.

        Returns:
            The number that groups still tell; 0: the topic is unknown now.
        Raises:
            TopicRefused: none is set.
        """
        request = pb.DeleteTopicRequest(topic=topic)
        return self._request(self._leader().DeleteTopic, request).reported_partitions

    def _leader(self) -> topics_pb2_grpc.TopicAdminStub:
        return self._topics(self.coordinator_of(TOPICS_GROUP))

    def _topics(self, address: str) -> topics_pb2_grpc.TopicAdminStub:
        return topics_pb2_grpc.TopicAdminStub(self.channel(address))

    def _refusal(self, request: object, message: str, code: str) -> LookupError:
        if isinstance(request, pb.ListTopicsRequest):
            return LookupError(f"The topics cannot be listed at present: {message}.")
        return TopicRefused(message, code)
