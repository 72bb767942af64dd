"""Topics over Kafka's wire, in every version: Metadata, DescribeCluster, ListOffsets, Fetch."""

from __future__ import annotations

import asyncio
import contextlib
from uuid import UUID

import pytest

from coordinator.kafka import apis, codec, errors
from coordinator.kafka.headers import read_header
from coordinator.kafka.schema import request_schema
from coordinator.runtime.fetch_waits import MOST_BYTES, FetchWaits
from coordinator.runtime.slices import at_once
from coordinator.service.calls import CallingPeer
from coordinator.service.kafka import dispatch
from coordinator.service.kafka.addresses import BrokerAddresses
from coordinator.service.kafka.authentication import NOBODY_ASKED
from coordinator.service.kafka.calls import KafkaCall
from coordinator.service.kafka.requests import ClientSoftware, Context, KafkaRequest
from coordinator.storage.coordination import NodeInfo
from tests.kit.kafka import messages
from tests.unit.service.test_topics import machine

pytestmark = pytest.mark.virtual_time
NOT_ASKED = -(2**31)
KAFKA = "127.0.0.1:9092"


def versions(api):
    return pytest.mark.parametrize("version", range(api.low, api.high + 1))


class Client:
    """Requests to one node, as bytes and back."""

    def __init__(self, node) -> None:
        self.node = node
        self.context = Context(
            node.pipeline, BrokerAddresses(node.node, KAFKA), node.topics, FetchWaits()
        )

    async def ask(self, api, version, **values):
        data = messages.request(api, version, 7, **values)
        header = read_header(data, api, version)
        body = codec.decode(header, data)
        groups = dispatch.HANDLERS[api].groups(body)
        call = KafkaCall(dispatch.kind_of(api), CallingPeer("127.0.0.1:1", "/127.0.0.1"), groups)
        request = KafkaRequest(header, body, call, self.context, ClientSoftware(), NOBODY_ASKED)
        answer = await dispatch.answer(request)
        frame = at_once(codec.encode(header, answer))
        correlation_id, message = messages.answer(api, version, frame[4:])
        assert correlation_id == 7
        return message


@contextlib.asynccontextmanager
async def serving(**topics):
    async with machine() as [node]:
        for name, count in topics.items():
            await node.set(name, count)
        client = Client(node)
        yield client
        client.context.waits.close()


def named(api, version, *names):
    return [{"name": name} for name in names]


# --- Metadata ---


@versions(apis.METADATA)
async def test_metadata_names_nodes_and_topics(version):
    async with serving(orders=3) as client:
        reply = await client.ask(
            apis.METADATA, version, topics=named(apis.METADATA, version, "orders")
        )
        assert [(b.node_id, b.host, b.port) for b in reply.brokers] == [(1, "127.0.0.1", 9092)]
        (topic,) = reply.topics
        assert (topic.name, int(topic.error_code)) == ("orders", 0)
        assert [(p.partition_index, p.leader_id) for p in topic.partitions] == [
            (0, 1), (1, 1), (2, 1),
        ]  # fmt: skip
        assert {(p.replica_nodes, p.isr_nodes) for p in topic.partitions} == {((1,), (1,))}
        if version >= 1:
            assert reply.controller_id == 1
        if version >= 2:
            assert reply.cluster_id == "coordinator"
        if version >= 8:
            assert topic.topic_authorized_operations == NOT_ASKED
        if 8 <= version <= 10:
            assert reply.cluster_authorized_operations == NOT_ASKED
        if version >= 10:
            assert topic.topic_id in (None, UUID(int=0))


@versions(apis.METADATA)
async def test_metadata_of_all_topics_is_asked_for_with_null_and_in_the_first_version_with_nothing(
    version,
):
    async with serving(a=1, b=2) as client:
        await client.node.commit("g", ("told", 4), ("not legal", 0))
        await asyncio.sleep(0.3)
        everything = {"a": 1, "b": 2, "told": 5}
        empty = await client.ask(apis.METADATA, version, topics=[])
        counts = {topic.name: len(topic.partitions) for topic in empty.topics}
        assert counts == (everything if version == 0 else {})
        if version >= 1:
            reply = await client.ask(apis.METADATA, version, topics=None)
            counts = {topic.name: len(topic.partitions) for topic in reply.topics}
            assert counts == everything


