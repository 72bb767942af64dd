"""Kafka's own clients on several nodes: coordinators, one set of topics, moves of groups."""

from __future__ import annotations

import contextlib
import os
import signal
import threading

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("kio")

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from coordinator.assignors import TopicPartition as OurPartition
from coordinator.dial import Credentials
from coordinator.operator.admin import GroupAdmin
from coordinator.operator.nodes import Nodes
from coordinator.operator.topics import TopicAdmin
from coordinator.security.tokens import line_for
from coordinator.v1 import topics_pb2, topics_pb2_grpc
from tests.campaigns.faults.stores import (
    EtcdCluster,
    ZooKeeperCluster,
    missing_etcd,
    missing_zookeeper,
)
from tests.integration.node.test_nodes_of_one_machine import machine
from tests.integration.waiting import wait_until
from tests.kit.patience import HANG_S
from tests.kit.serving import NODES_APART, free_port

STORES = {"etcd": (EtcdCluster, missing_etcd), "zookeeper": (ZooKeeperCluster, missing_zookeeper)}
# A node that restarts on a busy machine must not outlast the sessions.
QUIET = {"log_level": 0, "session.timeout.ms": 240_000, "heartbeat.interval.ms": 300}


def metadata(kafka: str) -> tuple[dict[int, int], dict[str, int]]:
    """Ports by broker, and partitions by topic, as a client is told by one node."""
    told = AdminClient({"bootstrap.servers": kafka, "log_level": 0}).list_topics(timeout=HANG_S)
    brokers = {broker.id: broker.port for broker in told.brokers.values()}
    return brokers, {name: len(topic.partitions) for name, topic in told.topics.items()}


def latest(kafka: str, topic: str) -> int:
    """Latest offset of a topic's first partition, as a client is told by one node."""
    one = TopicPartition(topic, 0)
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})
    return admin.list_offsets({one: OffsetSpec.latest()})[one].result(HANG_S).offset


class Polling:
    """A consumer that polls in a thread of its own, as applications do."""

    def __init__(self, kafka: str, group: str, topic: str) -> None:
        self.consumer = Consumer({"bootstrap.servers": kafka, "group.id": group, **QUIET})
        self.rebalances = self.wanted = self.committed = 0
        self.owned: set[int] = set()
        self._stopping = threading.Event()
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)
        self._topic = topic
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _poll(self) -> None:
        while not self._stopping.is_set():
            self.consumer.poll(0.1)
            if self.wanted > self.committed and self.owned:
                self._commit(self.wanted)
        self.consumer.close()

    def _commit(self, offset: int) -> None:
        offsets = [TopicPartition(self._topic, n, offset) for n in self.owned]
        with contextlib.suppress(KafkaException):  # Tried again after the next poll.
            done = self.consumer.commit(offsets=offsets, asynchronous=False)
            if all(p.error is None for p in done):
                self.committed = offset

    def _assigned(self, _, partitions) -> None:
        self.rebalances += 1
        self.owned = {p.partition for p in partitions}

    def _revoked(self, *_) -> None:
        self.owned = set()

    def commits(self, offset: int) -> None:
        """Have an offset committed for all partitions, and wait for it."""
        self.wanted = offset
        wait_until(lambda: self.committed == offset)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()


@contextlib.contextmanager
def polling(*those: tuple[str, str, str]):
    some = [Polling(*item) for item in those]
    try:
        yield some
    finally:
        for sample in some:
            sample.close()


def groups_by_home(addresses: list[str]) -> dict[str, str]:
    """A group that each node leads, by the node's address."""
    homes: dict[str, str] = {}
    with Nodes(addresses[0]) as nodes:
        for number in range(100):
            homes.setdefault(nodes.coordinator_of(f"group-{number}"), f"group-{number}")
    assert set(homes) == set(addresses)
    return homes


async def test_on_one_machine_every_node_names_all_and_leads_clients_to_their_groups(tmp_path):
    port = free_port(NODES_APART)
    kafka = [f"127.0.0.1:{port + n}" for n in NODES_APART]
    brokers = {1: port, 2: port + 10}
    async with machine(tmp_path, "--kafka-listen", kafka[0]) as server:
        with TopicAdmin(server.addresses[1]) as admin:
            admin.set_topic("orders", 4)
        for address in kafka:
            wait_until(lambda: metadata(address) == (brokers, {"orders": 4}))  # noqa: B023
        homes = list(groups_by_home(server.addresses).values())
        with polling(*((kafka[0], group, "orders") for group in homes for _ in range(2))) as some:
            wait_until(lambda: [len(sample.owned) for sample in some] == [2, 2, 2, 2])
            for sample in some:
                sample.commits(7)
            before = [sample.rebalances for sample in some]
            os.kill(server.children[0], signal.SIGKILL)
            await server.logged("serving")
            for sample in some:
                sample.commits(8)
            assert [sample.rebalances for sample in some] == before, "the generations went on"
        for address in kafka:
            wait_until(lambda: metadata(address) == (brokers, {"orders": 4}))  # noqa: B023
        with GroupAdmin(server.addresses[0]) as admin:
            admin.commit("lone", {OurPartition("told", 0): 5})
        for address in kafka:  # One of the nodes has to ask the other.
            wait_until(lambda: metadata(address)[1].get("told") == 1)  # noqa: B023
        for address in kafka:  # Once both know it: a client may ask either for the leader.
            assert latest(address, "told") == 5


