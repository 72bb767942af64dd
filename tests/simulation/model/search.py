"""Breadth-first search over everything that may happen, on the shard itself.

A state is what a path of actions leads to from the beginning; it is made again by walking the path,
since the shard cannot be copied. Each new state is checked, by `act`, and expanded once. So the
first path to a violation is one of the shortest.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

Action = tuple[Any, ...]
Path = tuple[Action, ...]


class Space(Protocol):
    """A state, and what may happen in it."""

    is_checked: bool

    def actions(self) -> Iterator[Action]:
        """Actions that are possible now."""
        ...

    def act(self, action: Action) -> None:
        """Let one action happen; with `is_checked`, check what must hold."""
        ...

    def heal(self) -> None:
        """Let everything go well from now on, and check what must hold in the end."""
        ...

    def digest(self) -> bytes:
        """Digest of the state."""
        ...

    def said(self) -> list[str]:
        """Lines for a transcript: what has been said since the last call."""
        ...


@dataclass
class Found:
    """Result of a search. `depth`: all paths of this length were walked."""

    states: int = 0
    transitions: int = 0
    healed: int = 0
    depth: int = 0
    is_whole: bool = True
    violations: dict[str, Path] = field(default_factory=dict)


def search(
    begin: Callable[[], Space],
    *,
    depth: int,
    seconds: float = float("inf"),
    heal_every: int = 0,
    most_violations: int = 1,
) -> Found:
    """Walk all paths up to a depth.

    Args:
        begin: makes the first state.
        seconds: stop then, in the middle of a depth.
        heal_every: one state in so many is healed; 0: none.
        most_violations: kinds of violations after which the search stops.
    """
    found = Found(states=1)
    seen = {begin().digest()}
    frontier: deque[Path] = deque([()])
    until = time.monotonic() + seconds
    for found.depth in range(1, depth + 1):
        level, frontier = frontier, deque()
        for path in level:
            if time.monotonic() > until:
                found.is_whole, found.depth = False, found.depth - 1
                return found
            for action in list(walk(begin, path).actions()):
                space = _try(begin, path, action, found)
                if space is None:
                    if len(found.violations) >= most_violations:
                        found.depth -= 1
                        return found
                    continue
                mark = space.digest()
                if mark in seen:
                    continue
                seen.add(mark)
                found.states += 1
                frontier.append((*path, action))
                if heal_every and mark[0] % heal_every == 0:
                    _heal(space, (*path, action), found)
    return found


def walk(begin: Callable[[], Space], path: Path) -> Space:
    """The state at the end of a path."""
    space = begin()
    for action in path:
        space.act(action)
    return space


def transcript(begin: Callable[[], Space], path: Path) -> list[str]:
    """Actions of a path, and what is said."""
    space, lines = begin(), []
    space.is_checked = True
    try:
        for action in path:
            lines.append(" ".join(map(str, action)))
            if action == ("heal",):
                space.heal()
            else:
                space.act(action)
            lines += [f"    {line}" for line in space.said()]
    except Exception as violated:  # noqa: BLE001  # Whatever it is, it is the end of the path.
        lines += [f"    {line}" for line in space.said()]
        lines.append(f"!!! {type(violated).__name__}: {violated}")
    return lines


def _try(begin: Callable[[], Space], path: Path, action: Action, found: Found) -> Space | None:
    space = walk(begin, path)
    space.is_checked = True
    found.transitions += 1
    try:
        space.act(action)
    except Exception as violated:  # noqa: BLE001  # A bug of any kind.
        found.violations.setdefault(_kind(violated), (*path, action))
        return None
    space.is_checked = False
    return space


def _heal(space: Space, path: Path, found: Found) -> None:
    found.healed += 1
    try:
        space.heal()
    except Exception as violated:  # noqa: BLE001  # A bug of any kind.
        found.violations.setdefault(_kind(violated), (*path, ("heal",)))


def _kind(violated: Exception) -> str:
    return f"{type(violated).__name__} {str(violated).split(': ')[-1][:24]}"
