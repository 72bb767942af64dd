"""Reports of a simulated loop: errors, and tasks pending when nothing is left to do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from inspect import iscoroutine
from typing import Any, Final

from coordinator.testing.engine.handles import SimulatedTask
from coordinator.testing.engine.process import Process

SHOWN_MAX: Final = 20


class ErrorReports(asyncio.AbstractEventLoop):
    """Errors that reach the loop, as asyncio's own loops treat them."""

    def __init__(self) -> None:
        self._debug = False
        self._exception_handler: Callable[[Any, dict[str, Any]], object] | None = None

    def get_exception_handler(self) -> Any:
        return self._exception_handler

    def set_exception_handler(self, handler: Any) -> None:
        self._exception_handler = handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Log it as asyncio's own loops do, with the process that it happened in."""
        message = context.get("message") or "Unhandled exception in event loop"
        rest = [
            f"{name}: {context[name]!r}"
            for name in sorted(context)
            if name not in {"message", "exception"}
        ]
        logging.getLogger("asyncio").error(
            "\n".join([message, *rest]), exc_info=context.get("exception")
        )

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an error, unless it is what a dead process has left behind."""
        left = context.get("task") or context.get("future")
        process = getattr(left, "process", None)
        if process is not None and process.is_dead:
            return
        if self._exception_handler is None:
            self.default_exception_handler(context)
            return
        try:
            self._exception_handler(self, context)
        except Exception as error:  # noqa: BLE001 - as asyncio's loops do.
            self.default_exception_handler(
                {"message": "Unhandled error in exception handler", "exception": error}
            )

    def get_debug(self) -> bool:
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        self._debug = enabled


def describe_pending(
    true_ns: int, paused: Sequence[Process], tasks: Sequence[SimulatedTask[Any]]
) -> str:
    """The processes that are paused, and what each unfinished task of the living waits for."""
    pending = [task for task in tasks if not task.process.is_dead]
    lines = [
        f"at {true_ns / 1e9} s nothing is left to do, and still pending are:",
        *(f"  {process!r}" for process in paused),
        *(f"  {_describe_task(task)}" for task in pending[:SHOWN_MAX]),
    ]
    if len(pending) > SHOWN_MAX:
        lines.append(f"  and {len(pending) - SHOWN_MAX} tasks more")
    return "\n".join(lines)


def _describe_task(task: SimulatedTask[Any]) -> str:
    """Name, process, and where the innermost coroutine waits."""
    waits: Any = task.get_coro()
    while iscoroutine(waits) and iscoroutine(waits.cr_await):
        waits = waits.cr_await
    frame = waits.cr_frame if iscoroutine(waits) else None
    location = f"{frame.f_code.co_qualname}, line {frame.f_lineno}" if frame else repr(waits)
    return f"{task.get_name()} of {task.process.name} at {location}"
