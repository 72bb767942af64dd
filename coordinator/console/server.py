"""HTTP handler of the console: three static files, and the JSON and SVG that they fetch."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from importlib import resources

import grpc

from coordinator.client.admin import GroupAdmin
from coordinator.console import views
from coordinator.dial import CannotDial, Credentials
from coordinator.observe.timeline import as_svg
from coordinator.printable import printable
from coordinator.security.authenticator import bearer_token
from coordinator.security.doorkeeper import unauthorized
from coordinator.web.messages import Request, Response, text

PAGES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/console.js": ("console.js", "text/javascript; charset=utf-8"),
    "/console.css": ("console.css", "text/css; charset=utf-8"),
}


class Console:
    """Handler of the console's requests.

    Args:
        bootstrap: HOST:PORT of a node.
        credentials: TLS settings for nodes. Their token is not used: nodes are sent the token of
            the console's reader.
        needs_token: requests have a token, which the doorkeeper has checked.
    """

    def __init__(self, bootstrap: str, credentials: Credentials, *, needs_token: bool) -> None:
        self._bootstrap = bootstrap
        self._credentials = replace(credentials, token_file="", token="")
        self._needs_token = needs_token

    def __call__(self, request: Request) -> Response:
        """Answer a request for a file or for data."""
        if request.path in PAGES:
            name, kind = PAGES[request.path]
            page = resources.files("coordinator.console") / "page" / name
            return Response(HTTPStatus.OK, kind, page.read_bytes())
        ask = _ANSWERS.get(request.path)
        if ask is None:
            return text(HTTPStatus.NOT_FOUND, "there is no such page")
        try:
            with GroupAdmin(self._bootstrap, credentials=self._of_reader(request)) as admin:
                kind, body = ask(admin, request)
        except CannotDial as error:
            return text(HTTPStatus.BAD_GATEWAY, str(error))
        except (LookupError, ValueError) as error:
            return text(HTTPStatus.NOT_FOUND, printable(str(error.args[-1])))
        except grpc.RpcError as error:
            said = printable(error.details() or "")
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                return unauthorized(said)
            if error.code() is grpc.StatusCode.PERMISSION_DENIED:
                return text(HTTPStatus.FORBIDDEN, said)
            return text(HTTPStatus.BAD_GATEWAY, f"no answer: {said}")
        return Response(HTTPStatus.OK, kind, body)

    def _of_reader(self, request: Request) -> Credentials:
        """Return the reader's credentials; with the node's, readers would see what they may not."""
        if not self._needs_token:
            return self._credentials
        token = bearer_token(request.headers.get("authorization"), also_basic=True)
        assert token, "the doorkeeper lets nobody in without a token"
        return replace(self._credentials, token=token)


Answer = tuple[str, bytes]


def _json(content: object) -> Answer:
    return "application/json", json.dumps(content).encode()


def _timeline(admin: GroupAdmin, request: Request) -> Answer:
    wanted = int(request.first("generation"))
    for rebalance in admin.journal(request.first("group")).rebalances:
        if rebalance.generation_after == wanted:
            return "image/svg+xml", as_svg(rebalance).encode()
    raise LookupError("the journal has no such rebalance")


_ANSWERS: dict[str, Callable[[GroupAdmin, Request], Answer]] = {
    "/api/groups": lambda admin, request: _json(views.groups(admin, request.first("contains"))),
    "/api/group": lambda admin, request: _json(views.group(admin, request.first("group"))),
    "/api/rebalances": lambda admin, request: _json(
        views.rebalances(admin, request.first("group"))
    ),
    "/api/timeline.svg": _timeline,
}
