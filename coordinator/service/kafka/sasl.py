"""SASL of one Kafka connection, sans-I/O: which frame may come, what it holds, what is answered.

    START ──handshake──► CHOSEN ──token──► AUTHENTICATED ──handshake 1──► CHOSEN …
                           └── anything wrong, anywhere ──► FAILED: answer, then close

After SaslHandshake 0 the client's next frame is a bare token without a header, and so is the reply;
after SaslHandshake 1 tokens travel in SaslAuthenticate. Both mechanisms carry one bearer token,
which the caller of this module verifies: what is a valid token is the authenticator's business.

PLAIN: the password is the token, under any user name, as for the pages. A token is 256 random bits,
so a name beside it proves nothing more. OAUTHBEARER: the token is in the form of RFC 7628. SCRAM
proves knowledge of a password against a salted, iterated hash of it, so the node would have to keep
such a hash instead of its SHA-256 of the token.

A failed OAUTHBEARER exchange is answered at once with error 58, its reason, and the JSON of RFC
7628 beside it. Kafka sends the JSON with error 0, and 58 after the client's reply to it; aiokafka
takes that error 0 for success. Without SaslAuthenticate there is no error code, and the JSON comes
alone.

Source: KIP-43, KIP-152, KIP-255, KIP-368; RFC 4616, RFC 7628; Kafka `SaslServerAuthenticator`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum, auto

from coordinator.security.authenticator import bearer_token
from coordinator.security.errors import Unauthenticated

UNSUPPORTED_MECHANISM, ILLEGAL_STATE, AUTHENTICATION_FAILED = 33, 34, 58
"""Kafka's error codes of SASL."""
SEPARATOR = "\x01"
NOT_VALID = b'{"status":"invalid_token"}'
"""The server's error of RFC 7628, section 3.2.2."""
WHY_NO_SCRAM = (
    "SCRAM needs a salted hash of the password itself, and this node keeps only SHA-256 of its "
    "tokens; use PLAIN over TLS, with the token as the password"
)


class Mechanism(StrEnum):
    """SASL mechanism, by the name that Kafka's clients use."""

    PLAIN = "PLAIN"
    OAUTHBEARER = "OAUTHBEARER"


class SaslStage(StrEnum):
    """Stage of the exchange."""

    START = auto()
    CHOSEN = auto()
    AUTHENTICATED = auto()
    FAILED = auto()


class SaslFailed(Exception):
    """The exchange has failed, and the connection is to be closed after the answer.

    Args:
        code: Kafka's error code.
        reason: for the client and the log; contains nothing of the credential.
    """

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class Presented:
    """A token to be verified. `authorization_id`: for whom its bearer asks to speak, or empty."""

    token: str
    authorization_id: str = ""


