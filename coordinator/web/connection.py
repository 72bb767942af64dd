"""One client's connection: its requests, one after the other, and their answers.

h11 reads and writes HTTP/1.1; what is waited for is here, and all of it has an end. A request must
be there `timeout_s` after its connection was opened or had its last answer, however it trickles
in, and an answer must be taken in as long. Of a head that has more than `HEAD_BYTES_MAX`, and of a
body that has more than `BODY_BYTES_MAX`, no more is read. Whatever is not understood is answered
once, and the connection is closed: what follows might be read as something else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

import h11

from coordinator.web.messages import METHODS, Refused, Request, Response, request_of, text

LINGER_S = 1.0
"""For what a client still sends when it has been refused: else it might not see why."""
LINGER_BYTES_MAX = 256 * 1024
HEAD_BYTES_MAX = 32 * 1024
"""A token of the longest kind, as a password, and as much again."""
BODY_BYTES_MAX = 64 * 1024
READ_BYTES = 8 * 1024

HEADERS = (
    # Nothing from anywhere else, and no script but ours: group ids are what clients make them.
    (
        "Content-Security-Policy",
        "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
)
"""What every answer says."""


class Connection:
    """Answers until either side has had enough.

    Args:
        certificate: the client's, as `ssl` tells it; None: none.
        answer: to a request. It does not raise.
        set_waiting: told whether there is a request to be answered.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answer: Callable[[Request], Awaitable[Response]],
        *,
        peer: str,
        certificate: Mapping[str, Any] | None = None,  # Any: nested tuples.
        timeout_s: float,
        set_waiting: Callable[[bool], None] = lambda waiting: None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._answer = answer
        self._peer = peer
        self._certificate = certificate
        self._timeout_s = timeout_s
        self._set_waiting = set_waiting
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._is_head = False

    async def serve(self) -> None:
        """Until the connection is closed.

        Raises:
            OSError: it broke, or the time was over; `TimeoutError` and `ssl.SSLError` are such.
        """
        try:
            while await self._serve_one():
                self._http.start_next_cycle()
        finally:
            with contextlib.suppress(OSError):
                async with asyncio.timeout(LINGER_S):
                    self._writer.close()
                    await self._writer.wait_closed()
            self._writer.transport.abort()  # What has not been taken by now is not waited for.

    async def _serve_one(self) -> bool:
        """False if there will be no further request."""
        self._set_waiting(True)
        try:
            async with asyncio.timeout(self._timeout_s):
                request = await self._read()
        except h11.RemoteProtocolError as error:
            await self._refuse(HTTPStatus(error.error_status_hint), "this is not HTTP/1.1")
            return False
        except Refused as refused:
            await self._refuse(refused.status, str(refused))
            return False
        if request is None:
            return False
        self._set_waiting(False)
        await self._send(await self._answer(request))
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _read(self) -> Request | None:
        """The next request, with its body read and forgotten; None: there is none.

        Raises:
            h11.RemoteProtocolError, Refused: it is not taken.
        """
        request = None
        body_bytes = 0
        self._is_head = False
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    await self._write(h11.InformationalResponse(status_code=100, headers=[]))
                self._http.receive_data(await self._reader.read(READ_BYTES))
            elif isinstance(event, h11.Request):
                self._is_head = event.method == b"HEAD"
                request = request_of(event, self._peer, self._certificate)
            elif isinstance(event, h11.Data):
                body_bytes += len(event.data)
                if body_bytes > BODY_BYTES_MAX:
                    raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "pages take no body")
            else:  # The end of the request, or of the connection.
                return request

    async def _refuse(self, status: HTTPStatus, words: str) -> None:
        """Say why, and see to it that it is heard."""
        is_method = status is HTTPStatus.NOT_IMPLEMENTED
        headers = (("Allow", ", ".join(METHODS)),) if is_method else ()
        await self._send(text(status, words, ("Connection", "close"), *headers))
        read_bytes = 0
        with contextlib.suppress(OSError):
            if self._writer.can_write_eof():
                self._writer.write_eof()
            async with asyncio.timeout(LINGER_S):
                # A connection that is closed over unread bytes takes the answer with it.
                while read_bytes < LINGER_BYTES_MAX:
                    piece = await self._reader.read(READ_BYTES)
                    if not piece:
                        return
                    read_bytes += len(piece)

    async def _send(self, response: Response) -> None:
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return  # The other side has broken off what it had begun.
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
        async with asyncio.timeout(self._timeout_s):
            self._writer.write(data)
            await self._writer.drain()
