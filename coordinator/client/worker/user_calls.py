"""Calls of functions that a worker was given beside its handlers: `topics`, `start`, `log_ends`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from coordinator.client.worker.environment import Environment
from coordinator.client.worker.handlers import is_coroutine_function

T = TypeVar("T")


class UserCalls:
    """Calls from the protocol's loop, which no function may block."""

    def __init__(self, environment: Environment, loop: asyncio.AbstractEventLoop) -> None:
        self._environment, self._loop = environment, loop

    async def ask(self, function: Callable[..., T | Awaitable[T]], *args: Any) -> T:
        """Call a user's function, which may be `async def`; any other is called in a thread."""
        if is_coroutine_function(function):
            result = function(*args)
        else:
            result = await self.in_thread(function, *args)
        return await result if inspect.isawaitable(result) else result

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function in a thread that does not keep the interpreter from exiting."""
        future: asyncio.Future[T] = self._loop.create_future()

        def work() -> None:
            try:
                settle, outcome = future.set_result, function(*args)
            except BaseException as error:  # noqa: BLE001  # Its caller hears of it.
                settle, outcome = future.set_exception, error  # type: ignore[assignment]
            self._environment.post(lambda: future.done() or settle(outcome))

        self._environment.start_thread(work, f"worker-{getattr(function, '__name__', 'call')}")
        return await future
