"""Identifiers that travel between the layers, each with a type of its own."""

from __future__ import annotations

from typing import NewType, Protocol

CallId = NewType("CallId", int)
"""A request that waits for its answer; unique within a process."""

ShardId = NewType("ShardId", int)
"""One of the P shards a store is divided into, 0 to P-1."""

NO_GENERATION = -1
NO_OFFSET = -1
NO_LEADER_EPOCH = -1
NO_TIME = -1


class IdSource(Protocol):
    """Makes member ids. The live one is random; tests count."""

    def new_member_id(self, prefix: str) -> str:
        """An id never used before, `<prefix>-<unique part>`. Clients treat it as opaque."""
        ...
