"""Requests of GroupCoordinator and GroupAdmin: protobuf, then commands.

The first byte chooses the request.
"""

from itertools import count

from google.protobuf.message import DecodeError, Message

from coordinator.core.values.errors import ErrorCode, Refused
from coordinator.service.grpc import translate
from coordinator.service.grpc.translate.responses import _OF_SEVERAL, _RESPONSES
from coordinator.service.refusals import Malformed

KINDS: list[type[Message]] = sorted([*_RESPONSES, *_OF_SEVERAL], key=lambda kind: kind.__name__)


def target(data: bytes) -> None:
    if not data:
        return
    kind = KINDS[data[0] % len(KINDS)]
    try:
        request = kind.FromString(data[1:])
    except DecodeError:
        return
    calls = count(1)
    try:
        commands = translate.commands_of(request, calls.__next__, "/127.0.0.1")
    except Malformed:
        return
    if not commands:
        return
    # The refusal of each command must be a response to the request.
    refused = Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    response = translate.response_of(request, [command.refusal(refused) for command in commands])
    assert type(response).FromString(response.SerializeToString()) == response
