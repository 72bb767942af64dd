"""Makers of the members of workers, in either protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from coordinator.client.member.face import Member
from coordinator.client.member.making import part_of
from coordinator.client.settings.reading import (
    OF_WORKERS,
    config_of,
    process_of,
    worker_config_of,
)
from coordinator.client.settings.setting import GroupProtocol
from coordinator.client.transport.driver import Link
from coordinator.client.worker.environment import Environment
from coordinator.client.worker.plan import NewMember
from coordinator.client.worker.topics import TopicCounts
from coordinator.dial import Credentials

if TYPE_CHECKING:
    from coordinator.client.settings.typed import WorkerSettings

DEFAULT_ASSIGNOR = "cooperative-sticky"
FALLBACK_ASSIGNOR = "range"


class _EnvironmentMember(Member):
    """A member whose connection is made by its worker's environment."""

    def __init__(
        self,
        environment: Environment,
        protocol: GroupProtocol,
        bootstrap: Sequence[str],
        group_id: str,
        topics: TopicCounts,
        settings: WorkerSettings,
    ) -> None:
        self._environment = environment
        process = process_of(protocol, settings)
        process = replace(
            process, clock=environment.now_ms, random=environment.random, log_ends=None
        )
        own = {name: value for name, value in settings.items() if name not in OF_WORKERS}
        config = config_of(protocol, group_id, topics, own)
        self._remarks = []
        self._set_up(part_of(config, environment.random), bootstrap, process)

    def _connect(
        self, credentials: Credentials, interval_s: float, random: Callable[[], float]
    ) -> Link:
        return self._environment.connect(credentials, interval_s, self._beat_now)


def member_maker(
    protocol: GroupProtocol, group_id: str, bootstrap: Sequence[str], settings: WorkerSettings
) -> NewMember:
    """Maker of a worker's members.

    Raises:
        TypeError, ValueError: as `config_of`, here and now.
    """
    told = cast("WorkerSettings", dict(settings))
    if protocol == "classic":
        told["max_poll_interval_ms"] = None
        if "assignors" not in settings:
            told["assignors"] = (DEFAULT_ASSIGNOR,)
            told.setdefault("fallback_assignor", FALLBACK_ASSIGNOR)
    own = {name: value for name, value in told.items() if name not in OF_WORKERS}
    config_of(protocol, group_id, {"a topic": 1}, own)
    process_of(protocol, settings)
    worker_config_of(settings)

    def new_member(
        topics: TopicCounts, environment: Environment, on_change: Callable[[], None]
    ) -> Member:
        member = _EnvironmentMember(environment, protocol, bootstrap, group_id, topics, told)
        member.on_change = on_change
        return member

    return new_member
