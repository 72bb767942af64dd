"""kazoo's client for the event loop.

kazoo talks to the servers in a thread of its own, which hands answers and events to the loop in the
order in which they came. kazoo would hand them to two more threads first: under load each change of
threads costs up to 5 ms, the switch interval of the interpreter, and the order would be lost.

Source: https://kazoo.readthedocs.io/en/latest/async_usage.html
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.security import make_digest_acl

from coordinator.storage.access import StoreAccess
from coordinator.storage.log import Ambiguous, CannotOpen, LogUnavailable

START_TIMEOUT_S = 15.0
CALL_TIMEOUT_S = 3.0

_DOUBTFUL = (ConnectionLoss, ConnectionClosedError, OperationTimeoutError, SessionExpiredError)


class _AtOnce(queue.Queue[Any]):
    """Runs what is put, in the thread that puts it; callbacks here only post to the loop."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        if callable(item):
            item()
        else:  # The word by which kazoo ends the thread that would run callbacks.
            super().put(item, block, timeout)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types.
    queue_impl = _AtOnce


class ZooKeeperClient:
    """One session with an ensemble.

    Args:
        session_timeout_s: session timeout that the servers are asked for.
    """

    def __init__(self, access: StoreAccess, session_timeout_s: float) -> None:
        self.endpoints = access.endpoints
        identity = f"{access.user}:{access.password}"
        self.kazoo = KazooClient(
            ",".join(access.endpoints),
            timeout=session_timeout_s,
            handler=_Handler(),
            auth_data=[("digest", identity)] if access.user else None,
            default_acl=(
                [make_digest_acl(access.user, access.password, all=True)] if access.user else None
            ),
            use_ssl=access.ca_file is not None,
            ca=str(access.ca_file) if access.ca_file else None,
            certfile=str(access.cert_file) if access.cert_file else None,
            keyfile=str(access.key_file) if access.key_file else None,
            verify_certs=access.ca_file is not None,
        )
        self.granted_s = session_timeout_s
        """Session timeout that the servers have granted, once there is a connection."""
        self._note_what_is_granted()

    async def start(self, prepare: Callable[[KazooClient], None]) -> None:
        """Connect, and call `prepare`, which may block, in another thread.

        Raises:
            CannotOpen: no server answers, or `prepare` raises it.
        """
        try:
            await asyncio.to_thread(self.kazoo.start, START_TIMEOUT_S)
            await asyncio.to_thread(prepare, self.kazoo)
        except (KazooTimeoutError, KazooException, OSError) as error:
            await self.close()
            reason = str(error) or type(error).__name__
            raise CannotOpen(f"{','.join(self.endpoints)}: {reason}") from error
        except CannotOpen:
            await self.close()
            raise

    async def close(self) -> None:
        """End the session."""
        await asyncio.to_thread(self.kazoo.stop)
        await asyncio.to_thread(self.kazoo.close)

    async def request(self, method: str, *arguments: Any, **more: Any) -> Any:
        """Call a method of the client, such as `get` or `create`, and return its answer.

        Raises:
            LogUnavailable: the call was not sent. Ambiguous: it was sent, and has no answer.
            KazooException: ZooKeeper refused it.
        """
        return await self._answer_of(getattr(self.kazoo, f"{method}_async"), *arguments, **more)

    async def commit(self, transaction: Any) -> list[Any]:
        """Commit a transaction, and return a result or an exception for each of its parts.

        Raises:
            Unavailable, Ambiguous: as `request`.
        """
        results: list[Any] = await self._answer_of(transaction.commit_async)
        return results

    async def read(self, path: str) -> tuple[bytes, Any]:
        """Read a node's data and stat, after a `sync`.

        Raises:
            LogUnavailable: there is no answer. KazooException: ZooKeeper refused it.
        """
        try:
            result: tuple[bytes, Any] = await self.request_after_sync("get", path)
        except Ambiguous as error:
            raise LogUnavailable(str(error)) from error  # A read has changed nothing.
        return result

    async def request_after_sync(self, method: str, path: str) -> Any:
        """`request` after a `sync`. A session's requests are answered in order: both go at once."""
        _, answer = await asyncio.gather(self.request("sync", path), self.request(method, path))
        return answer

    def _note_what_is_granted(self) -> None:
        """Record the granted timeout: not public in kazoo, but `_connect` returns 2/3 of it."""
        connection: Any = self.kazoo._connection  # No public attribute has it.
        connect = connection._connect

        def noting(*where: Any) -> tuple[float, float]:
            read_timeout_ms, connect_timeout_ms = connect(*where)
            self.granted_s = read_timeout_ms * 1.5 / 1000
            return read_timeout_ms, connect_timeout_ms

        connection._connect = noting

    async def _answer_of(self, method: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        if self.kazoo.state != KazooState.CONNECTED:
            raise LogUnavailable(f"ZooKeeper: the connection is {self.kazoo.state.lower()}")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def answered(result: Any) -> None:
            with contextlib.suppress(RuntimeError):  # The loop has been closed.
                loop.call_soon_threadsafe(_hand_over, result, future)

        method(*arguments, **more).rawlink(answered)
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                return await future
        except _DOUBTFUL as error:
            raise Ambiguous(f"ZooKeeper: {type(error).__name__}") from error
        except TimeoutError as error:
            raise Ambiguous(f"ZooKeeper: no answer for {CALL_TIMEOUT_S:.0f} s") from error
        except AuthFailedError as error:
            raise LogUnavailable("ZooKeeper: the login was refused", is_lasting=True) from error


def _hand_over(result: Any, future: asyncio.Future[Any]) -> None:
    if future.done():
        return
    if result.exception is None:
        future.set_result(result.value)
    else:
        future.set_exception(result.exception)