class Sasl:
    """SASL exchange of one connection."""

    __slots__ = ("_is_bare", "_mechanism", "_principal", "stage")

    def __init__(self) -> None:
        self._mechanism: Mechanism | None = None
        self._is_bare = False
        self._principal = ""
        self.stage = SaslStage.START

    @property
    def takes_bare_token(self) -> bool:
        """True if the next frame is a token without a request header."""
        return self.stage is SaslStage.CHOSEN and self._is_bare

    def handshake(self, mechanism: str, version: int, offered: Sequence[Mechanism]) -> None:
        """Choose the mechanism of the token that follows.

        Args:
            offered: mechanisms of this node; empty if its callers have no tokens.
        Raises:
            SaslFailed: it is not offered, or a handshake is not due. A connection that is
                authenticated may only begin SaslHandshake 1: bare tokens have no reply to an error.
        """
        is_again = self.stage is SaslStage.AUTHENTICATED
        if self.stage is not SaslStage.START and not (is_again and version > 0):
            raise self._failed(ILLEGAL_STATE, f"SaslHandshake {version} in state {self.stage}")
        if mechanism not in offered:
            raise self._failed(UNSUPPORTED_MECHANISM, _why_not(mechanism, offered))
        self._mechanism = Mechanism(mechanism)
        self._is_bare = version == 0
        self.stage = SaslStage.CHOSEN

    def receive(self, data: bytes, *, bare: bool) -> Presented:
        """Read the client's token.

        Args:
            bare: it came without a header.
        Raises:
            SaslFailed: no token is due, not in this form, or the message is not of the mechanism.
        """
        if self.stage is not SaslStage.CHOSEN or bare is not self._is_bare:
            raise self._failed(ILLEGAL_STATE, f"a token in state {self.stage}")
        try:
            text = data.decode()
            plain = self._mechanism is Mechanism.PLAIN
            return _plain(text) if plain else _oauth_bearer(text)
        except (ValueError, Unauthenticated) as error:
            reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
            raise self.refused(f"{self._mechanism}: {reason}") from None

    def succeed(self, presented: Presented, principal: str) -> None:
        """Conclude with the principal of the verified token.

        Raises:
            SaslFailed: its bearer asks to speak for somebody else, or the connection is another
                principal's.
        """
        if presented.authorization_id not in ("", principal, principal.partition(":")[2]):
            raise self.refused(f"{principal} may not speak for somebody else")
        if self._principal not in ("", principal):
            raise self.refused(f"the connection is {self._principal}'s: {principal} needs its own")
        self._principal = principal
        self.stage = SaslStage.AUTHENTICATED

    def refused(self, reason: str, code: int = AUTHENTICATION_FAILED) -> SaslFailed:
        """Conclude without success; return the error to raise."""
        return self._failed(code, reason)

    def error_reply(self) -> bytes:
        """The mechanism's own message of a failure: RFC 7628 has one, PLAIN has none."""
        return NOT_VALID if self._mechanism is Mechanism.OAUTHBEARER else b""

    # --- Inside ---

    def _failed(self, code: int, reason: str) -> SaslFailed:
        self.stage = SaslStage.FAILED
        return SaslFailed(code, reason)


def _why_not(mechanism: str, offered: Sequence[Mechanism]) -> str:
    if not offered:
        return "this node has no tokens: connect without SASL"
    names = ", ".join(offered)
    if mechanism.upper().startswith("SCRAM-"):
        return f"{WHY_NO_SCRAM} (offered: {names})"
    return f"no such mechanism here (offered: {names})"


def _plain(text: str) -> Presented:
    """Source: RFC 4616. Several clients repeat the user name as the authorization id."""
    parts = text.split("\0")
    if len(parts) != 3:
        raise ValueError("the message is not [authorization id] NUL user name NUL password")
    authorization_id, user, password = parts
    if not user or not password:
        raise ValueError("give any user name, and a token as the password")
    if authorization_id not in ("", user):
        raise ValueError("nobody may speak for somebody else")
    return Presented(password)


def _oauth_bearer(text: str) -> Presented:
    """Source: RFC 7628, section 3.1. Extensions (KIP-342) are ignored."""
    header, *pairs = text.split(SEPARATOR)
    flag, _, rest = header.partition(",")
    authorization_id, _, nothing = rest.partition(",")
    is_named = authorization_id.startswith("a=")
    if flag not in ("n", "y") or nothing or not (is_named or not authorization_id):
        raise ValueError("the message does not begin with a GS2 header of RFC 7628")
    if len(pairs) < 2 or pairs[-2:] != ["", ""]:
        raise ValueError("the message does not end as RFC 7628 has it")
    credentials = [pair[5:] for pair in pairs if pair.startswith("auth=")]
    if len(credentials) != 1:
        raise ValueError("the message has no auth=Bearer TOKEN")
    token = bearer_token(credentials[0])
    assert token is not None, "there is a header"
    name = authorization_id[2:].replace("=2C", ",").replace("=3D", "=")
    return Presented(token, name)
