"""Settings of a worker's member in either protocol, and how such members are made."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, cast

from coordinator.client.forms import milliseconds_of
from coordinator.client.member.session.settings import SessionSettings, session_config
from coordinator.client.settings import MemberSettings, member_config, unknown_setting
from coordinator.client.worker.environment import Environment
from coordinator.client.worker.member import ClassicMember, Member
from coordinator.client.worker.plan import NewMember
from coordinator.client.worker.policy import check_number
from coordinator.client.worker.session_member import LeasedMember
from coordinator.client.worker.topics import TopicCounts
from coordinator.dial import Credentials

Protocols = Literal["classic", "session"]
DEFAULT_ASSIGNOR = "cooperative-sticky"
FALLBACK_ASSIGNOR = "range"
MAX_FAILURES = 5
NO_SETTINGS = {
    "max_poll_interval_ms": "nobody polls in it; progress_timeout_ms stands in for it",
    "handle_signals": "its `run` has: worker.run(handle_signals=False)",
    "clock": "its environment has one; coordinator.testing runs workers on virtual time",
    "random": "its environment has one; coordinator.testing runs workers on virtual time",
}
"""Settings of members without a meaning in a worker, and what is there instead."""
OF_SESSIONS = ("log_ends", "log_ends_interval_s", "max_failures", "return_within_ms")
"""Settings of a worker in a session group that are not its member's."""
INSTEAD = {
    "instance_id": "write member_name='...'",
    "session_timeout_ms": "write wishes={'lease_ms': 10_000}",
    "member_name": "write instance_id='...'",
}


class WorkerSettings(MemberSettings, SessionSettings, total=False):
    """Keyword arguments of a `Worker`: those of members of its protocol; each may be left out."""

    max_failures: int
    """The default of `max_attempts` in session groups, where the worker refuses the partition then,
    so that another one gets it, unless `after_max_attempts` is "stop". Default: 5."""
    return_within_ms: int | None
    """Time for which the partitions of a worker that stops are kept for a process of its
    `member_name`, so that none moves; in session groups. None (default): they are handed over."""


def classic(group_id: str, bootstrap: Sequence[str], settings: WorkerSettings) -> NewMember:
    """Maker of members of the classic protocol.

    Raises:
        TypeError, ValueError: as `member_config`, here and now.
    """
    told = cast("MemberSettings", {**settings, "max_poll_interval_ms": None})
    if "assignors" not in settings:
        told["assignors"] = (DEFAULT_ASSIGNOR,)
        told.setdefault("fallback_assignor", FALLBACK_ASSIGNOR)
    member_config(group_id, {"a topic": 1}, told)

    def new_member(topics: TopicCounts, environment: Environment, on_change: Any) -> Member:
        config = member_config(group_id, topics, told)
        return ClassicMember(config, bootstrap, _credentials(settings), environment, on_change)

    return new_member


def leased(group_id: str, bootstrap: Sequence[str], settings: WorkerSettings) -> NewMember:
    """Maker of members of session groups. Raises as `session_config`, here and now."""
    told = {name: value for name, value in settings.items() if name not in OF_SESSIONS}
    session_config(group_id, {"a topic": 1}, told)
    check_number("max_failures", settings.get("max_failures"), 1)
    within_ms = settings.get("return_within_ms")
    if within_ms is not None:
        within_ms = milliseconds_of("return_within_ms", within_ms)
        if settings.get("member_name") is None:
            raise ValueError("return_within_ms keeps partitions for a name: give member_name='...'")

    def new_member(topics: TopicCounts, environment: Environment, on_change: Any) -> Member:
        return LeasedMember(
            session_config(group_id, topics, told), bootstrap, _credentials(settings),
            environment, on_change, return_within_ms=within_ms,
        )  # fmt: skip

    return new_member


def _credentials(settings: WorkerSettings) -> Credentials:
    return settings.get("credentials") or Credentials.from_environment()


def check_settings(
    settings: Mapping[str, object], protocol: Protocols, own: Collection[str]
) -> None:
    """Check the names of settings.

    Args:
        own: parameters of a worker itself, for suggestions.
    Raises:
        TypeError: one is unknown, or has no meaning in a worker of this protocol; the message says
            what to write.
    """
    for name, instead in NO_SETTINGS.items():
        if settings.get(name) is not None:
            raise TypeError(f"a worker has no setting {name!r}: {instead}")
    of_members = SessionSettings if protocol == "session" else MemberSettings
    others = OF_SESSIONS if protocol == "session" else ()
    known = [name for name in (*of_members.__annotations__, *others) if name not in NO_SETTINGS]
    for name in settings:
        if name in known or name in NO_SETTINGS:
            continue
        if name in WorkerSettings.__annotations__:
            instead = f"; {INSTEAD[name]}" if name in INSTEAD else ""
            raise TypeError(f"{name} is no setting of the {protocol} protocol{instead}")
        names = [each for each in dict.fromkeys((*own, *known)) if each != "settings"]
        raise unknown_setting("a worker", name, names)
