"""The one place that chooses the protocol of a member."""

from __future__ import annotations

from collections.abc import Callable

from coordinator.client.member.classic.part import ClassicPart
from coordinator.client.member.part import ProtocolPart
from coordinator.client.member.session.part import SessionPart
from coordinator.client.settings.configs import ClassicConfig, SessionConfig


def part_of(config: ClassicConfig | SessionConfig, random: Callable[[], float]) -> ProtocolPart:
    """The protocol part of a member with these settings.

    Args:
        random: from 0 to 1, below 1.
    """
    if isinstance(config, SessionConfig):
        return SessionPart(config, random)
    return ClassicPart(config, random)
