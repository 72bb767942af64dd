"""Authentication of callers: by a bearer token, static or JWT, or the connection's certificate.

Principals have a prefix for the method: `token:grafana`, `jwt:alice`, `cert:billing-worker`. A
token takes precedence over the certificate; if it is not valid, the call is refused. Identities of
tokens are cached under the token's hash for at most five minutes.
"""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
    """Authenticated caller.

    until_s: seconds since the epoch at which the token is to be verified again.
    expires_s: its expiry, in seconds since the epoch; infinite for static tokens and certificates.
    digest: SHA-256 of the token; None: it came with a certificate.
    """

    principal: str
    until_s: float = math.inf
    digest: bytes | None = field(default=None, repr=False)
    expires_s: float = math.inf


class Authenticator:
    """Identifies callers by their tokens. Thread-safe.

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

    @property
    def knows_tokens(self) -> bool:
        """True if callers may have tokens, static or JWT."""
        return self._tokens is not None or self.knows_jwt

    @property
    def knows_jwt(self) -> bool:
        """True if callers may have JSON web tokens."""
        return self._jwt is not None

    def remembered(self, token: str) -> Caller | None:
        """Return the cached caller of a token; None if it has to be verified."""
        caller = self._remembered.get(digest_of(token))
        return caller if caller is not None and caller.until_s > self._clock() else None

    def is_current(self, caller: Caller) -> bool:
        """False if the token has to be verified again: it expired, or tokens were reloaded."""
        if caller.digest is None:
            return True
        return self._remembered.get(caller.digest) is caller and caller.until_s > self._clock()

    def lifetime_s(self, caller: Caller) -> float:
        """Seconds until a caller's token expires; infinite if it does not."""
        return caller.expires_s - self._clock()

    def of_token(self, token: str) -> Caller:
        """Verify a token and return its caller; blocks if it has to fetch keys from a URL.

        Raises:
            Unauthenticated: the token is unknown or invalid.
            KeysUnavailable: the keys cannot be fetched.
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
        until_s = min(most_s, claims.until_s)
        return Caller(f"jwt:{claims.subject}", until_s, digest, claims.expires_s)


def bearer_token(header: str | None, *, also_basic: bool = False) -> str | None:
    """Return the token in an Authorization header; None if there is no such header.

    Args:
        also_basic: accept the password of Basic authentication as a token: browsers ask for one.
    Raises:
        Unauthenticated: the header holds no token.
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
    """Principal of a certificate: its first URI (SPIFFE), else common name, else first DNS name.

    None if it has none of them, or it is not printable.
    """
    name = next(iter(uris), "") or common_name or next(iter(dns_names), "")
    return f"cert:{name}" if name and name.isprintable() else None


def principal_of_peer(certificate: Mapping[str, Any]) -> str | None:  # Any: nested tuples.
    """Principal of a peer's certificate, as `ssl` parses it; None if it names nobody."""
    names: list[tuple[str, str]] = list(certificate.get("subjectAltName", ()))
    common = [v for part in certificate.get("subject", ()) for k, v in part if k == "commonName"]
    return principal_of_certificate(
        uris=[value for kind, value in names if kind == "URI"],
        common_name=next(iter(common), ""),
        dns_names=[value for kind, value in names if kind == "DNS"],
    )
