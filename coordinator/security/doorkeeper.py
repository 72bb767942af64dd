"""Access to pages (console, metrics) over HTTP.

A program sends `Authorization: Bearer TOKEN`; a browser asks its user for a password, which is the
token, under any user name; pages may also accept a TLS client certificate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from http import HTTPStatus

from coordinator.security.authenticator import Caller, bearer_token, principal_of_peer
from coordinator.security.errors import KeysUnavailable, Unauthenticated
from coordinator.security.guard import DENIED, UNAUTHENTICATED, UNKNOWN, Guard, Refusal
from coordinator.security.rules import Operation
from coordinator.web.messages import Handler, HttpRequest, Response, text


@dataclass(frozen=True, slots=True)
class Doorkeeper:
    """Authenticates and authorises requests for a page.

    Args:
        page: its name in refusals.
        operations: the caller needs one of them on all groups; empty: authentication is enough.
        needs_token: do not accept client certificates.
        log_refusal: called with each refusal, from any thread.
    """

    guard: Guard
    page: str
    operations: tuple[Operation, ...]
    _: KW_ONLY
    needs_token: bool
    log_refusal: Callable[[Refusal], None]

    def refusal(self, request: HttpRequest) -> Response | None:
        """Return the response that refuses a request; None if it is allowed."""
        try:
            caller = self._caller(request)
        except Unauthenticated as error:
            self.log_refusal(
                Refusal(UNAUTHENTICATED, self.page, UNKNOWN, request.peer, rule=str(error))
            )
            return unauthorized(str(error))
        except KeysUnavailable as error:
            return text(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        decision = self.guard.decide(caller.principal, self.operations, None)
        if decision.is_allowed:
            return None
        operation = " or ".join(self.operations)
        self.log_refusal(
            Refusal(
                DENIED,
                self.page,
                caller.principal,
                request.peer,
                operation,
                None,
                decision.rule,
            )
        )
        return text(
            HTTPStatus.FORBIDDEN,
            f"{caller.principal} may not {operation} on groups '*' ({decision.rule})",
        )

    def _caller(self, request: HttpRequest) -> Caller:
        token = bearer_token(request.headers.get("authorization"), also_basic=True)
        if token is not None:
            authenticator = self.guard.authenticator
            return authenticator.remembered(token) or authenticator.of_token(token)
        principal = None if self.needs_token else principal_of_peer(request.certificate or {})
        if principal is None:
            raise Unauthenticated("send a bearer token, or give it as the password")
        return Caller(principal)


def behind(handler: Handler, doorkeeper: Doorkeeper) -> Handler:
    """Wrap a handler: requests that the doorkeeper refuses do not reach it."""

    def answer(request: HttpRequest) -> Response:
        return doorkeeper.refusal(request) or handler(request)

    return answer


def unauthorized(reason: str) -> Response:
    """Response 401, on which a browser asks its user for a token."""
    challenge = ("WWW-Authenticate", 'Basic realm="coordinator: the password is a token"')
    return text(HTTPStatus.UNAUTHORIZED, reason, challenge)
