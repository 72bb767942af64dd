"""Error codes on Kafka's wire: Kafka's own, never one of ours (10000 and above).

A client looks codes up in its own table, and one that it does not know there is an unknown server
error to it at best. Core's codes have Kafka's numbers, so most APIs take them as they are; what
differs stands in `OF_API`.
"""

from __future__ import annotations

from coordinator.core.values.errors import ErrorCode
from coordinator.kafka import apis
from coordinator.kafka.apis import Api

NONE = 0
UNKNOWN_SERVER_ERROR = -1
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
NOT_LEADER_OR_FOLLOWER = 6
COORDINATOR_NOT_AVAILABLE = 15
INVALID_TOPIC_EXCEPTION = 17
INVALID_GROUP_ID = 24
TOPIC_AUTHORIZATION_FAILED = 29
GROUP_AUTHORIZATION_FAILED = 30
UNSUPPORTED_VERSION = 35
INVALID_REQUEST = 42
POLICY_VIOLATION = 44
FETCH_SESSION_ID_NOT_FOUND = 70
GROUP_MAX_SIZE_REACHED = 81
THROTTLING_QUOTA_EXCEEDED = 89
UNKNOWN_TOPIC_ID = 100
UNSUPPORTED_ENDPOINT_TYPE = 115

HIGHEST = 200
"""No code of Kafka's is above it."""


class Undecodable(Exception):
    """Bytes that are no request of their API and version."""


OF_API: dict[Api, dict[ErrorCode, int]] = {
    # KIP-848: only from 9 on do clients of OffsetCommit know that a group may not exist.
    apis.OFFSET_COMMIT: {ErrorCode.GROUP_ID_NOT_FOUND: int(ErrorCode.ILLEGAL_GENERATION)},
}
"""Codes that an API does not take as they are, in versions before `TAKES_ALL_FROM`."""
TAKES_ALL_FROM: dict[Api, int] = {apis.OFFSET_COMMIT: 9}


def wire_code(error: ErrorCode, api: Api, version: int) -> int:
    if version < TAKES_ALL_FROM.get(api, 0):
        code = OF_API[api].get(error, int(error))
    else:
        code = int(error)
    return code if code < HIGHEST else UNKNOWN_SERVER_ERROR