async def test_nodes_of_one_machine_ask_each_other_with_their_token(tmp_path):
    (tmp_path / "tokens").write_text(line_for("node", "secret") + "\n")
    (tmp_path / "token").write_text("secret")
    guarded = ("--auth-tokens-file", str(tmp_path / "tokens"))
    peer = ("--auth-peer-token-file", str(tmp_path / "token"))
    credentials = Credentials(token_file=str(tmp_path / "token"), insecure=True)
    port = free_port(NODES_APART)
    kafka = ("--kafka-listen", f"127.0.0.1:{port}")
    async with machine(tmp_path / "data", *guarded, *peer, *kafka) as server:
        with TopicAdmin(server.addresses[0], credentials=credentials) as admin:
            admin.set_topic("orders", 4)
        for address in server.addresses:
            with TopicAdmin(address, credentials=credentials) as admin:
                assert [(t.name, t.partitions) for t in _of_one(admin, address)] == [("orders", 4)]


@pytest.mark.parametrize("kind", STORES)
async def test_clients_follow_a_group_to_another_node(tmp_path, kind):
    store, missing = STORES[kind]
    if reason := missing():
        pytest.skip(reason)
    port = free_port(NODES_APART)
    kafka = [f"127.0.0.1:{port + n}" for n in NODES_APART]
    with store() as cluster:
        name = f"{kind}://{','.join(cluster.endpoints)}/test"
        flags = ("--store", name, "--node-id", "7", "--kafka-listen", kafka[0])
        async with machine(tmp_path, *flags) as server:
            with TopicAdmin(server.addresses[0]) as admin:
                wait_until(lambda: len(admin.addresses()) == 2)
                wait_until(lambda: _is_set(admin))
            brokers = {7: port, 8: port + 10}
            for address in kafka:
                wait_until(lambda: metadata(address) == (brokers, {"orders": 4}))  # noqa: B023
            wait_until(lambda: _homes(server.addresses) == 2)
            group = groups_by_home(server.addresses)[server.addresses[0]]
            those = [(",".join(kafka), group, "orders")] * 2
            with polling(*those) as some:
                wait_until(lambda: [len(sample.owned) for sample in some] == [2, 2])
                for sample in some:
                    sample.commits(7)
                before = [sample.rebalances for sample in some]
                # Killed at once, it may be back before its session ends, and keep the group.
                os.kill(server.children[0], signal.SIGSTOP)
                with Nodes(server.addresses[1]) as nodes:
                    wait_until(lambda: _coordinator(nodes, group) == server.addresses[1])
                os.kill(server.children[0], signal.SIGKILL)
                for sample in some:
                    sample.commits(8)
                assert sorted(n for sample in some for n in sample.owned) == [0, 1, 2, 3]
                assert [sample.rebalances for sample in some] == before, "the generation went on"
                await server.logged("serving")
                for address in kafka:
                    wait_until(lambda: metadata(address) == (brokers, {"orders": 4}))  # noqa: B023


def _of_one(admin: TopicAdmin, address: str):
    """Topics that one node lists, whichever is the first of them."""
    stub = topics_pb2_grpc.TopicAdminStub(admin.channel(address))
    found = stub.ListTopics(topics_pb2.ListTopicsRequest(), timeout=HANG_S)
    assert found.error_code == 0, found.error_message
    return found.topics


def _is_set(admin: TopicAdmin) -> bool:
    with contextlib.suppress(LookupError):
        admin.set_topic("orders", 4)
        return True
    return False


def _coordinator(nodes: Nodes, group: str) -> str:
    with contextlib.suppress(LookupError):
        return nodes.coordinator_of(group)
    return ""


def _homes(addresses: list[str]) -> int:
    with Nodes(addresses[0]) as nodes, contextlib.suppress(LookupError):
        return len({nodes.coordinator_of(f"group-{n}") for n in range(100)})
    return 0
