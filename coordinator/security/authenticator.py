"""Who calls: a bearer token, static or JWT, or the certificate of the connection.

Principals say how they were recognised: `token:grafana`, `jwt:alice`, `cert:billing-worker`.
A token that was sent counts, whatever the certificate; if it is not valid, the call is refused.
What was found out about a token is remembered under its hash for five minutes at most.
"""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coordinator.security.errors import Unauthenticated
from coordinator.security.tokens import Tokens, digest_of

if TYPE_CHECKING:
    from coordinator.security.jwt import JwtVerifier  # Its library is optional.

REMEMBER_S = 300.0
REMEMBER_MOST = 10_000
WHAT_TO_DO = "send a valid bearer token (--token-file) or connect with a client certificate"
LONGEST_TOKEN = 16_384


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls. `until_s`: seconds since the epoch; look again then. `digest`: of the token."""

    principal: str
    until_s: float = math.inf
    digest: bytes | None = field(default=None, repr=False)


class Authenticator:
    """Recognises callers. Its methods may be called from any thread.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        tokens: Tokens | None = None,
        jwt: JwtVerifier | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tokens = tokens
        self._jwt = jwt
        self._clock = clock
        self._remembered: dict[bytes, Caller] = {}

    def remembered(self, token: str) -> Caller | None:
        """Whose token it is, if that was found out lately."""
        caller = self._remembered.get(digest_of(token))
        return caller if caller is not None and caller.until_s > self._clock() else None

    def is_current(self, caller: Caller) -> bool:
        """False if a token has to be looked at again: it has expired, or what is known changed."""
        if caller.digest is None:
            return True
        return self._remembered.get(caller.digest) is caller and caller.until_s > self._clock()

    def of_token(self, token: str) -> Caller:
        """Whose token it is. With keys from a URL it may wait for the network.

        Raises:
            Unauthenticated: nobody's. KeysUnavailable: nobody can say.
        """
        digest = digest_of(token)
        caller = self._look_up(token, digest)
        if len(self._remembered) >= REMEMBER_MOST:
            self._remembered.clear()
        self._remembered[digest] = caller
        return caller

    def _look_up(self, token: str, digest: bytes) -> Caller:
        most_s = self._clock() + REMEMBER_S
        if self._tokens is not None and (name := self._tokens.principal_of(digest)) is not None:
            return Caller(f"token:{name}", most_s, digest)
        if self._jwt is None or len(token) > LONGEST_TOKEN:
            raise Unauthenticated(f"the token is not known: {WHAT_TO_DO}")
        claims = self._jwt.verify(token)
        return Caller(f"jwt:{claims.subject}", min(most_s, claims.until_s), digest)


def bearer_token(header: str | None, *, also_basic: bool = False) -> str | None:
    """The token in an Authorization header; None if there is no such header.

    Args:
        also_basic: a password is a token too, so that a browser can ask for it.
    Raises:
        Unauthenticated: it holds something else.
    """
    if header is None:
        return None
    scheme, _, value = header.strip().partition(" ")
    if scheme.lower() == "bearer" and value.strip():
        return value.strip()
    if also_basic and scheme.lower() == "basic":
        try:
            password = base64.b64decode(value.strip(), validate=True).decode().partition(":")[2]
        except ValueError:  # Not base64, or not of UTF-8: binascii's error is one too.
            password = ""
        if password:
            return password
    raise Unauthenticated(f"the Authorization header holds no bearer token: {WHAT_TO_DO}")


def principal_of_certificate(
    *, uris: Iterable[str], common_name: str, dns_names: Iterable[str]
) -> str | None:
    """Whose certificate it is: its first URI (SPIFFE), else its common name, else its first host.

    None: it names nobody.
    """
    name = next(iter(uris), "") or common_name or next(iter(dns_names), "")
    return f"cert:{name}" if name and name.isprintable() else None