@versions(apis.METADATA)
async def test_an_unknown_topic_is_unknown_and_stays_so(version):
    async with serving(a=1) as client:
        asked = named(apis.METADATA, version, "nix", "a b", "nix")
        values = {"allow_auto_topic_creation": True} if version >= 4 else {}
        reply = await client.ask(apis.METADATA, version, topics=asked, **values)
        assert [(t.name, int(t.error_code), t.partitions) for t in reply.topics] == [
            ("nix", errors.UNKNOWN_TOPIC_OR_PARTITION, ()),
            ("a b", errors.INVALID_TOPIC_EXCEPTION, ()),
        ]
        assert list(await client.node.counts()) == ["a"]


@pytest.mark.parametrize("version", [10, 11, 12])
async def test_a_topic_that_is_asked_for_by_its_id_is_unknown(version):
    async with serving(a=1) as client:
        asked = [{"topic_id": UUID(int=5), "name": None}]
        reply = await client.ask(apis.METADATA, version, topics=asked)
        ((topic),) = reply.topics
        assert (int(topic.error_code), topic.topic_id) == (errors.UNKNOWN_TOPIC_ID, UUID(int=5))


@pytest.mark.parametrize("version", [8, 9, 10, 11, 12])
async def test_authorised_operations_are_told_to_those_who_ask(version):
    async with serving(a=1) as client:
        values = {"include_topic_authorized_operations": True}
        if version <= 10:
            values["include_cluster_authorized_operations"] = True
        reply = await client.ask(
            apis.METADATA, version, topics=named(apis.METADATA, version, "a"), **values
        )
        assert reply.topics[0].topic_authorized_operations == 1 << 3 | 1 << 8 | 1 << 10
        if version <= 10:
            assert reply.cluster_authorized_operations == 1 << 8


async def test_a_topic_that_was_just_set_is_known_at_once():
    async with serving() as client:
        await client.ask(apis.METADATA, 12, topics=named(apis.METADATA, 12, "a"))
        await client.node.set("a", 2)
        await asyncio.sleep(0.3)
        reply = await client.ask(apis.METADATA, 12, topics=named(apis.METADATA, 12, "a"))
        assert len(reply.topics[0].partitions) == 2


async def test_no_topic_is_called_unknown_while_a_shard_was_never_heard_of():
    async with machine(nodes=2) as nodes:
        leader = next(node for node in nodes if node.node.is_loaded("__coordinator_topics"))
        other = next(node for node in nodes if node is not leader)
        await leader.set("a", 2)
        other.topics._peers.silent = {leader.node.node_id}
        client = Client(other)
        began = asyncio.get_running_loop().time()
        reply = await client.ask(apis.METADATA, 12, topics=named(apis.METADATA, 12, "a"))
        assert int(reply.topics[0].error_code) == errors.LEADER_NOT_AVAILABLE
        assert asyncio.get_running_loop().time() - began >= 4
        asking = asyncio.ensure_future(
            client.ask(apis.METADATA, 12, topics=named(apis.METADATA, 12, "a"))
        )
        await asyncio.sleep(1)
        other.topics._peers.silent = set()
        assert len((await asking).topics[0].partitions) == 2


async def test_no_partition_is_called_unknown_while_a_shard_was_never_heard_of():
    async with machine(nodes=2) as nodes:
        leader = next(node for node in nodes if node.node.is_loaded("__coordinator_topics"))
        other = next(node for node in nodes if node is not leader)
        other.topics._peers.silent = {leader.node.node_id}
        client = Client(other)
        partitions = [{"partition_index": 0, "timestamp": -1}]
        topics = [{"name": "a", "partitions": partitions}]
        reply = await client.ask(apis.LIST_OFFSETS, 9, topics=topics)
        assert offsets_of(reply) == {("a", 0): (errors.NOT_LEADER_OR_FOLLOWER, -1, -1)}
        reply = await client.ask(apis.FETCH, 12, **fetching(12, (0, 0), topic="a"))
        ((partition,),) = [response.partitions for response in reply.responses]
        assert int(partition.error_code) == errors.NOT_LEADER_OR_FOLLOWER


async def test_more_topics_than_a_call_may_name_are_refused():
    async with serving() as client:
        asked = named(apis.METADATA, 12, *(f"t{n}" for n in range(10_001)))
        reply = await client.ask(apis.METADATA, 12, topics=asked)
        assert reply.topics == ()
        assert client.node.pipeline.calls["Metadata", "INVALID_ARGUMENT"] == 1


# --- Nodes ---


class View:
    """A node in a cluster of which nothing but the view is looked at."""

    def __init__(self, node_id, controller, *nodes) -> None:
        self.node_id = node_id
        self._view = type(
            "V", (), {"nodes": {n.node_id: n for n in nodes}, "controller": controller}
        )

    def cluster_view(self):
        return self._view


