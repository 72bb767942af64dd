"""Verification of JSON web tokens (JWT) with an issuer's keys (JWKS), by PyJWT.

Only asymmetric signatures are accepted (never HS*, never none), for our audience, with an expiry
and a subject. Keys come from a file, or from a URL, which is fetched again after five minutes and,
for an unknown key, at most every 30 s.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import jwt

from coordinator.security.errors import CannotSecure, KeysUnavailable, Unauthenticated

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512",
              "EdDSA")  # fmt: skip
LEEWAY_S = 30
"""Tolerated difference of clocks, in seconds."""
FETCH_TIMEOUT_S = 5

TIMES = ("exp", "nbf", "iat")
LATEST_S = 2**53
"""Largest time accepted: a float distinguishes all whole seconds up to it."""
UNAVAILABLE = (
    jwt.PyJWKClientConnectionError,
    jwt.PyJWKSetError,
    json.JSONDecodeError,
    OSError,
    http.client.HTTPException,
)
"""Errors of fetching keys."""

FindKey = Callable[[str], jwt.PyJWK]
"""Finds the key that a token names; raises jwt.PyJWTError."""


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """Claims of a valid token. `expires_s`: its expiry, in seconds since the epoch."""

    subject: str
    expires_s: float

    @property
    def until_s(self) -> float:
        """Time until which it is accepted, in seconds since the epoch."""
        return self.expires_s + LEEWAY_S


@dataclass(frozen=True, slots=True)
class JwtVerifier:
    """Verifies tokens.

    Args:
        find_key: finds the key of a token.
        audience: required in the token's `aud`.
        issuer: required as the token's `iss`; empty: any.
        claim: name of the claim that is the principal.
    """

    find_key: FindKey
    _: KW_ONLY
    audience: str
    issuer: str
    claim: str

    def verify(self, token: str) -> TokenClaims:
        """Return the subject and the expiry of a token. May block to fetch keys.

        Raises:
            Unauthenticated: the token is not valid.
            KeysUnavailable: the keys cannot be fetched.
        """
        key = self._key_of(token)
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=self.audience,
                issuer=self.issuer or None,
                leeway=LEEWAY_S,
                options={"require": ["exp", "aud", self.claim]},
            )
        except Exception as error:  # As `_unsound` says.
            raise _unsound(error) from error
        for name in TIMES:
            if name in claims and not _is_time(claims[name]):
                raise Unauthenticated(f"the token's {name} is no time")
        subject = claims[self.claim]
        if not isinstance(subject, str) or not subject.isprintable() or len(subject) > 256:
            raise Unauthenticated(f"the token's {self.claim} is not a name")
        return TokenClaims(subject, float(claims["exp"]))

    def _key_of(self, token: str) -> jwt.PyJWK:
        try:
            return self.find_key(token)
        except UNAVAILABLE as error:
            raise KeysUnavailable("the keys for tokens cannot be fetched; try again") from error
        except Exception as error:  # As `_unsound` says.
            raise _unsound(error) from error


def _unsound(error: Exception) -> Unauthenticated:
    """Turn any error of the libraries into a refusal. Tokens are written by anybody: numbers that
    overflow and deep nesting raise errors that the libraries do not document."""
    return Unauthenticated(f"the token is not valid ({type(error).__name__})")


def _is_time(value: object) -> bool:
    """True of a NumericDate, whole or fractional seconds. Source: RFC 7519, section 2."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and -LATEST_S <= value <= LATEST_S  # False for NaN.
    )


def keys_of_url(url: str) -> FindKey:
    """Return a finder that fetches keys from a URL when they are needed."""
    return jwt.PyJWKClient(url, timeout=FETCH_TIMEOUT_S).get_signing_key_from_jwt


def keys_of_text(text: str) -> FindKey:
    """Return a finder of keys in the text of a JWKS file.

    Raises:
        CannotSecure: there is no usable key.
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
