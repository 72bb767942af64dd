"""ListOffsets, Fetch and Produce of topics that have no rows here.

A position is anything: the log ends that members report are the latest offsets, 0 is the earliest.
A fetch finds nothing and waits as long as it may, as at the end of a log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coordinator.core import limits
from coordinator.kafka import errors
from coordinator.kafka.codec import Answer, Body
from coordinator.kafka.errors import Undecodable
from coordinator.runtime.slices import PART, Work, in_slices
from coordinator.service.kafka.metadata import known_topics
from coordinator.service.kafka.requests import KafkaRequest
from coordinator.service.topics import LogEnds, TopicView

LATEST, EARLIEST = -1, -2
"""Timestamps of ListOffsets that mean an end of the log."""
NONE = -1
NO_SESSION = 0
NO_ROWS = "this node coordinates groups, and stores no rows"


# --- ListOffsets ---


async def list_offsets(request: KafkaRequest) -> Answer:
    context, topics = request.context, request.body.topics
    await context.pipeline.admit(request.call)
    _check_partitions(request, topics)
    names = list(dict.fromkeys(topic.name for topic in topics))
    view = await known_topics(request, names)
    wanted = _latest(topics, view)
    ends = await context.topics.log_ends(wanted) if wanted else {}
    return {"topics": await in_slices(_offsets(topics, view, ends))}


def _latest(topics: Sequence[Any], view: TopicView) -> dict[str, list[int]]:
    """The partitions whose log ends are asked for, each once."""
    wanted: dict[str, dict[int, None]] = {}
    for topic in topics:
        count = view.partitions(topic.name)
        for p in topic.partitions:
            if p.timestamp == LATEST and 0 <= p.partition_index < count:
                wanted.setdefault(topic.name, {})[p.partition_index] = None
    return {name: list(partitions) for name, partitions in wanted.items()}


def _offsets(topics: Sequence[Any], view: TopicView, ends: LogEnds) -> Work[list[Answer]]:
    answers: list[Answer] = []
    for topic in topics:
        count, known = view.partitions(topic.name), ends.get(topic.name, {})
        partitions: list[Answer] = []
        for number, p in enumerate(topic.partitions):
            index = p.partition_index
            if not 0 <= index < count:
                partitions.append({"partition_index": index, "error_code": _unknown(view)})
            else:
                end, committed = known.get(index, (NONE, NONE))
                # A log whose end nobody reports reaches as far as somebody has committed.
                latest = end if end != NONE else max(committed, 0)
                offset = {LATEST: latest, EARLIEST: 0}.get(p.timestamp, NONE)
                partitions.append({"partition_index": index, "offset": offset})
            if not number % PART:
                yield
        answers.append({"name": topic.name, "partitions": partitions})
    return answers


# --- Fetch ---


async def fetch(request: KafkaRequest) -> Answer:
    """Answer a Fetch, after its wait; at once if a partition does not exist."""
    context, body = request.context, request.body
    await context.pipeline.admit(request.call)
    if getattr(body, "session_id", NO_SESSION) != NO_SESSION:
        return {"error_code": errors.FETCH_SESSION_ID_NOT_FOUND}
    _check_partitions(request, body.topics)
    view = await known_topics(request, [topic.topic for topic in body.topics])
    is_known = await in_slices(_all_exist(body, view))
    if is_known and body.min_bytes > 0:
        # Nothing of the answer is kept meanwhile.
        max_wait_ms = int(body.max_wait.total_seconds() * 1000)
        await context.waits.wait(max_wait_ms, request.size_bytes)
    return {"responses": await in_slices(_nothing(body, view))}


def refuse_fetch(request: KafkaRequest, code: int) -> Answer:
    """Answer a Fetch with an error, for all of it and for each partition."""
    return {
        "error_code": code,
        "responses": [
            {
                "topic": topic.topic,
                "partitions": [_no_partition(p.partition, code) for p in topic.partitions],
            }
            for topic in request.body.topics
        ],
    }


def _all_exist(body: Body, view: TopicView) -> Work[bool]:
    for topic in body.topics:
        count = view.partitions(topic.topic)
        for number, p in enumerate(topic.partitions):
            if not 0 <= p.partition < count:
                return False
            if not number % PART:
                yield
    return True


def _nothing(body: Body, view: TopicView) -> Work[list[Answer]]:
    answers: list[Answer] = []
    for topic in body.topics:
        count = view.partitions(topic.topic)
        partitions: list[Answer] = []
        for number, p in enumerate(topic.partitions):
            if 0 <= p.partition < count:
                partitions.append(_no_rows(p.partition, max(p.fetch_offset, 0)))
            else:
                partitions.append(_no_partition(p.partition, _unknown(view)))
            if not number % PART:
                yield
        answers.append({"topic": topic.topic, "partitions": partitions})
    return answers


def _unknown(view: TopicView) -> int:
    """Code of a partition that is not known.

    Until every shard was heard of it is one that clients answer by asking for metadata again, and
    not LEADER_NOT_AVAILABLE, which Java's client does not expect in a Fetch.
    """
    unknown = errors.UNKNOWN_TOPIC_OR_PARTITION
    return unknown if view.is_complete else errors.NOT_LEADER_OR_FOLLOWER


def _no_rows(partition: int, offset: int) -> Answer:
    """A partition whose log ends where the fetch begins: consumers take it as read to its end."""
    return {
        "partition_index": partition,
        "high_watermark": offset,
        "last_stable_offset": offset,
        "log_start_offset": 0,
        "records": b"",
    }


def _no_partition(partition: int, code: int) -> Answer:
    return {
        "partition_index": partition,
        "error_code": code,
        "high_watermark": NONE,
        "records": b"",
    }


def _check_partitions(request: KafkaRequest, topics: Sequence[Any]) -> None:
    """Refuse more topics or partitions than a call may name. Raises `Malformed`."""
    validator = request.context.pipeline.validator
    validator.check_count("topics", len(topics), limits.PARTITIONS)
    validator.check_count(
        "topics.partitions", sum(len(t.partitions) for t in topics), limits.PARTITIONS
    )


# --- Produce ---


async def produce(request: KafkaRequest) -> Answer:
    """Refuse rows, for good: producers do not try again.

    Raises:
        Undecodable: the client waits for no answer, and has to be told by the end of its
            connection, as by a broker.
    """
    if request.body.acks == 0:  # Whoever asks: a refusal would be an answer, too.
        raise Undecodable(NO_ROWS)
    await request.context.pipeline.admit(request.call)
    return refuse_produce(request, errors.POLICY_VIOLATION)


def refuse_produce(request: KafkaRequest, code: int) -> Answer:
    return {
        "responses": [
            {
                "name": topic.name,
                "partition_responses": [
                    {
                        "index": p.index,
                        "error_code": code,
                        "base_offset": NONE,
                        "error_message": NO_ROWS if code == errors.POLICY_VIOLATION else None,
                    }
                    for p in topic.partition_data
                ],
            }
            for topic in request.body.topic_data
        ]
    }
