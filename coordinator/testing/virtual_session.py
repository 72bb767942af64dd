"""Streams of session members to a coordinator on virtual time."""

from __future__ import annotations

from typing import Protocol

from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.ids import CallId
from coordinator.core.values.session_messages import (
    Attach,
    AttachReply,
    SessionInput,
    StreamEnd,
    StreamRefused,
    ToMember,
)
from coordinator.runtime.slices import at_once
from coordinator.service.grpc.translate import sessions as translate
from coordinator.service.grpc.translate.sessions import MemberStream, refusal
from coordinator.service.refusals import Malformed
from coordinator.v1 import session_pb2 as pb


class Owner(Protocol):
    """The coordinator at the other end of a stream."""

    @property
    def fence_epoch(self) -> int: ...
    def receive(self, message: Attach | SessionInput) -> None: ...
    def take(self, stream_id: CallId) -> ToMember | None: ...


class VirtualSession:
    """One stream of a member. Messages take no time.

    `received`: everything that the coordinator has sent, in order. `has_ended`: it has ended the
    stream, or `cut` has.
    """

    def __init__(self, owner: Owner, stream_id: CallId, principal: str, client_host: str) -> None:
        self.received: list[pb.SessionResponse] = []
        self.has_ended = False
        self._owner = owner
        self._principal = principal
        self._stream = MemberStream(stream_id, client_host)
        self._is_attached = False
        self._is_reading = True

    def send(self, request: pb.SessionRequest) -> None:
        """Say something, as a member does. Ignored once the stream has ended."""
        if self.has_ended:
            return
        try:
            if self._is_attached:
                for message in at_once(self._stream.receive(request)):
                    self._owner.receive(message)
            else:
                attach = at_once(self._stream.attach(request, self._principal))
                self._is_attached = True
                self._owner.receive(attach)
        except Malformed as malformed:
            self.end(refusal(malformed))
            self._owner.receive(self._stream.ended())

    def cut(self) -> None:
        """End the stream, as when the connection is lost."""
        if not self.has_ended:
            self.has_ended = True
            self._owner.receive(self._stream.ended())

    def stop_reading(self) -> None:
        """Take nothing from now on: messages wait at the coordinator."""
        self._is_reading = False

    def read_on(self) -> None:
        """Take what there is, and go on."""
        self._is_reading = True
        self.wake()

    @property
    def kinds(self) -> list[str]:
        """Kinds of the received messages, by their names in the contract."""
        return [message.WhichOneof("message") or "" for message in self.received]

    # --- Called by the coordinator ---

    def answer(self, reply: AttachReply) -> None:
        """Answer the Attach."""
        if reply.error is not ErrorCode.NONE:
            self.end(StreamRefused(reply.error, reply.message, reply.retry_after_ms))
        else:
            self.received += self._stream.answered(reply, self._owner.fence_epoch)
            self.wake()  # It may be a part.

    def wake(self) -> None:
        """There is something to be told."""
        if not self._is_reading or self.has_ended:
            return
        while (pending := self._owner.take(self._stream.stream_id)) is not None:
            self.received += self._stream.outgoing(pending, self._owner.fence_epoch)

    def end(self, last: StreamEnd) -> None:
        """The stream ends, with this as its last message."""
        if not self.has_ended:
            self.received.append(translate.last_of(last))
            self.has_ended = True