def test_brokers_are_the_nodes_that_serve_kafkas_clients():
    nodes = [
        NodeInfo(7, "h7", 7400, "i", kafka="h7:9092"),
        NodeInfo(3, "h3", 7400, "i", kafka="[::1]:9093"),
        NodeInfo(5, "h5", 7400, "i"),
    ]
    told = BrokerAddresses(View(7, 3, *nodes), "h7:9092")
    assert [(b.node_id, b.host, b.port) for b in told.brokers()] == [
        (3, "::1", 9093),
        (7, "h7", 9092),
    ]
    assert told.controller() == 3
    assert BrokerAddresses(View(7, 5, *nodes), "h7:9092").controller() == 7, (
        "5 serves no Kafka clients"
    )
    early = BrokerAddresses(View(9, -1), "h9:9092")
    assert [(b.node_id, b.host, b.port) for b in early.brokers()] == [(9, "h9", 9092)]


def test_a_registration_without_a_kafka_address_is_written_as_before():
    plain = NodeInfo(7, "h7", 7400, "i")
    assert b"kafka" not in plain.to_bytes()
    assert NodeInfo.from_bytes(plain.to_bytes()) == plain
    told = NodeInfo(7, "h7", 7400, "i", kafka="h7:9092")
    assert NodeInfo.from_bytes(told.to_bytes()) == told


@versions(apis.DESCRIBE_CLUSTER)
async def test_describe_cluster_names_nodes_and_controller(version):
    async with serving() as client:
        reply = await client.ask(
            apis.DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=False
        )
        assert [(b.broker_id, b.host, b.port) for b in reply.brokers] == [(1, "127.0.0.1", 9092)]
        assert (reply.cluster_id, reply.controller_id) == ("coordinator", 1)
        assert reply.cluster_authorized_operations == NOT_ASKED
        reply = await client.ask(
            apis.DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=True
        )
        assert reply.cluster_authorized_operations == 1 << 8
        if version >= 1:
            reply = await client.ask(apis.DESCRIBE_CLUSTER, version, endpoint_type=2)
            assert int(reply.error_code) == errors.UNSUPPORTED_ENDPOINT_TYPE
            assert reply.brokers == ()


@versions(apis.DESCRIBE_CONFIGS)
async def test_resources_have_no_configs(version):
    async with serving() as client:
        asked = [{"resource_type": 2, "resource_name": "orders", "configuration_keys": None}]
        reply = await client.ask(apis.DESCRIBE_CONFIGS, version, resources=asked)
        ((one),) = reply.results
        assert (int(one.error_code), one.resource_type, one.resource_name, one.configs) == (
            0, 2, "orders", (),
        )  # fmt: skip


# --- ListOffsets ---


def offsets_of(found):
    return {
        (topic.name, p.partition_index): (int(p.error_code), p.offset, p.timestamp)
        for topic in found.topics
        for p in topic.partitions
    }


