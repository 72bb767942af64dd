"""Policy of a session group: what its operator, or its first member, has chosen. Durable."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum

from coordinator.core.values.errors import ErrorCode, Refused

PROFILES = {"fast": 3_000, "standard": 10_000, "patient": 45_000}
"""Leases by name, milliseconds."""

MAX_LEASE_MS = 300_000


class Mode(Enum):
    """Way by which a partition goes from one member to the next. The values are codes."""

    SIMPLE = "simple"
    WARM = "warm"
    COPY = "copy"


class OnStall(Enum):
    """Treatment of a member whose working side stands still. The values are codes."""

    REPORT = "report"
    DRAIN = "drain"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings of one group. Times in milliseconds.

    initial_delay_ms: None: the setting group_initial_rebalance_delay_ms.
    max_idle_ms: longest time without progress; 0: any.
    """

    lease_ms: int = 10_000
    mode: Mode = Mode.SIMPLE
    plan_window_ms: int = 100
    plan_interval_ms: int = 1_000
    initial_delay_ms: int | None = None
    expected_members: int = 0
    join_quiet_ms: int = 1_000
    join_window_ms: int = 10_000
    drain_timeout_ms: int = 30_000
    warm_timeout_ms: int = 1_800_000
    handover_delay_ms: int = 0
    max_return_ms: int = 300_000
    max_idle_ms: int = 0
    on_stall: OnStall = OnStall.REPORT
    sinks_check_tokens: bool = False

    @classmethod
    def defaults(cls) -> dict[str, object]:
        """All settings with their defaults, in the order of their declaration."""
        return {field.name: field.default for field in fields(cls)}

    def check(self, min_lease_ms: int) -> None:
        """Check the values.

        Raises:
            Refused: INVALID_REQUEST, with the setting and what is allowed.
        """
        if not min_lease_ms <= self.lease_ms <= MAX_LEASE_MS:
            raise _refused("lease_ms", self.lease_ms, f"{min_lease_ms} to {MAX_LEASE_MS}")
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int) and value < 0:
                raise _refused(field.name, value, "0 or more")


def _refused(name: str, value: object, allowed: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, f"{name} is {value}; it may be {allowed}")
