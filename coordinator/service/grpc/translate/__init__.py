"""Translation between protobuf and the core: the only package that knows both.

commands_of(request, new_call_id, client_host)    one request, one or more commands
response_of(request, replies)                     their replies, one response

`translation` and `response_work` do the same a slice at a time, for a server with other calls.
"""

from coordinator.service.grpc.translate.rebalances import rebalance_message
from coordinator.service.grpc.translate.requests import (
    commands_of,
    translation,
)
from coordinator.service.grpc.translate.responses import (
    error_code,
    find_response,
    heartbeat_response,
    response_of,
    response_work,
)

__all__ = [
    "commands_of",
    "error_code",
    "find_response",
    "heartbeat_response",
    "rebalance_message",
    "response_of",
    "response_work",
    "translation",
]
