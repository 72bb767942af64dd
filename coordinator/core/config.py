"""The settings that decisions depend on. `coordinator.settings.Settings` adds the service's own."""

from __future__ import annotations

from dataclasses import dataclass

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a member that never was in a generation may stay parked in JoinGroup. Not a setting,
as in Kafka: it only bounds how long a client that vanished can hold a seat."""

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """What the group protocol can be told. Names, units and defaults are Kafka's.

    Source: Kafka `GroupCoordinatorConfig`.
    """

    group_min_session_timeout_ms: int = 6_000
    """Smallest session timeout a member may ask for, inclusive."""

    group_max_session_timeout_ms: int = 1_800_000
    """Largest session timeout a member may ask for, inclusive."""

    group_initial_rebalance_delay_ms: int = 3_000
    """How long the first join phase of an empty group waits for more members; 0: it does not."""

    group_max_size: int = 2_147_483_647
    """Members a group may have, at least 1."""

    group_notice_cancelled_calls: bool = True
    """Take a parked call back when its client goes away. False: behave as Kafka, which never
    learns of it."""

    group_rebalance_journal: bool = True
    """Keep each group's last rebalances: who caused them, who was slow, what they cost."""

    offset_metadata_max_bytes: int = 4_096
    """Longest metadata a committed offset may carry."""

    offset_manifest_max_bytes: int = 65_536
    """Longest manifest a commit may carry."""

    offsets_retention_minutes: int = 10_080
    """How long offsets outlive the group's last member (7 days)."""

    offsets_retention_check_interval_ms: int = 600_000
    """How often offsets are looked through for expired ones."""

    offset_commit_timeout_ms: int = 5_000
    """How long an answer waits for the log before it reports a time-out."""

    @property
    def offsets_retention_ms(self) -> int:
        """Retention in milliseconds."""
        return self.offsets_retention_minutes * MINUTE_MS
