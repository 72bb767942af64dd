"""Log lines about refused requests: at most one a second, and none is lost from the count."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest
from structlog.testing import CapturingLogger

from coordinator.cli.event_sinks import RefusalLog

pytestmark = pytest.mark.virtual_time


def counts(logger: CapturingLogger) -> list[tuple[str, int]]:
    """Method and number of refusals of each line."""
    return [(call.kwargs["method"], call.kwargs.get("refused", 1)) for call in logger.calls]


async def test_ten_thousand_refusals_at_once_are_two_lines():
    logger = CapturingLogger()
    log = RefusalLog(logger)
    for number in range(10_000):
        log.refused("Frame", f"10.0.0.1:{number}", "no frame")
    assert counts(logger) == [("Frame", 1)], "the first is told at once"
    await asyncio.sleep(3)
    assert counts(logger) == [("Frame", 1), ("Frame", 9_999)]
    assert logger.calls[-1].kwargs["peer"] == "10.0.0.1:9999"


async def test_refusals_without_end_are_a_line_a_second_for_each_method():
    logger = CapturingLogger()
    log = RefusalLog(logger)
    for _ in range(50):
        log.refused("Frame", "peer", "no frame")
        log.refused("JoinGroup", "peer", "no group")
        await asyncio.sleep(0.1)
    await asyncio.sleep(2)
    for method in ("Frame", "JoinGroup"):
        told = [count for each, count in counts(logger) if each == method]
        assert len(told) <= 6
        assert sum(told) == 50


async def test_a_refusal_after_a_quiet_second_is_told_at_once():
    logger = CapturingLogger()
    log = RefusalLog(logger)
    for _ in range(3):
        log.refused("Frame", "peer", "no frame")
        await asyncio.sleep(1.1)
    assert counts(logger) == [("Frame", 1)] * 3


async def test_a_line_that_counts_has_the_context_of_the_newest():
    seen = []
    asking: ContextVar[str] = ContextVar("asking")

    class Logger:
        def warning(self, _event: str, **_about: object) -> None:
            seen.append(asking.get())

    log = RefusalLog(Logger())
    for name in ("first", "second", "third"):
        asking.set(name)
        log.refused("Frame", "peer", "no frame")
    asking.set("later")
    await asyncio.sleep(2)
    assert seen == ["first", "third"]
