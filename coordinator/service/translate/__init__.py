"""The bridge between protobuf and the core: the only package that sees both.

commands_of(request, new_call_id, client_host)    one request, one or more commands
response_of(request, replies)                     their replies, one response
"""

from coordinator.service.translate.rebalances import rebalance_message
from coordinator.service.translate.requests import (
    Malformed,
    Violation,
    commands_of,
    heartbeat_command,
)
from coordinator.service.translate.responses import (
    error_code,
    find_response,
    heartbeat_response,
    nowhere_response,
    response_of,
)

__all__ = [
    "Malformed",
    "Violation",
    "commands_of",
    "error_code",
    "find_response",
    "heartbeat_command",
    "heartbeat_response",
    "nowhere_response",
    "rebalance_message",
    "response_of",
]
