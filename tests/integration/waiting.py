"""Waiting for what sets no event."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tests.kit.patience import HANG_S

LOOK_S = 0.02


async def until(holds: Callable[[], object], within_s: float = HANG_S) -> None:
    """On a loop. Raises TimeoutError if it does not come to that."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110  # What it waits for sets no event.
            await asyncio.sleep(LOOK_S)


def wait_until(holds: Callable[[], object], within_s: float = HANG_S) -> None:
    """Wait for a condition in blocking code. Raises TimeoutError if it never holds."""
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("it has not come to that")
        time.sleep(LOOK_S)