@versions(apis.LIST_OFFSETS)
async def test_offsets_are_those_that_members_report(version):
    async with serving(t=3) as client:
        member = await client.node.consumer("g", "t", 3)
        node = client.node
        from coordinator.core.values import requests as c

        await node.ask(
            c.ReportLogEnds(
                call_id=node.node.new_call_id(), group_id="g", generation=1,
                member_id=member, ends=(("t", 0, 100),),
            )
        )  # fmt: skip
        await node.commit("h", ("t", 0), ("t", 1), offset=70)
        node.topics.note_change()
        await node.topics.refresh()

        async def ask(timestamp):
            partitions = [{"partition_index": n, "timestamp": timestamp} for n in (0, 1, 2, 3, -1)]
            topics = [{"name": "t", "partitions": partitions}]
            return offsets_of(await client.ask(apis.LIST_OFFSETS, version, topics=topics))

        unknown = (errors.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
        no_such = {("t", 3): unknown, ("t", -1): unknown}
        assert await ask(-1) == {
            ("t", 0): (0, 100, -1), ("t", 1): (0, 70, -1), ("t", 2): (0, 0, -1), **no_such,
        }  # fmt: skip
        assert await ask(-2) == {("t", n): (0, 0, -1) for n in range(3)} | no_such
        for other in (-3, -4, -5, 0, 1_700_000_000_000):
            assert await ask(other) == {("t", n): (0, -1, -1) for n in range(3)} | no_such


# --- Fetch ---


def fetching(version, *partitions, topic="t", wait_ms=500, **more):
    return {
        "max_wait": wait_ms, "min_bytes": 1, "session_epoch": 0 if version >= 7 else -1,
        "topics": [
            {
                "topic": topic,
                "partitions": [{"partition": n, "fetch_offset": at} for n, at in partitions],
            }
        ],
        **more,
    }  # fmt: skip


@versions(apis.FETCH)
async def test_a_fetch_waits_its_time_and_finds_nothing(version):
    async with serving(t=2) as client:
        loop = asyncio.get_running_loop()
        began = loop.time()
        reply = await client.ask(apis.FETCH, version, **fetching(version, (0, 42), (1, 0)))
        assert loop.time() - began == pytest.approx(0.5, abs=0.01)
        if version >= 7:
            assert (int(reply.error_code), reply.session_id) == (0, 0)
        ((topic),) = reply.responses
        assert topic.topic == "t"
        assert [
            (
                p.partition_index,
                int(p.error_code),
                p.high_watermark,
                p.last_stable_offset,
                p.records,
            )
            for p in topic.partitions
        ] == [(0, 0, 42, 42, b""), (1, 0, 0, 0, b"")]
        if version >= 5:
            assert {p.log_start_offset for p in topic.partitions} == {0}


@versions(apis.FETCH)
async def test_a_fetch_of_what_there_is_not_is_answered_at_once(version):
    async with serving(t=2) as client:
        began = asyncio.get_running_loop().time()
        for partitions, topic in (((0, 0), (2, 0)), "t"), (((0, 0),), "nix"):
            reply = await client.ask(
                apis.FETCH, version, **fetching(version, *partitions, topic=topic)
            )
            last = reply.responses[0].partitions[-1]
            assert int(last.error_code) == errors.UNKNOWN_TOPIC_OR_PARTITION
        reply = await client.ask(apis.FETCH, version, **fetching(version, (0, 0), wait_ms=0))
        assert int(reply.responses[0].partitions[0].error_code) == 0
        more = fetching(version, (0, 0)) | {"min_bytes": 0}
        await client.ask(apis.FETCH, version, **more)
        assert asyncio.get_running_loop().time() == began


@pytest.mark.parametrize("version", range(7, 13))
async def test_a_fetch_session_that_was_never_begun_is_unknown(version):
    async with serving(t=1) as client:
        values = fetching(version, (0, 0)) | {"session_id": 5, "session_epoch": 1}
        reply = await client.ask(apis.FETCH, version, **values)
        assert (int(reply.error_code), reply.session_id, reply.responses) == (
            errors.FETCH_SESSION_ID_NOT_FOUND, 0, (),
        )  # fmt: skip


async def test_a_thousand_fetches_wait_on_one_handle_and_leave_nothing():
    loop = asyncio.get_running_loop()
    handles = []
    plain = loop.call_later
    waits = FetchWaits()
    loop.call_later = lambda *args, **more: handles.append(args) or plain(*args, **more)
    try:
        tasks = [asyncio.ensure_future(waits.wait(30_000)) for _ in range(1_000)]
        await asyncio.sleep(1)
        assert waits.count == 1_000
        handles.clear()
        await asyncio.sleep(10)
        assert len(handles) == 1, "only the sleep of this test"
    finally:
        del loop.call_later
    for task in tasks[:400]:
        task.cancel()
    await asyncio.gather(*tasks[:400], return_exceptions=True)
    assert waits.count == 600
    await asyncio.sleep(20)
    assert waits.count == 0
    assert all(task.done() for task in tasks)


async def test_fetches_that_wait_are_bounded_and_the_one_of_longest_ends():
    waits = FetchWaits()
    tasks = []
    for _ in range(6):
        tasks.append(asyncio.ensure_future(waits.wait(2**31 - 1, MOST_BYTES // 4)))
        await asyncio.sleep(0.1)
    small = asyncio.ensure_future(waits.wait(2**31 - 1, 100))
    await asyncio.sleep(0.1)
    assert [task.done() for task in tasks] == [True] * 3 + [False] * 3
    assert (waits.count, small.done()) == (4, False)
    waits.close()
    await asyncio.gather(*tasks, small)
    assert waits.count == 0


async def test_fetches_end_when_the_node_stops():
    waits = FetchWaits()
    task = asyncio.ensure_future(waits.wait(300_000))
    await asyncio.sleep(0.1)
    began = asyncio.get_running_loop().time()
    waits.close()
    await task
    await waits.wait(300_000)
    assert asyncio.get_running_loop().time() == began
    assert waits.count == 0


def test_every_handler_is_of_an_api_that_kio_knows():
    for api in dispatch.HANDLERS:
        assert request_schema(api.key, api.high)
