"""HTTP of the pages: the bytes of a connection. The first byte chooses the page behind it.

Whatever comes is answered in HTTP or the connection is closed, nothing is raised, and the next
client is answered. What is written is read by a few lines of our own, not by the library.
"""

import asyncio
import json
import re
from http import HTTPStatus
from unittest.mock import AsyncMock, Mock

from prometheus_client import CollectorRegistry, Counter

from coordinator.observe.metrics_page import metrics_page
from coordinator.security.authenticator import Authenticator
from coordinator.security.doorkeeper import Doorkeeper, behind
from coordinator.security.guard import Guard
from coordinator.security.tokens import Tokens, digest_of
from coordinator.web.connection import HttpConnection
from coordinator.web.messages import HttpRequest, Response, only_for
from tests.campaigns.fuzz.web_tokens import VERIFIER
from tests.campaigns.fuzz.web_tokens import seeds as token_seeds

TOKEN = "cgc_a-token"
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + TOKEN.encode()
LOOP = asyncio.new_event_loop()
REGISTRY = CollectorRegistry()
Counter("coordinator_things", "Things.", ["kind"], registry=REGISTRY).labels("\u202e").inc()


def _echo(request: HttpRequest) -> Response:
    told = [request.path, dict(request.query), dict(request.headers), request.host]
    return Response(HTTPStatus.OK, "application/json", json.dumps(told).encode())


def _guarded():
    tokens = Tokens([("prometheus", digest_of(TOKEN))])
    guard = Guard(Authenticator(tokens, VERIFIER), None)
    keeper = Doorkeeper(guard, "metrics", (), needs_token=True, log_refusal=guard.log_refusal)
    return behind(metrics_page(REGISTRY), keeper)


HANDLERS = {
    b"m": only_for(frozenset(), metrics_page(REGISTRY)),
    b"g": _guarded(),
    b"e": _echo,
}


async def _talk(data: bytes, handler) -> list[int]:
    """The statuses of all answers to a client that sends this and no more."""
    methods: list[str] = []

    async def answer(request: HttpRequest) -> Response:
        methods.append(request.method)
        response = handler(request)
        assert isinstance(response, Response)
        return response

    reader, writer = asyncio.StreamReader(), AsyncMock(spec=asyncio.StreamWriter)
    written = bytearray()
    writer.write = written.extend
    writer.can_write_eof = lambda: False
    writer.close = writer.transport.abort = Mock()
    reader.feed_data(data)
    reader.feed_eof()
    await HttpConnection(reader, writer, answer, peer="fuzz:1", timeout_s=60.0).serve()
    assert writer.close.called
    return _statuses(bytes(written), methods)


def _statuses(written: bytes, methods: list[str]) -> list[int]:
    """Parse the statuses of all that was written, which must be responses and nothing else. The
    last may be a refusal, for which no handler was called."""
    found: list[int] = []
    asked = iter(methods)
    while written:
        head, _, written = written.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        status = int(re.fullmatch(rb"HTTP/1\.1 (\d{3}) [\w ]*", first)[1])
        if status == 100:
            continue
        fields = dict(re.fullmatch(rb"([\w-]+): ([^\r\n]*)", line).groups() for line in lines)
        length = int(fields[b"Content-Length"])
        method = next(asked, None)
        if method == "HEAD" or (method is None and not written):  # HEAD may be refused.
            length = 0
        assert len(written) >= length
        assert b"default-src 'self'" in fields[b"Content-Security-Policy"]
        written = written[length:]
        found.append(status)
    assert len(methods) <= len(found) <= len(methods) + 1
    return found


def target(data: bytes) -> None:
    handler = HANDLERS.get(data[:1], HANDLERS[b"m"])
    assert 500 not in LOOP.run_until_complete(_talk(data[1:], handler))
    assert LOOP.run_until_complete(_talk(REQUEST + b"\r\n\r\n", handler)) == [200]


def seeds():
    for kind in HANDLERS:
        yield kind + REQUEST + b"\r\n\r\n"
        yield kind + b"HEAD / HTTP/1.0\r\nHost: [::1]:80\r\nConnection: keep-alive\r\n\r\n"
    for line in (
        b"Accept: application/openmetrics-text;version=1.0.0;escaping=allow-utf-8,text/plain;q=0.5",
        b"Accept-Encoding: gzip;q=0.5, br",
        b"Authorization: Basic bWU6Y2djX2EtdG9rZW4=",
        b'If-None-Match: W/"x"',
        b"Expect: 100-continue\r\nContent-Length: 3",
        b"Transfer-Encoding: chunked",
        b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk",
    ):
        body = b"3\r\nabc\r\n0\r\n\r\n" if b"chunked" in line else b"abc"
        yield b"g" + REQUEST + b"\r\n" + line + b"\r\n\r\n" + body
    yield b"e" + b"GET http://u@LocalHost:80/a%2f..?a=%ff&a=1&name[]=x HTTP/1.1\r\nHost: b\r\n\r\n"
    yield b"m" + b"OPTIONS * HTTP/1.1\r\nHost: a.\r\n\r\n"
    yield b"m" + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for seed in token_seeds():
        if seed.startswith(b"r"):
            yield b"g" + REQUEST.replace(TOKEN.encode(), seed[1:]) + b"\r\n\r\n"
