"""Ctrl-C and SIGTERM, for members and workers: they leave their groups, and the process ends.

`SignalGuard` is of the `with` of a member: it takes only signals that nobody else handles, in the
main thread, until the `with` ends. The exception passes through the caller's code like any other;
if it ends the process, that is without a traceback, by its exit status (130, 143). The second
signal does not wait for the leave. `signals_handled` is of `Worker.run`, which takes both.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from functools import partial
from types import FrameType
from typing import Any, ClassVar

from coordinator.client.errors import reason_of

SIGNALS = (signal.SIGINT, signal.SIGTERM)
LOOK_S = 0.01


class Interrupted(SystemExit, KeyboardInterrupt):
    """Ctrl-C: a KeyboardInterrupt for those that catch one, else an exit with status 130."""


class Terminated(SystemExit):
    """SIGTERM: an exit with status 143."""


def closing_reason(error: BaseException | None) -> str:
    """Reason for closing a member at the end of a `with`, sent to the coordinator."""
    match error:
        case None | GeneratorExit():
            return "closed"
        case KeyboardInterrupt():
            return "interrupted (Ctrl-C)"
        case Terminated():
            return "terminated (SIGTERM)"
        case SystemExit(code=code):
            return "exited" if code is None else f"exited with {code}"
        case asyncio.CancelledError() | futures.CancelledError():
            return "cancelled"
    return f"failed: {reason_of(error)}"


class SignalGuard:
    """Takes the signals of one `with`. `error`: the exception of the first one.

    Args:
        cancel: cancels the task of an `async with`; None: the handler raises the exception.
    """

    _leaving: ClassVar[set[SignalGuard]] = set()

    def __init__(self, cancel: Callable[[], object] | None = None) -> None:
        self.error: BaseException | None = None
        self._cancel = cancel
        self._is_active = False
        self._before: dict[int, Any] = {}  # Any: what signal.getsignal returns.

    def install(self) -> None:
        """Take the signals that nobody else handles; nothing outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._is_active = True
        for number in SIGNALS:
            before = signal.getsignal(number)
            if _is_free(before):
                self._before[number] = before
                signal.signal(number, self._handle)

    def remove(self) -> None:
        """Put the former handlers back, unless another handler was installed on top."""
        self._is_active = False
        self._leaving.discard(self)
        for number, before in self._before.items():
            if signal.getsignal(number) == self._handle:
                # Another guard below may have ended meanwhile.
                while (guard := _guard_of(before)) is not None and not guard._is_active:
                    before = guard._before[number]
                signal.signal(number, before)

    async def has_left(self) -> None:
        """End the loop with the error, once the members of other tasks have left too.

        To be called after `remove`. A callback raises it: of a task asyncio would report that it
        was never retrieved.
        """
        assert self.error is not None
        if not self._leaving:
            asyncio.get_running_loop().call_soon(_raise, self.error)
        while self._leaving:  # noqa: ASYNC110  # An event would need an owner; it is a last moment.
            await asyncio.sleep(LOOK_S)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        error = Interrupted(130) if number == signal.SIGINT else Terminated(143)
        before = self._before[number]
        below = _guard_of(before)
        if not self._is_active and callable(before):
            before(number, frame)
        elif not self._is_active or self.error is not None or self._cancel is None:
            self.error = self.error or error
            raise error
        else:
            self.error = error
            self._leaving.add(self)
            self._cancel()
            if below is not None and below._cancel is not None:
                before(number, frame)


class EndNow(KeyboardInterrupt):
    """The second signal: whatever runs in the main thread is left."""


@contextlib.contextmanager
def signals_handled(stop: Callable[[str, int | None, bool], None]) -> Iterator[None]:
    """Have SIGINT and SIGTERM stop a worker, in the main thread only; the second ends it at once.

    A signal that is ignored stays so: a shell without job control starts background jobs with
    SIGINT ignored, so that Ctrl-C does not reach them. The former handlers are put back at the end.

    Args:
        stop: given the reason, the time to finish in milliseconds (None: the usual one), and
            whether to give up a place that is kept.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    count = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        name = signal.Signals(number).name
        if count == 1:
            stop(f"stopped by {name}", None, False)
            return
        stop(f"stopped by a second {name}", 0, True)
        raise EndNow

    before = {
        number: signal.signal(number, handle)
        for number in SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            # None: it was not set from Python, and cannot be put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _raise(error: BaseException) -> None:
    raise error


def _guard_of(handler: object) -> SignalGuard | None:
    owner = getattr(handler, "__self__", None)
    return owner if isinstance(owner, SignalGuard) else None


def _is_free(handler: object) -> bool:
    """True of the handlers of Python and `asyncio.run`, and of other members'."""
    if isinstance(handler, partial):
        return isinstance(getattr(handler.func, "__self__", None), asyncio.Runner)
    return handler in (signal.SIG_DFL, signal.default_int_handler) or _guard_of(handler) is not None
