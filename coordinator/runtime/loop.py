"""The event loop of a node."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Coroutine
from typing import Any


def run(main: Coroutine[Any, Any, int]) -> int:  # Any: nothing is sent into it.
    """Run a coroutine to its end, on uvloop where it is installed, else on asyncio's own loop."""
    if sys.platform != "win32":
        with contextlib.suppress(ImportError):
            import uvloop

            return int(uvloop.run(main))
    return asyncio.run(main)
