"""Cases, and what becomes of them: many are played at a time, each in a group of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Generic, TypeVar

import grpc

from coordinator.testing.conformance.trial import Disturbed, Failed, Trial, now_s

ATTEMPTS = 3
"""Times that a case is played before it counts as disturbed."""


T = TypeVar("T", bound=Trial)


NewTrial = Callable[[str, int], AbstractAsyncContextManager[T]]


@dataclass(frozen=True, slots=True)
class Case(Generic[T]):
    """One rule, and how to see that it is kept.

    rule: section of `deploy/docs/sessions.md`.
    """

    name: str
    rule: str
    title: str
    play: Callable[[T], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Result:
    """The end of a case. problem: None if the rule was kept."""

    name: str
    rule: str
    title: str
    problem: str | None
    transcript: tuple[str, ...]
    seconds: float


class Cases(Generic[T]):
    """Cases of one kind of subject, in the order in which they were written."""

    def __init__(self) -> None:
        self.all: list[Case[T]] = []

    def __call__(
        self, rule: str
    ) -> Callable[[Callable[[T], Awaitable[None]]], Callable[[T], Awaitable[None]]]:
        """Add a function; its name is the case's, and its docstring the title."""

        def add(play: Callable[[T], Awaitable[None]]) -> Callable[[T], Awaitable[None]]:
            name, title = play.__name__.replace("_", "-"), (play.__doc__ or "").strip()
            self.all.append(Case(name, rule, " ".join(title.split()), play))
            return play

        return add


def matching(cases: Iterable[Case[T]], words: Iterable[str]) -> list[Case[T]]:
    """Cases whose names have one of the words; all, if there are no words."""
    wanted = list(words)
    return [case for case in cases if not wanted or any(word in case.name for word in wanted)]


async def play_all(
    cases: Iterable[Case[T]],
    new_trial: NewTrial[T],
    *,
    at_a_time: int,
    guard_s: float,
) -> AsyncIterator[Result]:
    """Play cases; results come as they end.

    Args:
        new_trial: makes one, for the name of a case and the number of its attempt; leases grow
            with that.
        guard_s: a case that takes longer has failed.
    """
    turns = asyncio.Semaphore(at_a_time)

    async def one(case: Case[T]) -> Result:
        async with turns:
            return await _play(case, new_trial, guard_s)

    tasks = [asyncio.create_task(one(case)) for case in cases]
    try:
        for ended in asyncio.as_completed(tasks):
            yield await ended
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _play(case: Case[T], new_trial: NewTrial[T], guard_s: float) -> Result:
    began = now_s()
    problem: str | None = None
    lines: list[str] = []
    for attempt in range(1, ATTEMPTS + 1):
        async with new_trial(case.name, attempt) as trial:
            problem = await _outcome(case, trial, guard_s)
            lines = trial.transcript.lines
        if problem is None or trial.disturbed is None:
            break
        problem = f"this machine is too slow for the lease: {trial.disturbed}"
    took = now_s() - began
    return Result(case.name, case.rule, case.title, problem, tuple(lines), took)


async def _outcome(case: Case[T], trial: T, guard_s: float) -> str | None:
    """The problem, if there is one."""
    try:
        async with asyncio.timeout(guard_s):
            await case.play(trial)
    except (Failed, Disturbed) as problem:
        return str(problem)
    except TimeoutError:
        return f"not over after {guard_s:.0f} s"
    except (LookupError, ValueError) as error:
        return f"it was told something else than the case expects: {error!r}"
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name}: {error.details()}"
    return None
