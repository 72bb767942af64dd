"""What was measured, and on what."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping

Figures = dict[str, float | int | str]
ROUNDS = 15


def machine() -> Figures:
    """What it was measured on."""
    import grpc

    return {
        "python": platform.python_version(),
        "grpcio": grpc.__version__,
        "cores": os.cpu_count() or 0,
        "system": platform.platform(),
    }


def best_of(
    loops: Mapping[str, Callable[[], object]], *, each: int = 1, rounds: int = ROUNDS
) -> dict[str, float]:
    """Nanoseconds an operation, the best of several rounds taken in turn.

    Args:
        each: operations in one call of a loop.
    """
    best = dict.fromkeys(loops, float("inf"))
    for _ in range(rounds):
        for name, run in loops.items():
            began = time.perf_counter_ns()
            run()
            best[name] = min(best[name], (time.perf_counter_ns() - began) / each)
    return best
