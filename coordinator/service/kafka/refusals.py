"""Kafka error codes of refused calls, API by API."""

from __future__ import annotations

from coordinator.kafka import apis, errors
from coordinator.kafka.apis import Api
from coordinator.kafka.codec import Answer
from coordinator.service.kafka.requests import KafkaRequest
from coordinator.service.refusals import (
    CallRefused,
    Denied,
    Exhausted,
    Full,
    GaveUp,
    Malformed,
    UnauthenticatedCall,
    UnavailableCall,
)

_CODES: dict[type[CallRefused], int] = {
    Denied: errors.GROUP_AUTHORIZATION_FAILED,
    Malformed: errors.INVALID_REQUEST,
}
OF_TOPICS = frozenset(
    {apis.METADATA, apis.LIST_OFFSETS, apis.PRODUCE, apis.FETCH, apis.DESCRIBE_CONFIGS}
)
"""APIs that name topics and no group: a call that is not allowed gets the code of topics."""
OF_ROWS = frozenset({apis.LIST_OFFSETS, apis.PRODUCE, apis.FETCH})
"""APIs in which clients do not know the code of a coordinator that is not available (15), and some
end on it. They try again on that of a leader which has moved (6)."""


def code_of(error: CallRefused, api: Api) -> int:
    """Return the code by which an API says that a call is refused.

    Where there is no room now, the client tries again (15), and librdkafka says nothing of it. So a
    join for which there is no room until others leave, or never, is told by the code of a full
    group (81), which all clients report.

    Raises:
        UnauthenticatedCall: the caller's token is no longer valid. No code says so, and 30 would
            end a consumer that only has to authenticate again: the connection is closed, as Kafka
            does.
    """
    if isinstance(error, UnauthenticatedCall):
        raise error
    again = errors.COORDINATOR_NOT_AVAILABLE
    if api in OF_ROWS:
        again = errors.NOT_LEADER_OR_FOLLOWER
    if isinstance(error, UnavailableCall | GaveUp):
        return again
    if isinstance(error, Exhausted):
        is_lasting = isinstance(error, Full) or not error.retry_after_s
        if is_lasting and api is apis.JOIN_GROUP:
            return errors.GROUP_MAX_SIZE_REACHED
        return again if error.retry_after_s > 0 else errors.INVALID_REQUEST
    if isinstance(error, Denied) and api in OF_TOPICS:
        return errors.TOPIC_AUTHORIZATION_FAILED
    return _CODES.get(type(error), errors.UNKNOWN_SERVER_ERROR)


def refuse_partitions(request: KafkaRequest, code: int) -> Answer:
    """Answer with an error, where an API has its place for it in each partition."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": partition.partition_index, "error_code": code}
                    for partition in topic.partitions
                ],
            }
            for topic in request.body.topics
        ]
    }
