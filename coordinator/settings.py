"""Every setting of the service, with its meaning, unit, default and bounds."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.config import GroupConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(GroupConfig):
    """What `coordinator serve` can be told; the rules of groups are in `GroupConfig`."""
