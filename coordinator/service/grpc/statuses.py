"""gRPC statuses of refused calls, with machine-readable details.

gRPC keeps the `AbortError` of a call in the call's state, and raises it again when the handler has
returned. If it left through our handlers, it would refer to their frames, and these to the state:
the call and its request would live until the garbage collector finds the cycle. So it ends here.
The same goes for a refusal that a request has brought along.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, cast

import grpc
from google.protobuf import any_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from coordinator.service.refusals import CallRefused, Exhausted, Malformed


async def end(context: Any, error: CallRefused) -> None:  # Any: the context of any RPC.
    """End a call with the status of its refusal. Nothing that its handler returns is sent."""
    error.__traceback__ = None
    code = grpc.StatusCode[error.outcome]
    details = _details(error)
    if details is None:
        await abort(context, code, str(error))
    else:
        await _ended(
            context.abort_with_status(rpc_status.to_status(_status(code, str(error), details)))
        )


async def abort(context: Any, code: grpc.StatusCode, reason: str) -> None:  # Any: see `end`.
    """End a call with a status. Nothing that its handler returns is sent."""
    await _ended(context.abort(code, reason))


async def _ended(aborting: Awaitable[None]) -> None:
    try:
        await aborting
    except grpc.aio.AbortError as aborted:
        aborted.__traceback__ = aborted.__context__ = None


def _details(error: CallRefused) -> Message | None:
    """Details: google.rpc.BadRequest with the field violations, or RetryInfo with the delay."""
    match error:
        case Malformed(violations=[_, *_] as violations):
            bad = error_details_pb2.BadRequest()
            for violation in violations:
                bad.field_violations.add(field=violation.field, description=violation.description)
            return cast("Message", bad)
        case Exhausted(retry_after_s=after_s) if after_s:
            delay = Duration()
            delay.FromMilliseconds(int(1000 * after_s) + 1)
            return cast("Message", error_details_pb2.RetryInfo(retry_delay=delay))
        case _:
            return None


def _status(code: grpc.StatusCode, message: str, details: Message) -> status_pb2.Status:
    packed = any_pb2.Any()
    packed.Pack(details)
    return status_pb2.Status(code=code_pb2.Code.Value(code.name), message=message, details=[packed])
