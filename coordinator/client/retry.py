"""Pauses between attempts that grow, with full jitter, so that a thousand members that lost
their coordinator at once do not come back at once.

Source: Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015).
"""

from __future__ import annotations

from collections.abc import Callable

import grpc


def room_after_s(error: grpc.aio.AioRpcError) -> float | None:
    """When a coordinator that has no room says that it may have some; None: it does not say.

    Source: google.rpc.RetryInfo.
    """
    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
        return None
    # What it takes to read the details is not needed before there are some.
    from google.rpc import error_details_pb2
    from grpc_status import rpc_status

    status = rpc_status.from_call(error)
    info = error_details_pb2.RetryInfo()
    if status is None or not any(detail.Unpack(info) for detail in status.details):
        return None
    return float(info.retry_delay.ToMilliseconds()) / 1000


class BackOff:
    """Pauses drawn evenly from 0 to a limit that doubles.

    Args:
        random: a number from 0 to 1, below 1.
        first_s, most_s: the limit of the first pause and of any, in seconds.
    """

    __slots__ = ("_attempts", "_first_s", "_most_s", "_random")

    def __init__(
        self, random: Callable[[], float], *, first_s: float = 0.1, most_s: float = 5.0
    ) -> None:
        self._random = random
        self._first_s = first_s
        self._most_s = most_s
        self._attempts = 0

    def next_s(self) -> float:
        """The next pause, in seconds."""
        limit_s = min(self._most_s, self._first_s * 2.0 ** min(self._attempts, 30))
        self._attempts += 1
        return limit_s * self._random()

    def reset(self) -> None:
        """It worked: the next pause is a first one again."""
        self._attempts = 0
