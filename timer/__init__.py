"""Hierarchical timing wheel, delayed operations and their purgatory.

Start and stop of a timer are O(1), an idle clock costs nothing, and nothing in
here reads a clock unless it is handed one. `timer.aio` ties a timer to asyncio
and is not imported from here, so that the rest stays free of event loops.
"""

from timer.clock import Clock, MonotonicClock, VirtualClock
from timer.operation import DelayedOperation
from timer.purgatory import Purgatory
from timer.task import TimerTask
from timer.timer import Timer

__all__ = [
    "Clock",
    "DelayedOperation",
    "MonotonicClock",
    "Purgatory",
    "Timer",
    "TimerTask",
    "VirtualClock",
]
