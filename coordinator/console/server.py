"""HTTP handler of the console: static files, and the JSON and SVG that they fetch."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from importlib import resources
from pathlib import PurePath

import grpc

from coordinator import __version__
from coordinator.console import views
from coordinator.console.session_views import View
from coordinator.dial import CannotDial, Credentials
from coordinator.observe.timeline_svg import NARROW, WIDE, as_svg
from coordinator.operator.admin import GroupAdmin
from coordinator.printable import printable
from coordinator.security.authenticator import bearer_token
from coordinator.security.doorkeeper import unauthorized
from coordinator.web.messages import HttpRequest, Response, text

CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}
DIGITS_MAX = 19
"""Longest number in a query: one of 64 bits."""


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
        self._files = {
            "/" if file.name == "index.html" else f"/{file.name}": Response(
                HTTPStatus.OK, CONTENT_TYPES[PurePath(file.name).suffix], file.read_bytes()
            )
            for file in (resources.files("coordinator.console") / "page").iterdir()
            if PurePath(file.name).suffix in CONTENT_TYPES
        }

    def __call__(self, request: HttpRequest) -> Response:
        """Answer a request for a file or for data."""
        if request.path in self._files:
            return self._files[request.path]
        ask = _ANSWERS.get(request.path)
        if ask is None:
            return text(HTTPStatus.NOT_FOUND, "there is no such page")
        try:
            credentials = self._of_reader(request)
            with GroupAdmin(self._bootstrap, remember=True, credentials=credentials) as admin:
                kind, body = ask(admin, request)
        except CannotDial as error:
            return text(HTTPStatus.BAD_GATEWAY, str(error))
        except (LookupError, ValueError) as error:
            return text(HTTPStatus.NOT_FOUND, printable(str(error.args[-1])))
        except grpc.RpcError as error:
            detail = printable(error.details() or "")
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                return unauthorized(detail)
            if error.code() is grpc.StatusCode.PERMISSION_DENIED:
                return text(HTTPStatus.FORBIDDEN, detail)
            return text(HTTPStatus.BAD_GATEWAY, f"no answer: {detail}")
        return Response(HTTPStatus.OK, kind, body)

    def _of_reader(self, request: HttpRequest) -> Credentials:
        """Return the reader's credentials; with the node's, readers would see what they may not."""
        if not self._needs_token:
            return self._credentials
        token = bearer_token(request.headers.get("authorization"), also_basic=True)
        assert token, "the doorkeeper lets nobody in without a token"
        return replace(self._credentials, token=token)


Answer = tuple[str, bytes]


def _json(view: View) -> Answer:
    answer = {**view, "now_ms": views.now_ms(), "version": __version__}
    return "application/json", json.dumps(answer).encode()


def _number(request: HttpRequest, name: str) -> int:
    """Number in a query; 0 if it is missing.

    Raises:
        ValueError: it is none.
    """
    value = request.first(name) or "0"
    if not (value.isascii() and value.isdigit() and len(value) < DIGITS_MAX):
        raise ValueError(f"{name} is a number, not {value!r}")
    return int(value)


def _groups(admin: GroupAdmin, request: HttpRequest) -> Answer:
    ask = {name: request.first(name) for name in ("find", "state", "sort")}
    return _json(views.groups(admin, **ask, page=_number(request, "page")))


def _group(admin: GroupAdmin, request: HttpRequest) -> Answer:
    members, partitions = _number(request, "members"), _number(request, "partitions")
    ask = {name: request.first(name) for name in ("find", "sort")}
    group_id = request.first("group")
    return _json(views.group(admin, group_id, members=members, partitions=partitions, **ask))


def _rebalances(admin: GroupAdmin, request: HttpRequest) -> Answer:
    return _json(views.rebalances(admin, request.first("group")))


def _generation(admin: GroupAdmin, request: HttpRequest) -> Answer:
    number = _number(request, "generation")
    return _json(views.generation(admin, request.first("group"), number))


def _timeline(admin: GroupAdmin, request: HttpRequest) -> Answer:
    """Picture of the rebalance that led to a generation and, if it is given, began at `started`."""
    wanted, started = _number(request, "generation"), _number(request, "started")
    for rebalance in admin.journal(request.first("group")).rebalances:
        if rebalance.generation_after == wanted and started in (0, rebalance.started_at_ms):
            is_dark = request.first("scheme") == "dark"
            layout = NARROW if request.first("width") == "narrow" else WIDE
            return "image/svg+xml", as_svg(rebalance, dark=is_dark, layout=layout).encode()
    raise LookupError("the journal has no such rebalance")


def _nodes(admin: GroupAdmin, request: HttpRequest) -> Answer:
    return _json(views.nodes(admin, page=_number(request, "page")))


_ANSWERS: dict[str, Callable[[GroupAdmin, HttpRequest], Answer]] = {
    "/api/groups": _groups,
    "/api/group": _group,
    "/api/rebalances": _rebalances,
    "/api/generation": _generation,
    "/api/timeline.svg": _timeline,
    "/api/nodes": _nodes,
}
