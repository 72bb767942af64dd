"""HTTP for the page: three files, and what they ask for. GET only; threads of its own."""

from __future__ import annotations

import ipaddress
import json
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlsplit

import grpc

from coordinator.client.admin import GroupAdmin
from coordinator.console import views
from coordinator.observe.timeline import as_svg

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


class ConsoleServer:
    """Serves the console until it is closed.

    Args:
        bootstrap: HOST:PORT of a node.
    Raises:
        OSError: the address cannot be bound.
    """

    def __init__(self, host: str, port: int, bootstrap: str) -> None:
        self._server = _Server((host, port), bootstrap)
        self.url = f"http://{host}:{self._server.server_address[1]}/"
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="coordinator-console", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], bootstrap: str) -> None:
        super().__init__(address, _Handler)
        self.bootstrap = bootstrap
        self.host = address[0]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

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
            with GroupAdmin(self.server.bootstrap) as admin:
                kind, body = ask(admin, query)
        except (LookupError, ValueError) as error:
            self._send_text(HTTPStatus.NOT_FOUND, str(error.args[-1]))
        except grpc.RpcError as error:
            self._send_text(HTTPStatus.BAD_GATEWAY, f"no answer: {error}")
        else:
            self._send(HTTPStatus.OK, kind, body)

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
