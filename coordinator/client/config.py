"""A member's settings, as its machine uses them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """A member's settings; times in milliseconds. `MemberSettings` describes each.

    `topics` maps each topic to its number of partitions, which is used while this member is the
    leader.
    """

    group_id: str
    topics: Mapping[str, int]
    assignors: tuple[str, ...] = ("range",)
    fallback_assignor: str | None = None
    client_id: str = ""
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 60_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int | None = 300_000
    protocol_type: str = "consumer"
    rack: str | None = None
