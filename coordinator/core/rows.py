"""Rows of the table of commands: what a command does to a group of each kind, and without one.

Every handler is called as `handle(table, group, command, now_ms, out)`. Most need less: `timed`,
`timeless`, `configured` and `reconciled` adapt those that say so by their arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from coordinator.core.classic.group import ClassicGroup
from coordinator.core.config import GroupConfig
from coordinator.core.effects import Effects
from coordinator.core.errors import ErrorCode
from coordinator.core.group import Group
from coordinator.core.group_table import GroupTable
from coordinator.core.sessions import reconciling
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.step import Step

G = TypeVar("G", bound=Group)
G_contra = TypeVar("G_contra", bound=Group, contravariant=True)
# Any: the commands of a row.
Handler: TypeAlias = Callable[[GroupTable, G, Any, int, Effects], None]
HandlerWithoutGroup: TypeAlias = Callable[[GroupTable, Any, int, Effects], None]


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request is refused."""

    error: ErrorCode
    message: str = ""


@dataclass(frozen=True, slots=True)
class Ignore:
    """A follow-up that is too late, or whose group has become another one, is ignored."""


@dataclass(frozen=True, slots=True)
class Create:
    """The request creates a classic group, which stays unless it is vacant afterwards.

    Args:
        check: raises `Refused` if the request may not create one.
    """

    check: Callable[[Any], None] = lambda _: None


IGNORE = Ignore()


@dataclass(frozen=True, slots=True)
class Row:
    """A command that concerns one group, by the kind of the group.

    missing: there is no such group; for what is no request, also if the group is Dead.
    """

    classic: Handler[ClassicGroup] | Refuse | Ignore
    session: Handler[SessionGroup] | Refuse | Ignore
    missing: HandlerWithoutGroup | Create | Refuse | Ignore


@dataclass(frozen=True, slots=True)
class ShardCommandRow:
    """A command that concerns many groups, or none. The handler's first argument is the machine."""

    handle: Callable[[Any, Any, int, Effects], None]


class _Configured(Protocol[G_contra]):
    def __call__(
        self,
        group: G_contra,
        command: Any,
        now_ms: int,
        out: Effects,
        /,
        *,
        config: GroupConfig,
    ) -> None: ...


def timed(handle: Callable[[G, Any, int, Effects], None]) -> Handler[G]:
    """Adapt a handler that needs nothing of the shard."""
    return lambda _, group, command, now_ms, out: handle(group, command, now_ms, out)


def timeless(handle: Callable[[G, Any, Effects], None]) -> Handler[G]:
    """Adapt a handler that does not need the time either."""
    return lambda _, group, command, _now_ms, out: handle(group, command, out)


def configured(handle: _Configured[G]) -> Handler[G]:
    """Adapt a handler that needs the settings, as `config`."""
    return lambda table, group, command, now_ms, out: handle(
        group, command, now_ms, out, config=table.config
    )


def groupless(answer: Callable[[Any, Effects], None]) -> Handler[Group]:
    """Adapt an answer that needs no group."""
    return lambda _table, _group, command, _now_ms, out: answer(command, out)


def without(answer: Callable[[Any, Effects], None]) -> HandlerWithoutGroup:
    """Adapt an answer to a request whose group is missing."""
    return lambda _table, command, _now_ms, out: answer(command, out)


def reconciled(
    handle: reconciling.SessionHandler,
) -> Handler[SessionGroup]:
    """Adapt a handler of session groups, which reconciles the group, and drops it if it is unused.

    See `reconciling.handle`.
    """

    def handle_and_reconcile(
        table: GroupTable, group: SessionGroup, command: Any, now_ms: int, out: Effects
    ) -> None:
        try:
            reconciling.handle(handle, group, command, Step(now_ms, out, table.context))
        finally:
            if group.is_unused:
                del table.groups[group.group_id]

    return handle_and_reconcile
