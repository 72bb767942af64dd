"""The RPCs of TopicAdmin, for operators, and of TopicReplica, between nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from coordinator.core import limits
from coordinator.core.values.errors import ErrorCode, advice
from coordinator.core.values.ids import CallId, ShardId
from coordinator.core.values.replies import Reply
from coordinator.core.values.requests import Request
from coordinator.runtime.slices import PART, Work, in_slices
from coordinator.service.calls import Call
from coordinator.service.grpc import translate
from coordinator.service.pipeline import Pipeline
from coordinator.service.refusals import Malformed, too_long
from coordinator.service.topic_changes import delete_topic, set_topic
from coordinator.service.topics import ShardTopics, Topics, TopicView
from coordinator.v1 import topics_pb2 as pb


class TopicService:
    """Handlers of TopicAdmin and TopicReplica."""

    def __init__(self, pipeline: Pipeline, topics: Topics) -> None:
        self._pipeline = pipeline
        self._topics = topics

    async def ListTopics(self, request: pb.ListTopicsRequest, call: Call) -> pb.ListTopicsResponse:
        view = await self._topics.refresh()
        error = ErrorCode.NONE if view.is_complete else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return pb.ListTopicsResponse(
            error_code=translate.error_code(error),
            error_message="" if view.is_complete else "topics may be missing: " + advice(error),
            topics=await in_slices(_listed(view)),
        )

    async def SetTopic(self, request: pb.SetTopicRequest, call: Call) -> pb.SetTopicResponse:
        done = await set_topic(
            self._topics,
            partial(self._request, call),
            request.topic,
            request.partitions,
            may_shrink=request.may_shrink,
        )
        return pb.SetTopicResponse(
            error_code=translate.error_code(done.error),
            error_message=done.message,
            partitions_before=done.counts.partitions,
        )

    async def DeleteTopic(
        self, request: pb.DeleteTopicRequest, call: Call
    ) -> pb.DeleteTopicResponse:
        done = await delete_topic(self._topics, partial(self._request, call), request.topic)
        return pb.DeleteTopicResponse(
            error_code=translate.error_code(done.error),
            error_message=done.message,
            reported_partitions=done.counts.reported,
        )

    async def FetchTopics(
        self, request: pb.FetchTopicsRequest, call: Call
    ) -> pb.FetchTopicsResponse:
        return await in_slices(_reported(await self._topics.here()))

    async def FetchLogEnds(
        self, request: pb.FetchLogEndsRequest, call: Call
    ) -> pb.FetchLogEndsResponse:
        violations = (
            too_long(f"topics[{n}].name", topic.name, limits.TOPIC)
            for n, topic in enumerate(request.topics)
        )
        if wrong := [violation for violation in violations if violation is not None]:
            raise Malformed(wrong)
        wanted = {topic.name: topic.partitions for topic in request.topics}
        log_ends = await self._topics.log_ends_here(wanted)
        return pb.FetchLogEndsResponse(
            topics=[
                pb.FetchLogEndsResponse.Topic(
                    name=name,
                    log_ends=[end for end, _ in ends.values()],
                    committed=[committed for _, committed in ends.values()],
                )
                for name, ends in log_ends.items()
            ]
        )

    async def _request(self, call: Call, command: Callable[[CallId], Request]) -> Reply:
        def translation(new_call_id: Callable[[], CallId]) -> Work[Sequence[Request]]:
            yield from ()
            return [command(new_call_id())]

        (reply,) = await self._pipeline.answer(call, translation)
        return reply


def _listed(view: TopicView) -> Work[list[pb.ListTopicsResponse.Topic]]:
    listed: list[pb.ListTopicsResponse.Topic] = []
    for number, (name, counts) in enumerate(view.topics.items()):
        listed.append(
            pb.ListTopicsResponse.Topic(
                name=name,
                partitions=counts.partitions,
                set_partitions=counts.set,
                reported_partitions=counts.reported,
                groups=counts.groups,
            )
        )
        if not number % PART:
            yield
    return listed


def _reported(by_shard: Mapping[ShardId, ShardTopics]) -> Work[pb.FetchTopicsResponse]:
    answer = pb.FetchTopicsResponse()
    for shard, topics in by_shard.items():
        shard_message = answer.shards.add(shard=shard)
        for number, (name, counts) in enumerate(topics.items()):
            shard_message.topics.add(
                name=name,
                set_partitions=counts.set,
                reported_partitions=counts.reported,
                groups=counts.groups,
            )
            if not number % PART:
                yield
    return answer
