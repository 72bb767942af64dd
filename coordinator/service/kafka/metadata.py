"""Metadata, DescribeCluster, DescribeConfigs, FindCoordinator: nodes, topics and coordinators.

Every node is the leader of all partitions to the clients that ask it: rows are read nowhere, and
the node that has answered is the one that can be reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from coordinator.core import limits
from coordinator.core.topics import has_legal_name
from coordinator.core.values.errors import ErrorCode
from coordinator.kafka import errors
from coordinator.kafka.codec import Answer, Body
from coordinator.runtime.slices import Work, in_slices
from coordinator.service.kafka import refusals
from coordinator.service.kafka.batches import answer_each
from coordinator.service.kafka.requests import Context, KafkaRequest
from coordinator.service.refusals import CallRefused
from coordinator.service.topics import TopicView, offered

KEYS_FROM = 4
"""FindCoordinator: several keys in one request (KIP-699)."""
NULL_IS_ALL_FROM = 1
"""Metadata: null asks for all topics, and an empty list for none; in 0 an empty list is all."""
GROUP = 0
"""Type of a FindCoordinator's key."""
BROKERS = 1
"""Type of a DescribeCluster's endpoints; the other one is controllers (KIP-919)."""
NOT_ASKED = -(2**31)
"""Authorised operations of whoever did not ask for them."""
TOPIC_OPERATIONS = 1 << 3 | 1 << 8 | 1 << 10
"""READ, DESCRIBE and DESCRIBE_CONFIGS, as bits of Kafka's `AclOperation`."""
CLUSTER_OPERATIONS = 1 << 8
"""DESCRIBE."""
LOOK_S = 0.2
"""Age of what is known about topics, from which on another look is worth it."""
LOOKS = 75
"""Looks at topics that are not complete, before the question is answered nevertheless."""


# --- Metadata ---


async def metadata(request: KafkaRequest) -> Answer:
    context, body = request.context, request.body
    await context.pipeline.admit(request.call)
    asks_all = body.topics is None or (not body.topics and request.version < NULL_IS_ALL_FROM)
    asked = () if asks_all else body.topics
    context.pipeline.validator.check_count("topics", len(asked), limits.PARTITIONS)
    names = list(dict.fromkeys(topic.name for topic in asked if topic.name is not None))
    view = await known_topics(request, names)
    if asks_all:
        names = await in_slices(offered(view))
    ids = [topic.topic_id for topic in asked if topic.name is None]
    may = _operations(TOPIC_OPERATIONS, getattr(body, "include_topic_authorized_operations", False))
    topics = await in_slices(_topics(names, view, context, may))
    return {
        "brokers": _brokers(context, "node_id"),
        "cluster_id": context.cluster_id,
        "controller_id": context.addresses.controller(),
        # Topics have no ids, so whoever asks by one is told that there is no such topic.
        "topics": topics + [{"error_code": errors.UNKNOWN_TOPIC_ID, "topic_id": i} for i in ids],
        "cluster_authorized_operations": _operations(
            CLUSTER_OPERATIONS, getattr(body, "include_cluster_authorized_operations", False)
        ),
    }


def refuse_metadata(_: KafkaRequest, code: int) -> Answer:
    """Answer a Metadata with an error, for which it has no field: without brokers and topics."""
    return {}


async def known_topics(request: KafkaRequest, names: Sequence[str]) -> TopicView:
    """Return the topics, after another look at them if one of these is unknown, or none is named.

    While a shard was never heard of, as at the start of a cluster, it waits for a while: a topic
    that is reported missing has consumers rebalance.
    """
    topics = request.context.topics
    view = topics.view
    if names and all(view.partitions(name) for name in names):
        return view
    view = await topics.refresh(LOOK_S)
    for _ in range(LOOKS):
        if view.is_complete or request.context.is_leaving:
            break
        await asyncio.sleep(LOOK_S)
        view = await topics.refresh(LOOK_S)
    return view


def _topics(
    names: Sequence[str], view: TopicView, context: Context, operations: int
) -> Work[list[Answer]]:
    topics: list[Answer] = []
    for name in names:
        topics.append({**_topic(name, view, context), "topic_authorized_operations": operations})
        yield
    return topics


