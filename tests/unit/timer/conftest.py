"""Fixtures of the timer tests: tasks that record when they ran."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from timer import Timer, TimerTask


class Note(TimerTask):
    """A task that notes its name, and then does what it was told to."""

    __slots__ = ("name", "ran", "then")

    def __init__(self, name: object, ran: list[object], then: Callable[[], object] | None) -> None:
        super().__init__()
        self.name = name
        self.ran = ran
        self.then = then

    def run(self) -> None:
        self.ran.append(self.name)
        if self.then is not None:
            self.then()


class Notebook:
    """Makes tasks; `ran` has the names of those that ran, in order."""

    def __init__(self) -> None:
        self.ran: list[object] = []

    def task(self, name: object, then: Callable[[], object] | None = None) -> Note:
        return Note(name, self.ran, then)

    def add(self, timer: Timer, *deadlines_ms: int) -> list[Note]:
        """Add a task per deadline, named by its deadline."""
        tasks = [self.task(deadline_ms) for deadline_ms in deadlines_ms]
        for task, deadline_ms in zip(tasks, deadlines_ms, strict=True):
            timer.add(task, deadline_ms)
        return tasks

    def take(self) -> list[object]:
        """Return the tasks that ran since the last call."""
        ran, self.ran[:] = list(self.ran), []
        return ran


@pytest.fixture
def notes() -> Notebook:
    return Notebook()


def slots(timer: Timer) -> dict[tuple[int, int], list[int]]:
    """(level, slot) -> true deadlines of the tasks there; empty slots left out."""
    found = {}
    wheel = timer.wheel
    while wheel is not None:
        for slot, bucket in enumerate(wheel.buckets):
            if not bucket.is_empty:
                found[wheel.level, slot] = [task.deadline_ms for task in bucket]
        wheel = wheel.overflow
    return found


@pytest.fixture(name="slots")
def slots_fixture() -> Callable[[Timer], dict[tuple[int, int], list[int]]]:
    return slots
