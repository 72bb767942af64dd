"""Types of identifiers, and the values that mean "none"."""

from __future__ import annotations

from typing import NewType, Protocol

CallId = NewType("CallId", int)
"""Identifies a call and its answer; unique within a process."""

ShardId = NewType("ShardId", int)
"""One of the P shards a store is divided into, 0 to P-1."""

NO_GENERATION = -1
NO_OFFSET = -1
NO_LEADER_EPOCH = -1
NO_TIME = -1

TOPICS_GROUP = "__coordinator_topics"
"""Reserved group whose offsets are counts of topics (`topics`); clients neither see nor use it."""

TopicPartition = tuple[str, int]
"""Topic and partition."""

NO_TOKEN = 0
"""Token of a partition that nobody holds."""


class IdSource(Protocol):
    """Source of member ids: random in production, a counter in tests."""

    def new_member_id(self, prefix: str) -> str:
        """Return a unique id, `<prefix>-<unique part>`. It is opaque to clients."""
        ...

    def new_session_id(self) -> str:
        """Return 128 random bits as text, which are known to the member alone."""
        ...
