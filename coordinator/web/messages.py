"""Requests and responses of pages, as values. No I/O: h11 has parsed the request.

This module refuses what h11 lets through: an invalid target or Host, an unsupported version, a body
with two lengths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qs, urlsplit

import h11

METHODS = ("GET", "HEAD")
_AUTHORITY = re.compile(
    r"(\[[0-9A-Fa-f:.%\w~-]+\]|[^\x00-\x20\x7f-\U0010ffff\[\]:@/\\?#]*)(?::\d*)?"
)


class HttpRefused(Exception):
    """The request is refused before a handler sees it. The message is for the client."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """An HTTP request.

    path: as it was sent, percent-encoded.
    query: decoded, with invalid UTF-8 replaced; values in their order.
    headers: by lower-case name; lines of one name are joined.
    host: from the target or the Host header, in lower case, without port and final dot; empty
        without one.
    peer: HOST:PORT. certificate: the client's, as `ssl` parses it; None without one.
    """

    method: str
    path: str
    query: Mapping[str, list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    host: str = ""
    peer: str = ""
    certificate: Mapping[str, Any] | None = None  # Any: nested tuples.

    def first(self, name: str) -> str:
        """First value of a query parameter; empty if it is missing."""
        return self.query.get(name, [""])[0]


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response. Length, date and common headers are added when it is sent."""

    status: HTTPStatus
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[HttpRequest], Response]
"""Makes the response to a request; may block, for it runs in a thread of its own."""


def text(status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Response:
    """Response with a line of plain text."""
    body = f"{text}\n".encode(errors="backslashreplace")
    return Response(status, "text/plain; charset=utf-8", body, headers)


def only_for(names: frozenset[str], handler: Handler) -> Handler:
    """Wrap a handler: serve only requests whose Host is an IP address, localhost, or a known name.

    Protects from DNS rebinding: a page of another site whose name points here sends that name.
    """

    def answer(request: HttpRequest) -> Response:
        if request.host in names or request.host == "localhost" or is_address(request.host):
            return handler(request)
        return text(HTTPStatus.MISDIRECTED_REQUEST, "this name is not served here")

    return answer


def is_address(host: str) -> bool:
    """True of an IP address, in brackets or without."""
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def request_of(head: h11.Request, peer: str, certificate: Mapping[str, Any] | None) -> HttpRequest:
    """Make a `HttpRequest` of the head that h11 has parsed.

    Raises:
        HttpRefused: version, length, method, target or Host are not acceptable.
    """
    if head.http_version not in (b"1.0", b"1.1"):
        raise HttpRefused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1.1 is spoken here")
    headers: dict[str, str] = {}
    for raw_name, raw_value in head.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if "transfer-encoding" in headers and (
        "content-length" in headers or head.http_version == b"1.0"
    ):
        # The body has two lengths, and a proxy may have used the other (request smuggling).
        raise HttpRefused(HTTPStatus.BAD_REQUEST, "the length of the body is not clear")
    method = head.method.decode("ascii")
    if method not in METHODS:
        raise HttpRefused(HTTPStatus.NOT_IMPLEMENTED, "pages are read with GET or HEAD")
    authority, path, query = _parts(head.target.decode("latin-1"))
    return HttpRequest(
        method=method,
        path=path,
        query=query,
        headers=headers,
        host=_host(headers.get("host", "") if authority is None else authority),
        peer=peer,
        certificate=certificate,
    )


def _parts(target: str) -> tuple[str | None, str, dict[str, list[str]]]:
    """Return authority (None if only the Host header has it), path and query of a target.

    Source: RFC 9112, section 3.2: the forms of origin-form and absolute-form.
    """
    try:
        if target.startswith("/"):
            path, _, query = target.partition("?")
            return None, path, parse_qs(query)
        url = urlsplit(target)
        if url.scheme not in ("http", "https") or not url.netloc:
            raise ValueError(target)
        return url.netloc, url.path or "/", parse_qs(url.query)
    except ValueError:
        raise HttpRefused(HTTPStatus.BAD_REQUEST, "the target of the request is none") from None


def _host(authority: str) -> str:
    match = _AUTHORITY.fullmatch(authority)
    if match is None or (match[1].startswith("[") and not is_address(match[1])):
        raise HttpRefused(HTTPStatus.BAD_REQUEST, "the Host of the request is none")
    return match[1].lower().removesuffix(".")
