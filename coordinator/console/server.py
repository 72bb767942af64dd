"""HTTP for the page: three files, and what they ask for. GET only; threads of its own."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlsplit

import grpc

from coordinator.client.admin import GroupAdmin
from coordinator.console import views
from coordinator.dial import CannotDial, Credentials
from coordinator.observe.timeline import as_svg
from coordinator.security.authenticator import bearer_token
from coordinator.security.http import Doorkeeper, Page, behind, refuse
from coordinator.security.tls import ServerTls

PAGES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/console.js": ("console.js", "text/javascript; charset=utf-8"),
    "/console.css": ("console.css", "text/css; charset=utf-8"),
}
HEADERS = {
    # Nothing from anywhere else, and no script but ours: group ids are what clients make them.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class ConsoleServer(Page):
    """Serves the console until it is closed.

    Args:
        bootstrap: HOST:PORT of a node.
        credentials: to reach nodes with. Whoever looks at the page is the one who asks: a node
            is shown the token that came with the request, and nothing else counts.
        tls: None: plain text. doorkeeper: None: anyone may look.
    Raises:
        OSError: the address cannot be bound.
    """

    def __init__(
        self,
        host: str,
        port: int,
        bootstrap: str,
        *,
        credentials: Credentials | None = None,
        tls: ServerTls | None = None,
        doorkeeper: Doorkeeper | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self.host = host
        self.credentials = replace(credentials or Credentials(), token_file="", token="")
        self.needs_token = doorkeeper is not None
        super().__init__("console", (host, port), behind(_Handler, doorkeeper), tls)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ConsoleServer

    def do_GET(self) -> None:
        """A file, or an answer."""
        url = urlsplit(self.path)
        if not self._is_for_us():
            self._send_text(HTTPStatus.MISDIRECTED_REQUEST, "this name is not served here")
        elif url.path in PAGES:
            name, kind = PAGES[url.path]
            page = resources.files("coordinator.console") / "page" / name
            self._send(HTTPStatus.OK, kind, page.read_bytes())
        else:
            self._answer(url.path, {k: v[0] for k, v in parse_qs(url.query).items()})

    def _is_for_us(self) -> bool:
        """False if a page from elsewhere has had its name point here (DNS rebinding)."""
        if self.server.needs_token:
            return True  # Such a page has no token to send.
        name = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
        if name in ("localhost", self.server.host):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _answer(self, path: str, query: dict[str, str]) -> None:
        ask = _ANSWERS.get(path)
        if ask is None:
            self._send_text(HTTPStatus.NOT_FOUND, "there is no such page")
            return
        try:
            with GroupAdmin(self.server.bootstrap, credentials=self._credentials()) as admin:
                kind, body = ask(admin, query)
        except CannotDial as error:
            self._send_text(HTTPStatus.BAD_GATEWAY, str(error))
        except (LookupError, ValueError) as error:
            self._send_text(HTTPStatus.NOT_FOUND, str(error.args[-1]))
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                refuse(self, HTTPStatus.UNAUTHORIZED, error.details() or "")
            elif error.code() is grpc.StatusCode.PERMISSION_DENIED:
                self._send_text(HTTPStatus.FORBIDDEN, error.details() or "")
            else:
                self._send_text(HTTPStatus.BAD_GATEWAY, f"no answer: {error.details()}")
        else:
            self._send(HTTPStatus.OK, kind, body)

    def _credentials(self) -> Credentials:
        """The caller's own: with the node's, the page would show what its reader may not see."""
        if not self.server.needs_token:
            return self.server.credentials
        token = bearer_token(self.headers.get("Authorization"), also_basic=True)
        assert token, "the doorkeeper lets nobody in without a token"
        return replace(self.server.credentials, token=token)

    def _send_text(self, status: HTTPStatus, text: str) -> None:
        self._send(status, "text/plain; charset=utf-8", text.encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """The node's log is for the node."""


Answer = tuple[str, bytes]


def _json(content: object) -> Answer:
    return "application/json", json.dumps(content).encode()


def _timeline(admin: GroupAdmin, query: dict[str, str]) -> Answer:
    wanted = int(query.get("generation", ""))
    for rebalance in admin.rebalances(query.get("group", "")):
        if rebalance.generation_after == wanted:
            return "image/svg+xml", as_svg(rebalance).encode()
    raise LookupError("the journal has no such rebalance")


_ANSWERS: dict[str, Callable[[GroupAdmin, dict[str, str]], Answer]] = {
    "/api/groups": lambda admin, query: _json(views.groups(admin, query.get("contains", ""))),
    "/api/group": lambda admin, query: _json(views.group(admin, query.get("group", ""))),
    "/api/rebalances": lambda admin, query: _json(views.rebalances(admin, query.get("group", ""))),
    "/api/timeline.svg": _timeline,
}
