"""Calls to the coordinator that are made again while it moves or is away; its silence is told.

For code that is no member: the record of files, the source of streaming queries, sinks of Spark.
Members have `reachability.py`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import grpc

from coordinator.client.errors import FatalError, Unavailable
from coordinator.dial import Credentials
from coordinator.operator.admin import GroupAdmin

LOGGER = logging.getLogger(__name__)
GIVE_UP_S, PAUSE_S = 60.0, 0.2
SILENCE_S = 2.0
"""Time without an answer after which it is told."""
RETRIABLE_REFUSALS = frozenset(
    "COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR REQUEST_TIMED_OUT "
    "NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND UNSTABLE_OFFSET_COMMIT "
    "KAFKA_STORAGE_ERROR UNKNOWN_SERVER_ERROR".split()
)
"""Codes of a compare-and-set after which it is asked again; its outcome may be unknown."""
MISMATCH = "OFFSET_MISMATCH"
"""Code of a compare-and-set that found another offset."""
_RETRIED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
T = TypeVar("T")


class Silence:
    """Warns of a coordinator that does not answer, however often it is asked meanwhile.

    Can be pickled while nothing is asked. Not for several threads at once.
    """

    def __init__(self, bootstrap: str, group_id: str) -> None:
        self._of = f"the coordinator of group {group_id} at {bootstrap}"
        self._timer: threading.Timer | None = None

    def during(self, ask: Callable[[], T]) -> T:
        """The answer. The silence goes on if `ask` raises, until the next answer or `end`."""
        if self._timer is None:
            line = (
                f"no answer for {SILENCE_S:.0f} s from {self._of}: it is unreachable, or loads the "
                f"group; trying again for up to {GIVE_UP_S:.0f} s"
            )
            self._timer = threading.Timer(SILENCE_S, LOGGER.warning, ["%s", line])
            self._timer.daemon = True
            self._timer.start()
        answer = ask()
        self.end()
        return answer

    def end(self) -> None:
        """Nothing is asked any more."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()


def asked(
    bootstrap: str,
    group_id: str,
    credentials: Credentials | None,
    ask: Callable[[GroupAdmin], T],
) -> T:
    """The coordinator's answer, asked again for a minute while it moves or is away.

    Args:
        bootstrap: HOST:PORT, or several separated by commas.
        ask: raises LookupError if it is to be asked again.
    Raises:
        Unavailable: there was none. FatalError: the coordinator refuses. Both name its address.
    """
    give_up_at = time.monotonic() + GIVE_UP_S
    silence = Silence(bootstrap, group_id)
    where = f"coordinator of group {group_id} at {bootstrap}"

    def answer() -> T:
        with GroupAdmin(bootstrap, credentials=credentials) as admin:
            return ask(admin)

    try:
        while True:
            try:
                return silence.during(answer)
            except (grpc.RpcError, LookupError) as error:
                details = error.details() if isinstance(error, grpc.RpcError) else ""
                message = f"{where}: {details or error}"
                if isinstance(error, grpc.RpcError) and error.code() not in _RETRIED:
                    raise FatalError(message, error.code().name) from error
                if time.monotonic() > give_up_at:
                    raise Unavailable(
                        f"no answer for {GIVE_UP_S:.0f} s from the {message}"
                    ) from error
                time.sleep(PAUSE_S)
    finally:
        silence.end()
