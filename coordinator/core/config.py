"""Settings of the group protocol. `coordinator.settings` composes them with the others."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.limits import HELD
from coordinator.core.setting import INT32_MAX, InvalidSetting, Section, SettingBounds, setting

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""Longest wait in JoinGroup of a member that has not been in a generation yet. Not a setting, as in
Kafka: it only bounds how long a client that vanished counts towards `group_max_size`."""

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig(Section):
    """The settings of the group protocol. Names, units and defaults are Kafka's.

    Source: Kafka `GroupCoordinatorConfig`.
    """

    # fmt: off
    # Name, type, default, what is allowed (None: all of the type), then the meaning.
    group_min_session_timeout_ms: int = setting(6_000, SettingBounds(1, unit="ms"),
        "Smallest session timeout a member may ask for, inclusive.")
    group_max_session_timeout_ms: int = setting(1_800_000, SettingBounds(1, unit="ms"),
        "Largest session timeout a member may ask for, inclusive.")
    group_initial_rebalance_delay_ms: int = setting(3_000, SettingBounds(0, unit="ms"),
        "Wait of an empty group's first join phase for more members; 0: none.")
    group_max_size: int = setting(INT32_MAX, SettingBounds(1, unit="members"),
        "Members a group may have.")
    group_notice_cancelled_calls: bool = setting(True, None,
        "Take a parked call back when its client goes away. False: behave as Kafka, which never "
        "learns of it.")
    group_rebalance_journal: bool = setting(True, None,
        "Keep each group's last rebalances: who caused them, who was slow, what they cost.")
    group_min_lease_ms: int = setting(2_000, SettingBounds(1, unit="ms"),
        "Shortest lease a session group may have.")
    max_group_partitions: int = setting(HELD.items, SettingBounds(1, HELD.items, unit="partitions"),
        "Partitions that the members of a session group may declare, all topics together.")
    offset_metadata_max_bytes: int = setting(4_096, SettingBounds(0, unit="bytes"),
        "Longest metadata a committed offset may carry.")
    offset_manifest_max_bytes: int = setting(65_536, SettingBounds(0, 1_048_576, unit="bytes"),
        "Longest manifest a commit may carry.")
    group_documents_max_bytes: int = setting(67_108_864, SettingBounds(0, unit="bytes"),
        "Size of the documents that clients keep in a group, all together (64 MiB).")
    offsets_retention_minutes: int = setting(10_080, SettingBounds(1, unit="minutes"),
        "Retention of offsets after the group's last member has gone (7 days). Nothing expires in "
        "the first hour after a shard was loaded: a node's clock may be wrong.")
    offsets_retention_check_interval_ms: int = setting(600_000, SettingBounds(1, unit="ms"),
        "Interval between two searches for expired offsets.")
    offset_commit_timeout_ms: int = setting(5_000, SettingBounds(1, unit="ms"),
        "Timeout of an answer that waits for the log.")
    # fmt: on

    def __post_init__(self) -> None:
        Section.__post_init__(self)  # A slotted dataclass has no `super()`: it is made twice.
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise InvalidSetting(
                f"group_min_session_timeout_ms is {self.group_min_session_timeout_ms}, which is "
                f"larger than group_max_session_timeout_ms, {self.group_max_session_timeout_ms}"
            )

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * MINUTE_MS
