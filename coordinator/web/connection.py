"""HTTP connection of one client: its requests, one after the other, and the responses.

h11 parses and writes HTTP/1.1; the waiting is here, and all of it is bounded. A request must be
complete `timeout_s` after its connection was opened or had its last response, however slowly it
comes in, and a response must be read in the same time. No more than `HEAD_BYTES_MAX` of a head and
`BODY_BYTES_MAX` of a body is read. A request that cannot be parsed is answered once, and the
connection is closed: what follows might be misread (request smuggling).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

import h11

from coordinator.web.messages import METHODS, HttpRefused, HttpRequest, Response, request_of, text

LINGER_S = 1.0
"""Seconds in which a refused client's remaining bytes are read, so that it sees the response."""
LINGER_BYTES_MAX = 256 * 1024
HEAD_BYTES_MAX = 32 * 1024
"""Twice the size of the longest token, as a password."""
BODY_BYTES_MAX = 64 * 1024
READ_BYTES = 8 * 1024

HEADERS = (
    # Only our own scripts run: group ids, which pages show, are written by clients.
    (
        "Content-Security-Policy",
        "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
)
"""Headers of every response."""


@dataclass(eq=False)
class HttpConnection:
    """Serves one client's requests.

    Args:
        certificate: the client's, as `ssl` parses it; None without one.
        answer: makes the response to a request; never raises.
        set_waiting: called with True while the connection waits for a request, else with False.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    answer: Callable[[HttpRequest], Awaitable[Response]]
    _: KW_ONLY
    peer: str
    certificate: Mapping[str, Any] | None = None  # Any: nested tuples.
    timeout_s: float
    set_waiting: Callable[[bool], None] = lambda waiting: None
    _is_head: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)

    async def serve(self) -> None:
        """Serve requests until the connection is closed.

        Raises:
            OSError: the connection broke or timed out (`ssl.SSLError`, `TimeoutError`).
        """
        try:
            while await self._serve_one():
                self._http.start_next_cycle()
        finally:
            with contextlib.suppress(OSError):
                async with asyncio.timeout(LINGER_S):
                    self.writer.close()
                    await self.writer.wait_closed()
            self.writer.transport.abort()  # Bytes that the client has not read are dropped.

    async def _serve_one(self) -> bool:
        """Serve a request; False if there will be no further one."""
        self.set_waiting(True)
        try:
            async with asyncio.timeout(self.timeout_s):
                request = await self._read()
        except h11.RemoteProtocolError as error:
            error.__traceback__ = None  # h11 raises it from a frame that refers to it: a cycle.
            await self._refuse(HTTPStatus(error.error_status_hint), "this is not HTTP/1.1")
            return False
        except HttpRefused as refused:
            await self._refuse(refused.status, str(refused))
            return False
        if request is None:
            return False
        self.set_waiting(False)
        await self._send(await self.answer(request))
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _read(self) -> HttpRequest | None:
        """Read the next request, and discard its body; None at the end of the connection."""
        request = None
        body_bytes = 0
        self._is_head = False
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    await self._write(h11.InformationalResponse(status_code=100, headers=[]))
                self._http.receive_data(await self.reader.read(READ_BYTES))
            elif isinstance(event, h11.Request):
                self._is_head = event.method == b"HEAD"
                request = request_of(event, self.peer, self.certificate)
            elif isinstance(event, h11.Data):
                body_bytes += len(event.data)
                if body_bytes > BODY_BYTES_MAX:
                    raise HttpRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "pages take no body")
            else:  # The end of the request, or of the connection.
                return request

    async def _refuse(self, status: HTTPStatus, reason: str) -> None:
        """Send the reason, and read on for a while so that the client gets it."""
        is_method = status is HTTPStatus.NOT_IMPLEMENTED
        headers = (("Allow", ", ".join(METHODS)),) if is_method else ()
        await self._send(text(status, reason, ("Connection", "close"), *headers))
        read_bytes = 0
        with contextlib.suppress(OSError):
            if self.writer.can_write_eof():
                self.writer.write_eof()
            async with asyncio.timeout(LINGER_S):
                # Closing with unread bytes sends a reset, and the client would lose the response.
                while read_bytes < LINGER_BYTES_MAX:
                    piece = await self.reader.read(READ_BYTES)
                    if not piece:
                        return
                    read_bytes += len(piece)

    async def _send(self, response: Response) -> None:
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return  # The client has aborted its request.
        headers = [
            ("Date", formatdate(usegmt=True)),
            *HEADERS,
            *response.headers,
            ("Content-Type", response.content_type),
            ("Content-Length", str(len(response.body))),
        ]
        head = h11.Response(
            status_code=response.status, reason=response.status.phrase.encode(), headers=headers
        )
        body = [] if self._is_head else [h11.Data(data=response.body)]
        await self._write(head, *body, h11.EndOfMessage())

    async def _write(self, *events: h11.Event) -> None:
        data = b"".join([self._http.send(event) or b"" for event in events])
        async with asyncio.timeout(self.timeout_s):
            self.writer.write(data)
            await self.writer.drain()
