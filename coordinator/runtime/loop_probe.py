"""Probe of the event loop, four times a second: its lag, queued calls, and memory.

It sleeps on the loop alone, so it is late whenever anything is, also when no timer was due.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from coordinator.core.pauses import Pause
from coordinator.runtime.local_pauses import LocalPauses
from coordinator.runtime.memory import resident_bytes

if TYPE_CHECKING:
    from timer.clock import Clock

PROBE_S = 0.25
PROBES_A_MINUTE = 240
LAGS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class LoopProbe:
    """Measurements of how late a node hears its callers.

    Args:
        clock: epoch milliseconds, monotonic.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._local_pauses = LocalPauses(clock.now_ms())
        self._task: asyncio.Task[None] | None = None
        self.queue_age: Callable[[float], float] = lambda now_s: 0.0
        """Returns the wait, in seconds, of the oldest call that is not served yet."""
        self.memory: Callable[[], int] = resident_bytes
        """Returns the resident memory of this process, in bytes."""
        self.queue_age_s = 0.0
        self.lag_s = 0.0
        self.lag_counts = [0] * (len(LAGS_S) + 1)
        """Number of probes by lag, bounds in `LAGS_S`; the last counts lags above all bounds."""
        self.lag_total_s = 0.0
        self.memory_bytes = 0
        self.each_minute: Callable[[], None] = lambda: None
        """Called after every minute of probes."""
        self._last_minute: deque[float] = deque(maxlen=PROBES_A_MINUTE)
        self._probes = 0

    def start(self) -> None:
        """Begin to probe on the running loop."""
        self.pauses(self._clock.now_ms())
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def pauses(self, now_ms: int) -> tuple[Pause, ...]:
        """Pauses as of now; counts as a look, see `local_pauses`."""
        return self._local_pauses.measure(now_ms)

    @property
    def is_paused(self) -> bool:
        """True in a pause, while silence does not count against sessions."""
        return self._local_pauses.is_paused

    @property
    def paused_s(self) -> float:
        """Total length of all pauses, in seconds."""
        return self._local_pauses.total_ms / 1000

    @property
    def lag_p99_s(self) -> float:
        """99th percentile of the lag over the last minute, in seconds. Any thread may ask."""
        lags = sorted(self._last_minute)
        return lags[len(lags) * 99 // 100] if lags else 0.0

    def measured(self, lag_s: float) -> None:
        """Count a lag that was measured, in seconds."""
        self.lag_s = lag_s
        self.lag_counts[bisect_left(LAGS_S, lag_s)] += 1
        self.lag_total_s += lag_s
        self._last_minute.append(lag_s)
        self._probes += 1
        if self._probes % PROBES_A_MINUTE == 0:
            self.each_minute()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + PROBE_S
            await asyncio.sleep(PROBE_S)
            self.measured(max(0.0, loop.time() - due))
            self.queue_age_s = self.queue_age(loop.time())
            self._local_pauses.measure(self._clock.now_ms(), round(1000 * self.queue_age_s))
            self.memory_bytes = self.memory()
