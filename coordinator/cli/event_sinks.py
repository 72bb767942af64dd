"""Log lines and metrics, made of what a node reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from typing import Any

from coordinator.core.values.events import Event
from coordinator.observe.logs import EventLog
from coordinator.observe.metrics import Metrics
from coordinator.runtime.watchers import Watchers
from coordinator.storage.store_files import STORE_BACK, STORE_GONE

LOG_EVERY_S = 1.0


class RefusalLog:
    """Log lines about malformed requests, at most one a second for each method.

    The first is told at once. Those that come within the second after a line are counted and told
    together at its end, with the newest of them: anybody who can connect could fill a disk.

    Args:
        logger: structlog's. Any: it has no precise type.
    """

    def __init__(self, logger: Any) -> None:
        self._logger = logger
        self._unsent: dict[str, tuple[int, str, str, Context]] = {}
        """Methods of which a line was written less than a second ago: refusals since, the newest's
        peer, reason and context, which has its request id."""

    def refused(self, method: str, peer: str, reason: str) -> None:
        if method in self._unsent:
            self._unsent[method] = self._unsent[method][0] + 1, peer, reason, copy_context()
            return
        self._logger.warning("request_refused", method=method, peer=peer, what=reason)
        self._rest(method)

    def _rest(self, method: str) -> None:
        self._unsent[method] = 0, "", "", copy_context()
        asyncio.get_running_loop().call_later(LOG_EVERY_S, self._forward, method)

    def _forward(self, method: str) -> None:
        count, peer, reason, context = self._unsent.pop(method)
        if count:
            about = {"method": method, "peer": peer, "what": reason, "refused": count}
            context.run(self._logger.warning, "request_refused", **about)
            self._rest(method)


class EventSinks:
    """Callbacks for the node, the server and the stores.

    Set `metrics` and `on_store` before the node starts. `on_store` is called in a thread if the
    files of the store are gone (False), or back (True).

    Args:
        logger: structlog's. Any: it has no precise type.
    """

    metrics: Metrics

    def __init__(self, logger: Any) -> None:
        self._logger = logger
        self._event_log = EventLog(logger)
        self.on_store: Callable[[bool], object] = lambda is_there: None
        self.malformed = RefusalLog(logger).refused

    def watchers(self) -> Watchers:
        """The callbacks of the node itself."""
        return Watchers(
            events=self._events,
            failure=self.failed,
            recovery=lambda reason: self._logger.info("recovered", what=reason),
            append=self._appended,
        )

    def failed(self, reason: str, error: BaseException | None) -> None:
        """Log what has gone wrong, with the error if there is one."""
        self._logger.error("problem", what=reason, exc_info=error)

    def store_failure(self, event: str, reason: str) -> None:
        """Log what has happened to the store: see `open_stores`. Called in a thread."""
        log = self._logger.info if event == STORE_BACK else self._logger.error
        log(event, what=reason)
        if event in (STORE_GONE, STORE_BACK):
            self.on_store(event == STORE_BACK)

    def kafka_full(self, peer: str, reason: str) -> None:
        """Log that Kafka clients are turned away."""
        self._logger.warning("kafka_connection_refused", peer=peer, what=reason)

    def few_descriptors(self, reason: str) -> None:
        """Log that the system allows fewer connections of Kafka clients than the settings."""
        self._logger.warning("few_descriptors", what=reason)

    def deleted(self, group: str, principal: str, peer: str, is_known: bool) -> None:
        """Log a deleted group; without `is_known`, the answer to the deletion was lost."""
        event = "group_deleted" if is_known else "group_deletion_unanswered"
        who = {"principal": principal} if principal else {}
        self._logger.info(event, group=group, peer=peer, **who)

    def flushed(self, appends: int, seconds: float) -> None:
        """Count a write that SQLite has synced. Called from the thread that writes."""
        self.metrics.log.flushed(seconds, appends)

    def heartbeat(self, seconds: float) -> None:
        """Count a timed heartbeat."""
        self.metrics.heartbeat(seconds)

    def _appended(self, seconds: float, records: int) -> None:
        self.metrics.log.appended(seconds, records)

    def _events(self, events: Sequence[Event], now_ms: int) -> None:
        self._event_log(events, now_ms)
        self.metrics(events, now_ms)
