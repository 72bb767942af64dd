"""HTTP server of one page: a thread with an event loop for connections, and threads for handlers.

The event loop is not the node's: a scrape of many groups, or a slow client, cost the node no more
than CPU time. At most `HANDLERS_MAX` handlers run at a time. When `CONNECTIONS_MAX` connections are
open, a new one closes the one that has been idle for longest.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from http import HTTPStatus

from coordinator.web.connection import READ_BYTES, HttpConnection
from coordinator.web.messages import Handler, HttpRequest, Response, text

TIMEOUT_S = 30.0
HANDSHAKE_S = 10.0
CONNECTIONS_MAX = 256
HANDLERS_MAX = 4
ACCEPT_AGAIN_S = 0.5
"""Seconds until the next accept after one failed, usually for lack of file descriptors."""

_LOG = logging.getLogger(__name__)


class Page:
    """HTTP server for a handler; serves until it is closed.

    Args:
        name: name of the page, for threads and logs.
        tls: returns the context for each connection, so that certificates can be rotated; None:
            plain text.
        timeout_s: seconds for a request to be received, and for a response to be read.
    Raises:
        OSError: the address cannot be bound.
    """

    def __init__(
        self,
        name: str,
        address: tuple[str, int],
        handler: Handler,
        tls: Callable[[], ssl.SSLContext] | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        host, port = address[0].strip("[]"), address[1]
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=128)
        self._listener.setblocking(False)
        self._name = name
        self._handler = handler
        self._tls = tls
        self._timeout_s = timeout_s
        scheme = "http" if tls is None else "https"
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{scheme}://{shown}:{self._listener.getsockname()[1]}/"
        # asyncio's own event loop, not uvloop: a page has few requests.
        self._loop = asyncio.SelectorEventLoop()
        self._connections: set[asyncio.Task[None]] = set()
        self._waiting: dict[asyncio.Task[None], None] = {}
        """Idle connections, the one that has been idle for longest first."""
        self._turns = asyncio.Semaphore(HANDLERS_MAX)
        self._thread = threading.Thread(target=self._run, name=f"coordinator-{name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving; responses under way are cut off."""
        with contextlib.suppress(RuntimeError):  # The loop has ended by itself.
            self._loop.call_soon_threadsafe(self._end)
        self._thread.join()
        self._listener.close()

    # --- In the thread ---

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            with contextlib.suppress(asyncio.CancelledError):
                runner.run(self._accept())

    def _end(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    async def _accept(self) -> None:
        while True:
            try:
                raw, peer = await self._loop.sock_accept(self._listener)
            except OSError as error:
                _LOG.warning("%s: no connection can be taken: %s", self._name, error)
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            if len(self._connections) >= CONNECTIONS_MAX:
                if not self._waiting:
                    raw.close()
                    continue
                self._make_way(next(iter(self._waiting)))
            task = self._loop.create_task(self._serve(raw, f"{peer[0]}:{peer[1]}"))
            self._connections.add(task)
            self._waiting[task] = None
            task.add_done_callback(self._make_way)

    def _make_way(self, task: asyncio.Task[None]) -> None:
        """Close a connection, or remove one that has ended."""
        task.cancel()
        self._connections.discard(task)
        self._waiting.pop(task, None)

    async def _serve(self, raw: socket.socket, peer: str) -> None:
        task = asyncio.current_task()
        assert task is not None

        def set_waiting(waiting: bool) -> None:
            self._waiting.pop(task, None)
            if waiting and task in self._connections:
                self._waiting[task] = None

        with raw:
            try:
                reader, writer = await self._open(raw)
                session = writer.get_extra_info("ssl_object")
                certificate = None if session is None else session.getpeercert()
                await HttpConnection(
                    reader,
                    writer,
                    self._answer,
                    peer=peer,
                    certificate=certificate,
                    timeout_s=self._timeout_s,
                    set_waiting=set_waiting,
                ).serve()
            except OSError:
                pass  # The client has gone or timed out, or the handshake failed.
            except Exception:  # noqa: BLE001  # The page goes on.
                _LOG.exception("%s: a connection failed", self._name)

    async def _open(self, raw: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader = asyncio.StreamReader(limit=READ_BYTES, loop=self._loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self._loop)
        context = None if self._tls is None else self._tls()
        raw.setblocking(False)
        transport, _ = await self._loop.connect_accepted_socket(
            lambda: protocol,
            raw,
            ssl=context,
            ssl_handshake_timeout=None if context is None else HANDSHAKE_S,
        )
        # So `drain` waits until the kernel has taken all bytes.
        transport.set_write_buffer_limits(0)
        return reader, asyncio.StreamWriter(transport, protocol, reader, self._loop)

    async def _answer(self, request: HttpRequest) -> Response:
        async with self._turns:
            answered: asyncio.Future[Response] = self._loop.create_future()

            def answer() -> None:
                try:
                    response = self._handler(request)
                except Exception:  # noqa: BLE001  # Whatever it is, the client needs a response.
                    _LOG.exception("%s: a request could not be answered", self._name)
                    reason = "the node's log has the reason"
                    response = text(HTTPStatus.INTERNAL_SERVER_ERROR, reason)
                with contextlib.suppress(RuntimeError):  # The page was closed meanwhile.
                    self._loop.call_soon_threadsafe(_resolve, answered, response)

            # A daemon thread, which `close` does not join: its handler may ask a node that hangs.
            name = f"coordinator-{self._name}-handler"
            threading.Thread(target=answer, name=name, daemon=True).start()
            return await answered


def _resolve(answered: asyncio.Future[Response], response: Response) -> None:
    if not answered.done():
        answered.set_result(response)
