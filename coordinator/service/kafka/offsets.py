"""OffsetCommit, OffsetFetch, OffsetDelete: requests to commands, and replies to answers.

What is wrong with one partition is that partition's error; the others are committed.

Source: Kafka's `OffsetMetadataManager`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any

from coordinator.core import limits
from coordinator.core.values import requests as c
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.ids import NO_LEADER_EPOCH, NO_OFFSET, CallId, TopicPartition
from coordinator.core.values.records import OffsetCommitted
from coordinator.core.values.replies import (
    CommitReply,
    FetchedOffset,
    FetchReply,
    OffsetDeleteReply,
)
from coordinator.kafka.codec import Answer, Body
from coordinator.runtime.slices import PART, Work, in_slices
from coordinator.service.kafka import refusals
from coordinator.service.kafka.batches import answer_each
from coordinator.service.kafka.requests import KafkaRequest, reply_to
from coordinator.service.refusals import CallRefused, too_long

GROUP_ERROR_FROM = 2
"""OffsetFetch: an error of the group has a field of its own; before, each partition has it."""
GROUPS_FROM = 8
"""OffsetFetch: several groups in one request (KIP-709)."""


# --- OffsetCommit ---


async def offset_commit(request: KafkaRequest) -> Answer:
    wrong: dict[TopicPartition, ErrorCode] = {}
    reply = await reply_to(request, partial(_commit, wrong=wrong))
    assert isinstance(reply, CommitReply)
    errors = {(result.topic, result.partition): result.error for result in reply.results} | wrong
    codes = {partition: request.code(error) for partition, error in errors.items()}
    return await in_slices(_each_partition(request.body, codes.__getitem__))


def _commit(
    request: KafkaRequest, call_id: CallId, wrong: dict[TopicPartition, ErrorCode]
) -> Work[list[c.Request]]:
    """The commit of all valid partitions; the others go into `wrong`.

    Of a partition that is listed twice Kafka keeps the last offset, and so the last place decides:
    an error for a partition means that nothing of it is committed.
    """
    body = request.body
    partitions: dict[TopicPartition, c.PartitionCommit] = {}
    for topic in body.topics:
        name = topic.name
        is_named = bool(name) and _has_name(name)
        yield
        for number, requested in enumerate(topic.partitions, 1):
            if not number % PART:
                yield
            partition = name, requested.partition_index
            if not is_named or requested.partition_index < 0 or requested.committed_offset < 0:
                wrong[partition] = ErrorCode.INVALID_REQUEST
                partitions.pop(partition, None)
                continue
            wrong.pop(partition, None)
            partitions[partition] = c.PartitionCommit(
                name,
                requested.partition_index,
                requested.committed_offset,
                getattr(requested, "committed_leader_epoch", NO_LEADER_EPOCH),
                requested.committed_metadata or "",
            )
    return [
        c.CommitOffsets(
            call_id=call_id,
            group_id=body.group_id,
            generation=body.generation_id_or_member_epoch,
            member_id=body.member_id,
            instance_id=getattr(body, "group_instance_id", None),
            partitions=tuple(partitions.values()),
        )
    ]


def _each_partition(body: Body, code_of: Callable[[TopicPartition], int]) -> Work[Answer]:
    topics = []
    for topic in body.topics:
        partitions = []
        yield
        for number, requested in enumerate(topic.partitions, 1):
            partition = topic.name, requested.partition_index
            partitions.append({"partition_index": partition[1], "error_code": code_of(partition)})
            if not number % PART:
                yield
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


# --- OffsetFetch ---


async def offset_fetch(request: KafkaRequest) -> Answer:
    """Answer an OffsetFetch: of one group before version 8, of several from then on.

    What is asked twice of a group has one answer: all offsets of a group may be many megabytes.
    """
    if request.version < GROUPS_FROM:
        return await _fetch(request, request.body)
    groups = {(group.group_id, group.topics): group for group in request.body.groups}
    return {"groups": await answer_each(request, [*groups.values()], _fetch_or_refuse)}


async def _fetch_or_refuse(request: KafkaRequest, group: Body) -> Answer:
    """Answer for one of several groups; a refusal does not concern the others."""
    try:
        answer = await _fetch(request, group)
    except CallRefused as error:
        request.context.pipeline.refused(request.call, error)
        answer = _refused(request, group, refusals.code_of(error, request.header.api))
    return {"group_id": group.group_id, **answer}


async def _fetch(request: KafkaRequest, group: Body) -> Answer:
    call = request.call.about(group.group_id)
    stable = getattr(request.body, "require_stable", False)
    replies = await request.context.pipeline.answer(
        call, lambda new_call_id: _fetch_command(group, new_call_id(), stable)
    )
    reply = replies[0]
    assert isinstance(reply, FetchReply)
    if reply.error is not ErrorCode.NONE:
        return _refused(request, group, request.code(reply.error))
    if group.topics is None:
        return await in_slices(_all_offsets(reply.offsets))
    offsets = {(offset.topic, offset.partition): offset for offset in reply.offsets}
    return await in_slices(_requested_offsets(request, group, offsets))


def refuse_fetch(request: KafkaRequest, code: int) -> Answer:
    if request.version < GROUPS_FROM:
        return _refused(request, request.body, code)
    groups = request.body.groups
    return {"groups": [{"group_id": g.group_id, **_refused(request, g, code)} for g in groups]}


def _refused(request: KafkaRequest, group: Body, code: int) -> Answer:
    if request.version >= GROUP_ERROR_FROM:
        return {"error_code": code, "topics": ()}
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [_unknown(partition, code) for partition in topic.partition_indexes],
            }
            for topic in group.topics
        ]
    }


def _unknown(partition: int, code: int) -> Answer:
    return {
        "partition_index": partition,
        "committed_offset": NO_OFFSET,
        "metadata": "",
        "error_code": code,
    }


def _fetch_command(group: Body, call_id: CallId, stable: bool) -> Work[list[c.Request]]:
    topics = group.topics
    partitions = None
    if topics is not None:
        named = [t for t in topics if _has_name(t.name)]
        partitions = tuple(dict.fromkeys((t.name, p) for t in named for p in t.partition_indexes))
    yield
    return [
        c.FetchOffsets(
            call_id=call_id,
            group_id=group.group_id,
            partitions=partitions,
            require_stable=stable,
        )
    ]


def _all_offsets(offsets: Iterable[Any]) -> Work[Answer]:  # Any: OffsetCommitted, FetchedOffset.
    by_topic: defaultdict[str, list[Any]] = defaultdict(list)
    for number, offset in enumerate(offsets, 1):
        by_topic[offset.topic].append(offset)
        if not number % PART:
            yield
    topics = []
    for name in sorted(by_topic):
        partitions = []
        for number, offset in enumerate(sorted(by_topic[name], key=attrgetter("partition")), 1):
            partitions.append(_offset(offset, 0))
            if not number % PART:
                yield
        topics.append({"name": name, "partitions": partitions})
    return {"topics": topics}


def _requested_offsets(
    request: KafkaRequest,
    group: Body,
    offsets: Mapping[TopicPartition, OffsetCommitted | FetchedOffset],
) -> Work[Answer]:
    topics = []
    for topic in group.topics:
        partitions = []
        yield
        for number, partition in enumerate(topic.partition_indexes, 1):
            offset = offsets.get((topic.name, partition))
            if offset is None:
                code = request.code(ErrorCode.INVALID_REQUEST)
                partitions.append(_unknown(partition, code))
            else:
                error = getattr(offset, "error", ErrorCode.NONE)
                partitions.append(_offset(offset, request.code(error)))
            if not number % PART:
                yield
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


def _offset(offset: Any, code: int) -> Answer:  # Any: OffsetCommitted or FetchedOffset.
    return {
        "partition_index": offset.partition,
        "committed_offset": offset.offset,
        "committed_leader_epoch": offset.leader_epoch,
        "metadata": offset.metadata,
        "error_code": code,
    }


# --- OffsetDelete ---


async def offset_delete(request: KafkaRequest) -> Answer:
    reply = await reply_to(request, _delete)
    assert isinstance(reply, OffsetDeleteReply)
    if reply.error is not ErrorCode.NONE:
        return {"error_code": request.code(reply.error)}
    errors = {(result.topic, result.partition): result.error for result in reply.results}

    def code_of(partition: TopicPartition) -> int:
        return request.code(errors.get(partition, ErrorCode.INVALID_REQUEST))

    return await in_slices(_each_partition(request.body, code_of))


def _delete(request: KafkaRequest, call_id: CallId) -> Work[list[c.Request]]:
    body = request.body
    named = [t for t in body.topics if _has_name(t.name)]
    partitions = dict.fromkeys((t.name, p.partition_index) for t in named for p in t.partitions)
    yield
    return [c.DeleteOffsets(call_id=call_id, group_id=body.group_id, partitions=tuple(partitions))]


# --- Of all ---


def _has_name(topic: str) -> bool:
    """True if a topic may have this name; if not, its partitions have an error of their own."""
    return too_long("name", topic, limits.TOPIC) is None


def groups_of(body: Body) -> tuple[str | None, ...]:
    """The groups that an OffsetFetch is about."""
    groups = getattr(body, "groups", None)
    return (body.group_id,) if groups is None else tuple(group.group_id for group in groups)
