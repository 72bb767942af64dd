"""Bearer tokens that somebody else has signed: JWT, with the signer's keys as a JWKS.

PyJWT does the work. Accepted are signatures with a private key only (never HS*, never none),
for our audience, that end and name a subject. Keys come from a file, or from a URL, which is
asked again after five minutes and, for a key that is not known yet, at most every 30 s.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from dataclasses import dataclass

import jwt

from coordinator.security.errors import CannotSecure, KeysUnavailable, Unauthenticated

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512",
              "EdDSA")  # fmt: skip
LEEWAY_S = 30
"""By which clocks may differ."""
FETCH_TIMEOUT_S = 5

TIMES = ("exp", "nbf", "iat")
LATEST_S = 2**53
"""Up to which every number of seconds is told from the next."""
UNAVAILABLE = (
    jwt.PyJWKClientConnectionError,
    jwt.PyJWKSetError,
    json.JSONDecodeError,
    OSError,
    http.client.HTTPException,
)
"""What fetching keys can end with."""

FindKey = Callable[[str], jwt.PyJWK]
"""The key that a token says it was signed with; raises jwt.PyJWTError."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Of a token that is sound. `until_s`: seconds since the epoch."""

    subject: str
    until_s: float


class JwtVerifier:
    """Tells who a token is about.

    Args:
        audience: must be the token's, or among them. issuer: must be the token's; empty: any.
        claim: the one that names the principal.
    """

    def __init__(self, find_key: FindKey, *, audience: str, issuer: str, claim: str) -> None:
        self._find_key = find_key
        self._audience = audience
        self._issuer = issuer
        self._claim = claim

    def verify(self, token: str) -> Claims:
        """Who it is about, and until when it holds. May wait for the network.

        Raises:
            Unauthenticated: it is not sound. KeysUnavailable: nobody can say.
        """
        key = self._key_of(token)
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=self._audience,
                issuer=self._issuer or None,
                leeway=LEEWAY_S,
                options={"require": ["exp", "aud", self._claim]},
            )
        except Exception as error:  # As `_unsound` says.
            raise _unsound(error) from error
        for name in TIMES:
            if name in claims and not _is_time(claims[name]):
                raise Unauthenticated(f"the token's {name} is no time")
        subject = claims[self._claim]
        if not isinstance(subject, str) or not subject.isprintable() or len(subject) > 256:
            raise Unauthenticated(f"the token's {self._claim} is not a name")
        return Claims(subject, float(claims["exp"]) + LEEWAY_S)

    def _key_of(self, token: str) -> jwt.PyJWK:
        try:
            return self._find_key(token)
        except UNAVAILABLE as error:
            raise KeysUnavailable("the keys for tokens cannot be fetched; try again") from error
        except Exception as error:  # As `_unsound` says.
            raise _unsound(error) from error


def _unsound(error: Exception) -> Unauthenticated:
    """Whatever a library makes of a token that anybody can write, it is not let in: numbers that
    overflow and nests that recurse raise what no list of errors foresees."""
    return Unauthenticated(f"the token is not valid ({type(error).__name__})")


def _is_time(value: object) -> bool:
    """Source: RFC 7519, section 2, NumericDate: a number of seconds, whole or not."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and -LATEST_S <= value <= LATEST_S  # False for NaN.
    )


def keys_of_url(url: str) -> FindKey:
    """Keys that are fetched when they are needed."""
    return jwt.PyJWKClient(url, timeout=FETCH_TIMEOUT_S).get_signing_key_from_jwt


def keys_of_text(text: str) -> FindKey:
    """Keys from the text of a JWKS file.

    Raises:
        CannotSecure: it holds no usable key.
    """
    try:
        keys = jwt.PyJWKSet.from_dict(json.loads(text)).keys
    except (jwt.PyJWTError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise CannotSecure(f"no JWKS with usable keys ({type(error).__name__})") from error

    def find(token: str) -> jwt.PyJWK:
        wanted = jwt.get_unverified_header(token).get("kid")
        for key in keys:
            if key.key_id == wanted or (wanted is None and len(keys) == 1):
                return key
        raise jwt.InvalidTokenError("no such key")

    return find
