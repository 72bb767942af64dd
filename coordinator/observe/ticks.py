"""Round times on the axes of pictures."""

from __future__ import annotations

STEPS_MS = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000,
    60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000,
)  # fmt: skip
TICKS_MAX = 12


def tick_step(length_ms: float) -> int:
    """The smallest round step, in milliseconds, with at most `TICKS_MAX` steps in a length.

    Above twelve hours it is a whole number of hours.
    """
    for step_ms in STEPS_MS:
        if length_ms / step_ms <= TICKS_MAX:
            return step_ms
    hour_ms = STEPS_MS[-1]
    return -(-round(length_ms) // (TICKS_MAX * hour_ms)) * hour_ms


def ticks(begin_ms: int, end_ms: int) -> range:
    """Times of the ticks between two times, multiples of one round step; 0 is one if inside."""
    step_ms = tick_step(end_ms - begin_ms)
    return range(-(-begin_ms // step_ms) * step_ms, end_ms + 1, step_ms)


def tick_label(at_ms: int, step_ms: int) -> str:
    """A time in the unit of its step: `-5 s`, `0.2 s`, `20 ms`."""
    sign, at_ms = "−" * (at_ms < 0), abs(at_ms)
    if step_ms < 100:
        return f"{sign}{at_ms} ms"
    return f"{sign}{at_ms / 1_000:g} s"
