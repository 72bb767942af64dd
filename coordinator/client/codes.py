"""Names of the coordinator's error codes."""

from __future__ import annotations

from coordinator.v1.errors_pb2 import ErrorCode


def code_name(code: int) -> str:
    """Name of an error code, `INCONSISTENT_GROUP_PROTOCOL` say; of an unknown one, its number."""
    known = code in ErrorCode.values()
    return str(ErrorCode.Name(ErrorCode.ValueType(code))) if known else str(code)
