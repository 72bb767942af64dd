"""Rows of the dispatch table: a command's handler, and what happens if its group is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from coordinator.core.classic.group import ClassicGroup
from coordinator.core.errors import ErrorCode
from coordinator.core.group import Group
from coordinator.core.outcome import Outcome

# Any: the commands of its row.
Handler = Callable[[ClassicGroup, Any, int, Outcome], None]
GivenHandler = Callable[[Any, ClassicGroup, Any, int, Outcome], None]
"""Its first argument is the machine."""
SharedHandler = Callable[[Group, Any, Outcome], None]
Timeless = Callable[[Any, Outcome], None]


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request is refused."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Answer:
    """The request is answered without a group."""

    answer: Timeless


@dataclass(frozen=True, slots=True)
class Create:
    """The request creates the group, which stays unless it is vacant afterwards.

    Args:
        check: raises `Refused` if the request may not create one.
    """

    check: Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Ignore:
    """A follow-up that is too late is ignored; also if the group is Dead."""


IfMissing = Refuse | Answer | Create | Ignore
IGNORE = Ignore()


@dataclass(frozen=True, slots=True)
class SharedRow:
    """A request that concerns one group of any kind."""

    handle: SharedHandler
    if_missing: Refuse | Answer


@dataclass(frozen=True, slots=True)
class Row:
    """A command that concerns one classic group."""

    handle: Handler
    if_missing: IfMissing


@dataclass(frozen=True, slots=True)
class GivenRow:
    """A row whose handler needs a setting, or other state of the machine."""

    handle: GivenHandler
    if_missing: IfMissing


def timeless(handle: Callable[[ClassicGroup, Any, Outcome], None]) -> Handler:
    """Adapt a handler that does not take the time."""
    return lambda group, command, _now_ms, out: handle(group, command, out)
