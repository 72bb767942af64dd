"""One stream of a session member, without I/O: messages in, commands out, and back.

The service of gRPC and the coordinator on virtual time are its hosts. A host hands `hear` each
message, steps the shard with the results, and sends what `answered`, `told` and `last` return.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.ids import CallId
from coordinator.core.values.session_messages import (
    Attach,
    AttachReply,
    SessionInput,
    StreamEnded,
    StreamRefused,
    ToMember,
)
from coordinator.runtime.slices import Work
from coordinator.service.grpc.translate import sessions as translate
from coordinator.service.refusals import Malformed, Violation
from coordinator.v1 import session_pb2 as pb


class MemberStream:
    """One stream of a member.

    It is kept as long as the stream.

    Args:
        stream_id: the id that no other call or stream of the process has.
        client_host: the peer's address, `/127.0.0.1`.
    """

    __slots__ = ("_client_host", "_epoch", "_reply", "group_id", "stream_id")

    def __init__(self, stream_id: CallId, client_host: str) -> None:
        self.stream_id = stream_id
        self.group_id = ""
        self._client_host = client_host
        self._reply = AttachReply()
        self._epoch = 0

    def attach(self, request: pb.SessionRequest, principal: str) -> Work[Attach]:
        """Translate the first message, a part at a time.

        Args:
            principal: name of the authenticated caller; empty without authentication.
        Raises:
            Malformed: it is no Attach, or has invalid fields.
        """
        if request.WhichOneof("message") != "attach":
            raise Malformed([Violation("attach", "must be the first message of a stream")])
        self.group_id = request.attach.group_id
        return (
            yield from translate.attach_of(
                request.attach, self.stream_id, principal, self._client_host
            )
        )

    def receive(self, request: pb.SessionRequest) -> Work[list[SessionInput]]:
        """Translate a message after the first, a part at a time.

        Raises:
            Malformed: it is an Attach, or nothing, or has invalid fields.
        """
        return translate.said(request, self.stream_id, self.group_id, self._epoch)

    def ended(self) -> StreamEnded:
        """The command that reports the end of this stream."""
        return StreamEnded(stream_id=self.stream_id, group_id=self.group_id)

    def answered(self, reply: AttachReply, epoch: int) -> Iterator[pb.SessionResponse]:
        """Messages that answer the Attach without an error."""
        self._reply, self._epoch = replace(reply, orders=None), epoch  # Kept with the stream.
        return translate.attached(reply, epoch)

    def outgoing(self, news: ToMember, epoch: int) -> Iterator[pb.SessionResponse]:
        """Messages that are pending for the member now."""
        return translate.outgoing(news, self._reply, epoch)


def refusal(malformed: Malformed) -> StreamRefused:
    """The GoAway of a stream on which a malformed message was received."""
    return StreamRefused(ErrorCode.INVALID_REQUEST, str(malformed))
