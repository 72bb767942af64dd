"""Plan of a worker: its settings and functions, from which each of its runs is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coordinator.client.log_ends import LogEnds
from coordinator.client.member.face import Member
from coordinator.client.worker.environment import Environment
from coordinator.client.worker.handlers import Handlers
from coordinator.client.worker.policy import Limits
from coordinator.client.worker.positions import StartPolicy
from coordinator.client.worker.topics import WorkerTopics

if TYPE_CHECKING:
    from coordinator.client.embedding.nodes import Embedded

NewMember = Callable[[Mapping[str, int], Environment], Member]
"""Makes the member of a run, or lends one; called on the protocol's loop, with the topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
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