def _topic(name: str, view: TopicView, context: Context) -> Answer:
    count = view.partitions(name)
    if not has_legal_name(name):
        return {"error_code": errors.INVALID_TOPIC_EXCEPTION, "name": name}
    if not count:
        # Clients ask again for a topic without a leader, and believe that another one is gone.
        unknown = errors.UNKNOWN_TOPIC_OR_PARTITION
        code = unknown if view.is_complete else errors.LEADER_NOT_AVAILABLE
        return {"error_code": code, "name": name}
    leader = context.addresses.own().node_id
    return {
        "name": name,
        "partitions": [
            {
                "partition_index": partition,
                "leader_id": leader,
                "replica_nodes": (leader,),
                "isr_nodes": (leader,),
            }
            for partition in range(count)
        ],
    }


# --- DescribeCluster, DescribeConfigs ---


async def describe_cluster(request: KafkaRequest) -> Answer:
    context, body = request.context, request.body
    await context.pipeline.admit(request.call)
    if getattr(body, "endpoint_type", BROKERS) != BROKERS:
        return {
            "error_code": errors.UNSUPPORTED_ENDPOINT_TYPE,
            "error_message": "there are no controllers apart from the brokers",
            "endpoint_type": body.endpoint_type,
        }
    return {
        "cluster_id": context.cluster_id,
        "controller_id": context.addresses.controller(),
        "brokers": _brokers(context, "broker_id"),
        "cluster_authorized_operations": _operations(
            CLUSTER_OPERATIONS, body.include_cluster_authorized_operations
        ),
    }


async def describe_configs(request: KafkaRequest) -> Answer:
    """Answer a DescribeConfigs: topics, brokers and groups have none of Kafka's settings."""
    await request.context.pipeline.admit(request.call)
    return _configs(request, errors.NONE)


def refuse_describe_configs(request: KafkaRequest, code: int) -> Answer:
    """Answer a DescribeConfigs with an error, resource by resource."""
    return _configs(request, code)


def _configs(request: KafkaRequest, code: int) -> Answer:
    return {
        "results": [
            {
                "error_code": code,
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
            }
            for resource in request.body.resources
        ]
    }


def _brokers(context: Context, id_field: str) -> list[Answer]:
    return [
        {id_field: broker.node_id, "host": broker.host, "port": broker.port}
        for broker in context.addresses.brokers()
    ]


def _operations(operations: int, is_wanted: bool) -> int:
    return operations if is_wanted else NOT_ASKED


# --- FindCoordinator ---


async def find_coordinator(request: KafkaRequest) -> Answer:
    """Answer a FindCoordinator: of one key before version 4, of several from then on."""
    if request.version < KEYS_FROM:
        await request.context.pipeline.admit(request.call)
        return _found(request, request.body.key)
    return {"coordinators": await answer_each(request, _keys(request.body), _found_or_refused)}


def refuse_find(request: KafkaRequest, code: int) -> Answer:
    """Answer a FindCoordinator with an error."""
    if request.version < KEYS_FROM:
        return _nowhere(code)
    return {"coordinators": [{"key": key, **_nowhere(code)} for key in _keys(request.body)]}


async def _found_or_refused(request: KafkaRequest, key: str) -> Answer:
    try:
        await request.context.pipeline.admit(request.call.about(key))
        answer = _found(request, key)
    except CallRefused as error:
        request.context.pipeline.refused(request.call, error)
        answer = _nowhere(refusals.code_of(error, request.header.api))
    return {"key": key, **answer}


def _found(request: KafkaRequest, key: str) -> Answer:
    if getattr(request.body, "key_type", GROUP) != GROUP:
        return _nowhere(
            errors.INVALID_REQUEST, "there are no transactions and no share groups here"
        )
    coordinator = request.context.pipeline.find_coordinator(key)
    if coordinator.error is not ErrorCode.NONE:
        return _nowhere(request.code(coordinator.error), coordinator.message)
    for broker in request.context.addresses.brokers():
        if broker.node_id == coordinator.node_id:
            return {"node_id": broker.node_id, "host": broker.host, "port": broker.port}
    return _nowhere(errors.COORDINATOR_NOT_AVAILABLE)


def _nowhere(code: int, message: str | None = None) -> Answer:
    return {"error_code": code, "error_message": message, "node_id": -1, "host": "", "port": -1}


def _keys(body: Body) -> tuple[str, ...]:
    keys: tuple[str, ...] = body.coordinator_keys
    return keys


def keys_of(body: Body) -> tuple[str | None, ...]:
    """The groups that a FindCoordinator asks for."""
    return (body.key,) if hasattr(body, "key") else _keys(body)
