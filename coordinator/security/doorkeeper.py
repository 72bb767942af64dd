"""Pages of a node (metrics, console) over TLS, and only for those who may see them.

A program sends `Authorization: Bearer TOKEN`; a browser asks its user for a password, which is
the token, under any name; over TLS a client certificate will do for pages that allow it.
"""

from __future__ import annotations

import ssl
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from coordinator.security.authenticator import Caller, bearer_token, principal_of_certificate
from coordinator.security.errors import KeysUnavailable, Unauthenticated
from coordinator.security.guard import DENIED, UNAUTHENTICATED, UNKNOWN, Guard, Refusal
from coordinator.security.rules import Operation
from coordinator.security.tls import ServerTls

TIMEOUT_S = 30.0
"""A connection on which nothing happens for so long is closed."""

Handler = type[BaseHTTPRequestHandler]
Tell = Callable[[Refusal], None]


class Page(ThreadingHTTPServer):
    """Serves a handler from threads of its own, until it is closed.

    Args:
        tls: None: plain text.
    Raises:
        OSError: the address cannot be bound.
    """

    daemon_threads = True

    def __init__(
        self, name: str, address: tuple[str, int], handler: Handler, tls: ServerTls | None = None
    ) -> None:
        super().__init__(address, handler)
        self._tls = tls
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://{address[0]}:{self.server_address[1]}/"
        self._thread = threading.Thread(
            target=self.serve_forever, name=f"coordinator-{name}", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self.shutdown()
        self.server_close()
        self._thread.join()

    def get_request(self) -> tuple[Any, Any]:  # Any: as socketserver has it.
        connection, address = super().get_request()
        connection.settimeout(TIMEOUT_S)
        if self._tls is not None:
            # The handshake is for the connection's own thread: it may hang.
            connection = self._tls.context.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        return connection, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # ssl.SSLError is one.
            super().handle_error(request, client_address)


class Doorkeeper:
    """Who may see a page.

    Args:
        operations, as the rules have them, on no group in particular; none: whoever is recognised.
        needs_token: a certificate will not do.
        tell: is given refusals, from any thread.
    """

    def __init__(
        self,
        guard: Guard,
        page: str,
        operations: tuple[Operation, ...],
        *,
        needs_token: bool,
        tell: Tell,
    ) -> None:
        self._guard = guard
        self._page = page
        self._operations = operations
        self._needs_token = needs_token
        self._tell = tell

    def admits(self, request: BaseHTTPRequestHandler) -> bool:
        """True if the request may be answered; else it has been refused."""
        peer = f"{request.client_address[0]}:{request.client_address[1]}"
        try:
            caller = self._caller(request)
        except Unauthenticated as error:
            self._tell(Refusal(UNAUTHENTICATED, self._page, UNKNOWN, peer, rule=str(error)))
            refuse(request, HTTPStatus.UNAUTHORIZED, str(error))
            return False
        except KeysUnavailable as error:
            refuse(request, HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            return False
        decision = self._guard.decide(caller.principal, self._operations, None)
        if not decision.is_allowed:
            operation = " or ".join(self._operations)
            self._tell(
                Refusal(DENIED, self._page, caller.principal, peer, operation, None, decision.rule)
            )
            text = f"{caller.principal} may not {operation} on groups '*' ({decision.rule})"
            refuse(request, HTTPStatus.FORBIDDEN, text)
        return decision.is_allowed

    def _caller(self, request: BaseHTTPRequestHandler) -> Caller:
        token = bearer_token(request.headers.get("Authorization"), also_basic=True)
        if token is not None:
            authenticator = self._guard.authenticator
            return authenticator.remembered(token) or authenticator.of_token(token)
        principal = None if self._needs_token else _principal_of(request.connection)
        if principal is None:
            raise Unauthenticated("send a bearer token, or give it as the password")
        return Caller(principal)


def behind(handler: Handler, doorkeeper: Doorkeeper | None) -> Handler:
    """The handler, which the doorkeeper's refusals never reach."""
    if doorkeeper is None:
        return handler
    keeper = doorkeeper

    class Behind(handler):  # type: ignore[valid-type, misc]  # A class that is made here.
        def parse_request(self) -> bool:
            return bool(super().parse_request()) and keeper.admits(self)

    return Behind


def refuse(request: BaseHTTPRequestHandler, status: HTTPStatus, text: str) -> None:
    """Answer that it may not be; a browser asks its user for a token where that would help."""
    body = f"{text}\n".encode()
    request.send_response(status)
    if status is HTTPStatus.UNAUTHORIZED:
        request.send_header(
            "WWW-Authenticate", 'Basic realm="coordinator: the password is a token"'
        )
    request.send_header("Content-Type", "text/plain; charset=utf-8")
    request.send_header("Content-Length", str(len(body)))
    request.send_header("Connection", "close")
    request.end_headers()
    request.wfile.write(body)
    request.close_connection = True


def _principal_of(connection: object) -> str | None:
    if not isinstance(connection, ssl.SSLSocket):
        return None
    about: dict[str, Any] = connection.getpeercert() or {}  # Any: nested tuples.
    names: list[tuple[str, str]] = list(about.get("subjectAltName", ()))
    common = [v for part in about.get("subject", ()) for k, v in part if k == "commonName"]
    return principal_of_certificate(
        uris=[value for kind, value in names if kind == "URI"],
        common_name=next(iter(common), ""),
        dns_names=[value for kind, value in names if kind == "DNS"],
    )
