"""Static bearer tokens. The file holds principals and hashes of tokens.

A line is `PRINCIPAL sha256:HEX`; # begins a comment. Tokens are 256 random bits that we make, so a
plain SHA-256 is as good as a slow hash: they cannot be guessed. Several lines may name one
principal, so that a token can be rotated without a gap.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence

from coordinator.security.errors import CannotSecure

_LINE = re.compile(r"(\S+)\s+sha256:([0-9a-f]{64})")


def new_token() -> str:
    """Make a token: 256 random bits, as text for a header."""
    return "cgc_" + secrets.token_urlsafe(32)


def line_for(principal: str, token: str) -> str:
    """Return the line of the tokens file for a token.

    Raises:
        CannotSecure: the principal is not one word.
    """
    if not re.fullmatch(r"[^\s#]+", principal):
        raise CannotSecure(f"{principal!r} cannot be a principal: it is one word, without #")
    return f"{principal} sha256:{digest_of(token).hex()}"


def digest_of(token: str) -> bytes:
    """SHA-256 of a token, which is stored instead of it."""
    return hashlib.sha256(token.encode()).digest()


class Tokens:
    """Static tokens of a node, as (principal, digest)."""

    def __init__(self, entries: Sequence[tuple[str, bytes]]) -> None:
        self._entries = tuple(entries)

    def principal_of(self, digest: bytes) -> str | None:
        """Principal of a token's digest; None if it is unknown. Takes constant time."""
        caller = None
        for principal, known in self._entries:
            if hmac.compare_digest(known, digest):
                caller = principal
        return caller


def parse(text: str) -> Tokens:
    """Parse the text of a tokens file.

    Raises:
        CannotSecure: a line is wrong; the message has its number but not its content, which may be
            a token.
    """
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise CannotSecure(
                f"line {number} is not PRINCIPAL sha256:HEX; `coordinator token new` makes one"
            )
        entries.append((match[1], bytes.fromhex(match[2])))
    return Tokens(entries)
