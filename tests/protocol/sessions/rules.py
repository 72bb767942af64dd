"""Rules of the session protocol: each is a case, which plays the other side and checks that side's.

`coordinator_rules` plays members before a coordinator, `member_rules` the coordinator before a
member. The functions are not tests themselves: some are played on virtual time and over gRPC.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tests.protocol.sessions.trial import Trial

T = TypeVar("T", bound=Trial)
Play = Callable[[T], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case(Generic[T]):
    """One rule, and how to see that it is kept.

    rule: section of `deploy/docs/sessions.md`.
    """

    name: str
    rule: str
    play: Play[T]


class Cases(Generic[T]):
    """Cases in the order in which they were written."""

    def __init__(self) -> None:
        self.all: list[Case[T]] = []

    def __call__(self, rule: str) -> Callable[[Play[T]], Play[T]]:
        """Add a function; its docstring is the rule in words."""

        def add(play: Play[T]) -> Play[T]:
            self.all.append(Case(play.__name__.replace("_", "-"), rule, play))
            return play

        return add
