"""gRPC statuses with details that a client can read."""

from __future__ import annotations

from google.protobuf import any_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2

from coordinator.service.malformed import Malformed


def malformed(error: Malformed) -> status_pb2.Status:
    """INVALID_ARGUMENT, and what is wrong with which field (google.rpc.BadRequest)."""
    violations = [
        error_details_pb2.BadRequest.FieldViolation(field=v.field, description=v.description)
        for v in error.violations
    ]
    details = error_details_pb2.BadRequest(field_violations=violations)
    return _status(code_pb2.INVALID_ARGUMENT, str(error), details)


def exhausted(message: str, retry_after_s: float) -> status_pb2.Status:
    """RESOURCE_EXHAUSTED, and when to try again (google.rpc.RetryInfo).

    Args:
        retry_after_s: 0: it would be refused again.
    """
    if not retry_after_s:
        return status_pb2.Status(code=code_pb2.RESOURCE_EXHAUSTED, message=message)
    delay = Duration()
    delay.FromMilliseconds(int(1000 * retry_after_s) + 1)
    details = error_details_pb2.RetryInfo(retry_delay=delay)
    return _status(code_pb2.RESOURCE_EXHAUSTED, message, details)


def _status(code: int, message: str, details: Message) -> status_pb2.Status:
    packed = any_pb2.Any()
    packed.Pack(details)
    return status_pb2.Status(code=code, message=message, details=[packed])
