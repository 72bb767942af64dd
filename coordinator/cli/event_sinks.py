"""Who hears what a node does: the log lines, and the metrics, which come once the node is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coordinator.core.events import Event
from coordinator.observe.logs import EventLog
from coordinator.observe.metrics import Metrics
from coordinator.runtime.watchers import Watchers


class EventSinks:
    """Hand its methods to whoever has something to tell, and set `metrics` before the start.

    Args:
        logger: structlog's. Any: it has whatever methods it is asked for.
    """

    metrics: Metrics

    def __init__(self, logger: Any) -> None:
        self._logger = logger
        self._event_log = EventLog(logger)

    def watchers(self) -> Watchers:
        """What the node itself tells."""
        return Watchers(
            events=self._events,
            failure=lambda what, error: self._logger.error("trouble", what=what, exc_info=error),
            recovery=lambda what: self._logger.info("recovered", what=what),
            append=self._appended,
        )

    def malformed(self, method: str, peer: str, what: str) -> None:
        """A call was refused for what it is."""
        self._logger.warning("request_refused", method=method, peer=peer, what=what)

    def deleted(self, group: str, principal: str, peer: str, is_known: bool) -> None:
        """A group was deleted; or perhaps, if it is not known."""
        event = "group_deleted" if is_known else "group_deletion_unanswered"
        who = {"principal": principal} if principal else {}
        self._logger.info(event, group=group, peer=peer, **who)

    def flushed(self, appends: int, seconds: float) -> None:
        """SQLite has synced a write; told from its thread."""
        self.metrics.log.flushed(seconds, appends)

    def heartbeat(self, seconds: float) -> None:
        """A heartbeat that was timed has been answered."""
        self.metrics.heartbeat(seconds)

    def _appended(self, seconds: float, records: int) -> None:
        self.metrics.log.appended(seconds, records)

    def _events(self, events: Sequence[Event], now_ms: int) -> None:
        self._event_log(events, now_ms)
        self.metrics(events, now_ms)
