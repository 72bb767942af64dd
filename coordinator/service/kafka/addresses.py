"""The brokers in answers to Kafka's clients: registered nodes that serve them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from coordinator.runtime.node import Node
from coordinator.settings.parsers import address


@dataclass(frozen=True, slots=True)
class Broker:
    """A node as Kafka's clients reach it."""

    node_id: int
    host: str
    port: int


class BrokerAddresses:
    """Kafka addresses of the nodes, as this node last read them.

    Args:
        kafka: HOST:PORT of this one.
    """

    def __init__(self, node: Node, kafka: str) -> None:
        self._node = node
        self._kafka = kafka

    def own(self) -> Broker:
        """This node."""
        return _broker(self._node.node_id, self._kafka)

    def brokers(self) -> list[Broker]:
        """All nodes that serve Kafka's clients, by id; this one also before it is registered."""
        brokers = {broker.node_id: broker for broker in self._registered()}
        own = self.own()
        brokers.setdefault(own.node_id, own)
        return [brokers[node_id] for node_id in sorted(brokers)]

    def controller(self) -> int:
        """Id of the controller, if Kafka's clients can reach it; else of this node."""
        controller = self._node.cluster_view().controller
        known = {broker.node_id for broker in self._registered()}
        return controller if controller in known else self._node.node_id

    def _registered(self) -> Iterator[Broker]:
        for node_id, info in self._node.cluster_view().nodes.items():
            if info.kafka:
                yield _broker(node_id, info.kafka)


def _broker(node_id: int, kafka: str) -> Broker:
    host, port = address(kafka)
    return Broker(node_id, host.strip("[]"), port)
