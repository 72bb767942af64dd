"""Authentication of Kafka's connections: a token by SASL, or the client's certificate.

The pipeline asks with every request whether the caller's token is still valid, so the token is kept
for as long as its connection lives. Once it has expired or was taken away, the connection ends at
its next request. A client that wants to keep its connection authenticates again in time (KIP-368):
it is told how long the session lasts.
"""

from __future__ import annotations

import math
from functools import partial

from coordinator.kafka.apis import SASL_AUTHENTICATE
from coordinator.kafka.codec import Answer
from coordinator.kafka.errors import COORDINATOR_NOT_AVAILABLE
from coordinator.security.authenticator import WHAT_TO_DO
from coordinator.security.guard import UNAUTHENTICATED, UNKNOWN, Guard, Refusal
from coordinator.service.calls import CallingPeer, Credential
from coordinator.service.kafka.calls import KINDS, KafkaCall
from coordinator.service.kafka.sasl import ILLEGAL_STATE, Mechanism, Sasl, SaslFailed, SaslStage
from coordinator.service.pipeline import Pipeline
from coordinator.service.refusals import UnauthenticatedCall, UnavailableCall

WHAT_TO_GIVE = "give a token that this node knows, with PLAIN as the password"
LIFETIME_MS_MAX = 365 * 24 * 3_600_000
"""Longest session that is told: clients set timers by it."""


class NoAuthentication:
    """Authentication of connections whose callers need none: SASL is refused, as Kafka does. A
    client that sends a password wants to be told that nobody looks at it."""

    is_done = True
    takes_token = False
    has_failed = False

    def handshake(self, mechanism: str, version: int) -> Answer:
        return {"error_code": ILLEGAL_STATE}

    async def authenticate(self, data: bytes) -> Answer:
        return {"error_code": ILLEGAL_STATE, "error_message": "connect without SASL"}

    async def token(self, frame: bytes) -> bytes | None:
        raise AssertionError("no handshake has asked for a token")


class TurnedAwayClient(NoAuthentication):
    """Authentication of a connection for which there is no room: it is answered once."""

    is_done = False
    has_failed = True


NOBODY_ASKED = NoAuthentication()
TURNED_AWAY = TurnedAwayClient()


class ConnectionAuthentication:
    """Authentication of one connection to a node with a guard.

    Args:
        caller: of the connection; it shows the token from now on, or else the certificate.
        principal: of the client's certificate; None without one.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        guard: Guard,
        caller: CallingPeer,
        principal: str | None,
    ) -> None:
        self._pipeline = pipeline
        self._guard = guard
        self._caller = caller
        self._sasl = Sasl()
        self.is_done = principal is not None
        """True once other requests than ApiVersions and those of SASL are answered."""
        caller.show = partial(Credential, principal=principal)

    @property
    def takes_token(self) -> bool:
        """True if the next frame is a bare token (SaslHandshake 0)."""
        return self._sasl.takes_bare_token

    @property
    def has_failed(self) -> bool:
        """True if the connection is to be closed after the answer."""
        return self._sasl.stage is SaslStage.FAILED

    def handshake(self, mechanism: str, version: int) -> Answer:
        known = self._guard.authenticator
        offered = [Mechanism.PLAIN] * known.knows_tokens + [Mechanism.OAUTHBEARER] * known.knows_jwt
        code = 0
        try:
            self._sasl.handshake(mechanism, version, offered)
        except SaslFailed as failed:
            self._log_failure("SaslHandshake", failed)
            code = failed.code
        return {"error_code": code, "mechanisms": offered}

    async def authenticate(self, data: bytes) -> Answer:
        try:
            lifetime_ms = await self._verify(data, bare=False)
        except SaslFailed as failed:
            return {
                "error_code": failed.code,
                "error_message": str(failed),
                "auth_bytes": self._sasl.error_reply(),
            }
        return {"session_lifetime": lifetime_ms}

    async def token(self, frame: bytes) -> bytes | None:
        """Answer a bare token; None: with the end of the connection alone."""
        try:
            await self._verify(frame, bare=True)
        except SaslFailed:
            # An empty reply would mean success.
            return self._sasl.error_reply() or None
        return b""

    # --- Inside ---

    async def _verify(self, data: bytes, *, bare: bool) -> int:
        """Return the milliseconds until the token expires; 0: it does not.

        Raises:
            SaslFailed: see `Sasl`, or the token is not valid.
        """
        caller = self._caller
        call = KafkaCall(KINDS[SASL_AUTHENTICATE], caller)
        try:
            presented = self._sasl.receive(data, bare=bare)
            caller.show, caller.identity = partial(Credential, presented.token), None
            await self._pipeline.admit(call)
            self._sasl.succeed(presented, caller.principal)
        except SaslFailed as failed:
            self._log_failure(call.where, failed)
            raise
        except UnauthenticatedCall as error:
            reason = str(error).replace(WHAT_TO_DO, WHAT_TO_GIVE)
            raise self._sasl.refused(reason) from error
        except UnavailableCall as error:
            # Clients take 58 for final.
            raise self._sasl.refused(str(error), COORDINATOR_NOT_AVAILABLE) from error
        finally:
            self.is_done = self._sasl.stage is SaslStage.AUTHENTICATED
        identity = self._caller.identity
        assert identity is not None, "the pipeline identifies callers"
        lasts_s = self._guard.authenticator.lifetime_s(identity)
        # 0 is none: a token in its last second has to say something else.
        return 0 if lasts_s == math.inf else min(max(1, int(1000 * lasts_s)), LIFETIME_MS_MAX)

    def _log_failure(self, where: str, failed: SaslFailed) -> None:
        peer = self._caller.peer
        self._guard.log_refusal(Refusal(UNAUTHENTICATED, where, UNKNOWN, peer, rule=str(failed)))
