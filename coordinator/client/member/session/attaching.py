"""The Attach of a member, from its settings."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from coordinator.client.settings.configs import GroupWishes, SessionConfig
from coordinator.v1 import session_pb2 as pb


def attach_of(config: SessionConfig) -> pb.Attach:
    """The Attach of a member, without what belongs to a session."""
    incarnation = pb.Attach.Incarnation(id=config.incarnation, started_at_ms=config.started_at_ms)
    return pb.Attach(
        group_id=config.group_id,
        member_name=config.member_name or "",
        incarnation=incarnation,
        client_id=config.client_id,
        rack=config.rack or "",
        topics=[pb.Attach.Topic(name=n, partitions=p) for n, p in sorted(config.topics.items())],
        capacity=config.capacity,
        max_partitions=config.max_partitions,
        drain_ms=config.drain_ms,
        revision=config.revision or "",
        deployment=config.deployment or "",
        wishes=None if config.wishes == GroupWishes() else _policy(config.wishes),
    )


def _policy(wishes: GroupWishes) -> pb.GroupPolicy:
    fields: dict[str, Any] = {}  # Any: numbers and names of enum values.
    for name, wish in asdict(wishes).items():
        fields[name] = wish.upper() if isinstance(wish, str) else wish
    return pb.GroupPolicy(**fields)  # A field that is None is not set.
