"""Makers of the members of workers, in either protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from coordinator.client.settings.reading import (
    OF_WORKERS,
    config_of,
    process_of,
)
from coordinator.client.worker.environment import Environment
from coordinator.client.worker.member import ClassicMember, Member
from coordinator.client.worker.plan import NewMember
from coordinator.client.worker.session_member import LeasedMember
from coordinator.client.worker.topics import TopicCounts

if TYPE_CHECKING:
    from coordinator.client.settings.typed import WorkerSettings

DEFAULT_ASSIGNOR = "cooperative-sticky"
FALLBACK_ASSIGNOR = "range"


def classic(group_id: str, bootstrap: Sequence[str], settings: WorkerSettings) -> NewMember:
    """Maker of members of the classic protocol.

    Raises:
        TypeError, ValueError: as `config_of`, here and now.
    """
    told: WorkerSettings = {**settings, "max_poll_interval_ms": None}
    if "assignors" not in settings:
        told["assignors"] = (DEFAULT_ASSIGNOR,)
        told.setdefault("fallback_assignor", FALLBACK_ASSIGNOR)
    config_of("classic", group_id, {"a topic": 1}, told)
    credentials = process_of("classic", settings).credentials

    def new_member(topics: TopicCounts, environment: Environment, on_change: Any) -> Member:
        config = config_of("classic", group_id, topics, told)
        return ClassicMember(config, bootstrap, credentials, environment, on_change)

    return new_member


def leased(group_id: str, bootstrap: Sequence[str], settings: WorkerSettings) -> NewMember:
    """Maker of members of session groups. Raises as `config_of`, here and now."""
    told = {name: value for name, value in settings.items() if name not in OF_WORKERS}
    config_of("session", group_id, {"a topic": 1}, told)
    credentials = process_of("session", settings).credentials

    def new_member(topics: TopicCounts, environment: Environment, on_change: Any) -> Member:
        config = config_of("session", group_id, topics, told)
        return LeasedMember(
            config, bootstrap, credentials, environment, on_change,
            return_within_ms=config.return_within_ms,
        )  # fmt: skip

    return new_member
