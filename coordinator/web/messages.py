"""Requests and responses of pages, as values. h11 has read the request; nothing here waits.

A request is refused here, with the status that says why, for what h11 does not judge: a target or
a Host that is none, a version that is not spoken, a body whose length is said twice.
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


class Refused(Exception):
    """No handler is asked. The message is for the client."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked.

    path: as it was sent, with its percent signs. query: decoded, bytes that are no UTF-8
    replaced; values in their order. headers: by lower-case name, lines of one name joined.
    host: whom the client believes to ask, in lower case, without port and final dot; empty: it
    did not say. peer: HOST:PORT. certificate: the client's, as `ssl` tells it; None: none.
    """

    method: str
    path: str
    query: Mapping[str, list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    host: str = ""
    peer: str = ""
    certificate: Mapping[str, Any] | None = None  # Any: nested tuples.

    def first(self, name: str) -> str:
        """The first value of a parameter of the query; empty: there is none."""
        return self.query.get(name, [""])[0]


@dataclass(frozen=True, slots=True)
class Response:
    """An answer. Its length, date and what every page says are added when it is sent."""

    status: HTTPStatus
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Request], Response]
"""Answers a request; may take its time, in a thread of its own."""


def text(status: HTTPStatus, words: str, *headers: tuple[str, str]) -> Response:
    """A line for people."""
    body = f"{words}\n".encode(errors="backslashreplace")
    return Response(status, "text/plain; charset=utf-8", body, headers)


def only_for(names: frozenset[str], handler: Handler) -> Handler:
    """The handler, for clients that ask by an address, as localhost, or by one of the names.

    A page from elsewhere whose name has been made to point here (DNS rebinding) asks by that name.
    """

    def answer(request: Request) -> Response:
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


def request_of(head: h11.Request, peer: str, certificate: Mapping[str, Any] | None) -> Request:
    """The value of what h11 has read.

    Raises:
        Refused: see above.
    """
    if head.http_version not in (b"1.0", b"1.1"):
        raise Refused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1.1 is spoken here")
    headers: dict[str, str] = {}
    for raw_name, raw_value in head.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if "transfer-encoding" in headers and (
        "content-length" in headers or head.http_version == b"1.0"
    ):
        # Two ends of one body: whoever stands between may have believed the other.
        raise Refused(HTTPStatus.BAD_REQUEST, "the length of the body is not clear")
    method = head.method.decode("ascii")
    if method not in METHODS:
        raise Refused(HTTPStatus.NOT_IMPLEMENTED, "pages are read with GET or HEAD")
    authority, path, query = _parts(head.target.decode("latin-1"))
    return Request(
        method=method,
        path=path,
        query=query,
        headers=headers,
        host=_host(headers.get("host", "") if authority is None else authority),
        peer=peer,
        certificate=certificate,
    )


def _parts(target: str) -> tuple[str | None, str, dict[str, list[str]]]:
    """Authority (None: the Host header has it), path and query of a target.

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
        raise Refused(HTTPStatus.BAD_REQUEST, "the target of the request is none") from None


def _host(authority: str) -> str:
    found = _AUTHORITY.fullmatch(authority)
    if found is None or (found[1].startswith("[") and not is_address(found[1])):
        raise Refused(HTTPStatus.BAD_REQUEST, "the Host of the request is none")
    return found[1].lower().removesuffix(".")
