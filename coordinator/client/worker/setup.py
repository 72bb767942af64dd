"""Parts of a worker's driver: settings, functions, and the maker of its members."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coordinator.client.log_ends import LogEnds
from coordinator.client.member.face import Member
from coordinator.client.settings.reading import OF_WORKERS, config_of
from coordinator.client.settings.setting import GroupProtocol
from coordinator.client.transport.driver import Link
from coordinator.client.worker.environment import Environment
from coordinator.client.worker.handlers import Handlers, Limits
from coordinator.client.worker.user_functions import StartPolicy, TopicCounts, WorkerTopics
from coordinator.dial import Credentials
from coordinator.node_source import Bootstrap

if TYPE_CHECKING:
    from coordinator.client.embedding.nodes import Embedded
    from coordinator.client.settings.typed import WorkerSettings

DEFAULT_ASSIGNOR = "cooperative-sticky"
FALLBACK_ASSIGNOR = "range"
NAMES = {"classic": "instance_id", "session": "member_name"}
"""Setting of the name that makes a place stable."""
NewMember = Callable[[Mapping[str, int], Environment], Member]
"""Makes the member of a worker, or lends one; called on the protocol's loop, with the topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetup:
    """Settings and functions of a worker."""

    group_id: str
    new_member: NewMember
    handlers: Handlers
    limits: Limits
    topics: WorkerTopics
    start: StartPolicy
    log_ends: LogEnds | None
    log_ends_interval_s: float
    or_classic: NewMember | None = None
    """Makes a member in the place of the first, if the group turns out to be a classic one."""
    is_lent: bool = False
    """True if the caller has started the member, and closes it. Nobody else polls it meanwhile, and
    what it holds when the worker stops it holds on to."""
    nodes: Embedded | None = None
    """Nodes that are there as long as the worker runs."""
    blocks_loop: bool = False
    """True if handlers are meant to block their loop, which is not watched then."""


class _EnvironmentMember(Member):
    """A member whose clock, chance and connection are those of its worker's environment."""

    def __init__(self, environment: Environment, *where: Any, **settings: Any) -> None:
        # Any: as `Member` takes them.
        self._environment = environment
        super().__init__(*where, clock=environment.now_ms, random=environment.random, **settings)

    def _connect(
        self, credentials: Credentials, interval_s: float, random: Callable[[], float]
    ) -> Link:
        return self._environment.connect(credentials, interval_s, self._send_heartbeat_now)


def member_maker(
    protocol: GroupProtocol,
    *,
    group_id: str,
    bootstrap: Bootstrap,
    settings: WorkerSettings,
    name: str | None = None,
    keep_classic: bool = False,
) -> NewMember:
    """Maker of a worker's members.

    Args:
        name: of the member, whatever the protocol calls it.
        keep_classic: see the setting of session members.
    Raises:
        TypeError, ValueError: as `config_of`, here and now.
    """
    own: dict[str, Any] = {n: value for n, value in settings.items() if n not in OF_WORKERS}
    if name is not None:
        if own.setdefault(NAMES[protocol], name) != name:
            raise TypeError(f"name and {NAMES[protocol]} are one thing: leave one of them out")
    if keep_classic:
        own["keep_classic"] = True
    if protocol == "classic":
        own["max_poll_interval_ms"] = None
        if "assignors" not in own:
            own = {"fallback_assignor": FALLBACK_ASSIGNOR, **own, "assignors": DEFAULT_ASSIGNOR}
    config_of(protocol, group_id, {"a topic": 1}, own)
    own["log_ends"] = None  # The worker reports them.

    def new_member(topics: TopicCounts, environment: Environment) -> Member:
        return _EnvironmentMember(
            environment, bootstrap, group_id, topics, protocol=protocol, **own
        )

    return new_member
