"""Structured logging: JSON, or readable lines on a terminal; one line per event."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields
from enum import Enum
from itertools import islice, pairwise
from typing import Any

import structlog

from coordinator.core.values.events import (
    CommitWaited,
    Event,
    ExpirationHeld,
    GroupActivated,
    HandoffJournaled,
    JoinRefused,
    MemberEvicted,
    MemberJoined,
    MemberSeenAgain,
    MemberSynced,
    OffsetsCommittedEvent,
    PartitionRefused,
    PlanFailed,
    PlanJournaled,
    RebalanceFailed,
    RebalanceJournaled,
    RebalanceNotified,
    SessionMemberFlaps,
    SessionMemberRemoved,
    SessionMemberSuspect,
)
from coordinator.core.values.plan_journal import PlanRecord
from coordinator.core.values.rebalance_journal import RebalanceRecord
from coordinator.core.values.records import EndCause, PartitionSwitched, PhaseEntered
from coordinator.observe.labels import snake_case
from coordinator.printable import printable, printable_lines

VALUE_MAX = 256
"""Longest value in characters: clients choose group ids, reasons and names."""
SENTENCE_MAX = 2_048
"""Longest text under `what`, which the node itself writes."""
ITEMS_MAX = 20
"""Most items of a list or mapping in a line."""
TRACEBACK_MAX = 16_384
"""Longest traceback; its end, which holds the error, is kept."""

_WARNINGS = (
    ExpirationHeld,
    MemberEvicted,
    PartitionRefused,
    PlanFailed,
    RebalanceFailed,
    SessionMemberFlaps,
)
_DETAILS = (
    CommitWaited,
    GroupActivated,
    JoinRefused,
    RebalanceNotified,
    MemberSeenAgain,
    MemberJoined,
    MemberSynced,
    OffsetsCommittedEvent,
    SessionMemberSuspect,
)
_INVOLUNTARY = (EndCause.LEASE_EXPIRED, EndCause.EVICTED, EndCause.RESTORED)


def configure(log_format: str, log_level: str) -> structlog.stdlib.BoundLogger:
    """Configure logging for the process; lines go to standard error.

    Args:
        log_format: json, console, or auto (console on a terminal, else json).
        log_level: debug, info, warning or error.
    """
    console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer()
    if console:
        renderer = Readable(structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()))
    common: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        plain,
    ]
    _adopt_libraries(common, renderer, log_level)
    structlog.configure(
        processors=[*common, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, log_level.upper())),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logger: structlog.stdlib.BoundLogger = structlog.get_logger()
    return logger


def _adopt_libraries(
    common: list[structlog.typing.Processor], renderer: structlog.typing.Processor, log_level: str
) -> None:
    """Render lines of libraries (asyncio, grpc, kazoo) in our format, warnings and above only."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *common],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    handler.addFilter(is_worth_logging)
    level = max(logging.WARNING, logging.getLevelNamesMapping()[log_level.upper()])
    logging.basicConfig(handlers=[handler], level=level, force=True)


def plain(
    logger: object, method: str, line: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Make JSON's types of the values of a line, and cut long ones. A structlog processor."""
    for name, value in line.items():
        if name == "exception":
            line[name] = str(value)[-TRACEBACK_MAX:]
        else:
            line[name] = _plain(value, SENTENCE_MAX if name == "what" else VALUE_MAX)
    return line


def _plain(value: object, length_max: int) -> object:
    match value:
        case Enum():
            return _plain(value.value, length_max)
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)  # JSON has no other numbers.
        case bytes():
            return _cut(value.decode(errors="backslashreplace"), length_max)
        case Mapping():
            pairs = islice(value.items(), ITEMS_MAX)
            return {
                str(_plain(key, VALUE_MAX)): _plain(some_value, VALUE_MAX)
                for key, some_value in pairs
            }
        case list() | tuple() | Set():
            items = [_plain(item, VALUE_MAX) for item in islice(value, ITEMS_MAX)]
            more = len(value) - len(items)
            return [*items, f"… ({more} more)"] if more else items
        case _:
            return _cut(str(value), length_max)


def _cut(text: str, length_max: int) -> str:
    if len(text) <= length_max:
        return text
    return f"{text[:length_max]}… ({len(text)} characters)"


class Readable:
    """Wraps a renderer for terminals: control characters in clients' texts are escaped."""

    def __init__(self, render: structlog.typing.Processor) -> None:
        self._render = render

    def __call__(
        self, logger: Any, name: str, event: structlog.typing.EventDict
    ) -> structlog.typing.ProcessorReturnValue:
        shown = {key: _readable(key, value) for key, value in event.items()}
        return self._render(logger, name, shown)


def _readable(key: str, value: object) -> object:
    if not isinstance(value, str):
        return value  # The renderer shows its `repr`.
    if key == "exception":
        return printable_lines(value)
    return printable(value, None) if key == "what" else printable(value)


def is_worth_logging(record: logging.LogRecord) -> bool:
    """Filter: False for two errors that gRPC logs with a traceback for every call.

    A client that disconnects while it is answered, and metadata that is not UTF-8: any client could
    flood the log with them, and the second contains the bytes, which may be a token's.
    """
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, UnicodeDecodeError) and record.name.startswith("grpc."):
        return False
    return type(error).__name__ != "ExecuteBatchError"  # gRPC does not export this class.


class EventLog:
    """Logs events: joins, syncs and commits at debug, evictions and failures as warnings."""

    def __init__(self, logger: structlog.stdlib.BoundLogger) -> None:
        self._logger = logger

    def __call__(self, events: Sequence[Event], now_ms: int) -> None:
        for event in events:
            self._logger.log(_level(event), event_name(event), **event_values(event))


def _level(event: Event) -> int:
    match event:
        case HandoffJournaled():
            # A plan may move thousands, and has a line of its own.
            line = event.record.line
            is_forced = line is not None and line.was_forced
            return logging.WARNING if is_forced else logging.DEBUG
        case SessionMemberRemoved():
            return logging.WARNING if event.cause in _INVOLUNTARY else logging.INFO
    if isinstance(event, _DETAILS):
        return logging.DEBUG
    return logging.WARNING if isinstance(event, _WARNINGS) else logging.INFO


def event_name(event: Event) -> str:
    """The name of an event in snake case: `RebalanceStarted` is `rebalance_started`."""
    return snake_case(type(event).__name__.removesuffix("Event"))


def event_values(event: Event) -> dict[str, object]:
    """Non-empty single values of an event for a log line; `group_id` becomes `group`."""
    if isinstance(event, RebalanceJournaled):
        return _rebalance_values(event.record)
    if isinstance(event, PlanJournaled):
        return _plan_values(event.record)
    if isinstance(event, HandoffJournaled):
        return _handoff_values(event.record)
    values: dict[str, object] = {}
    for field in fields(event):
        value = getattr(event, field.name)
        if value == "" or isinstance(value, tuple):
            continue
        name = {"group_id": "group", "member_id": "member"}.get(field.name, field.name)
        values[name] = value
    return values


def _rebalance_values(record: RebalanceRecord) -> dict[str, object]:
    """Fields of the log line of a rebalance; `coordinator explain` tells the rest."""
    points = (record.started_at_ms, record.joined_at_ms, record.synced_at_ms, record.ended_at_ms)
    phases = zip(("join_ms", "sync_ms", "durable_ms"), pairwise(points), strict=True)
    values = {
        "group": record.group_id,
        "cause": record.cause,
        "member": record.member_id,
        "reason": record.reason,
        "outcome": record.outcome,
        "generation": record.generation_after,
        "members": record.member_count,
        "removed": len(record.removed),
        **{name: max(0, end - start) for name, (start, end) in phases if min(start, end) >= 0},
        "took_ms": max(0, record.ended_at_ms - record.started_at_ms),
        "moved": record.partitions_moved if record.partitions_moved >= 0 else None,
        "unowned": record.unowned_partitions,
        "unowned_ms": record.unowned_ms_max,
    }
    return {name: value for name, value in values.items() if value not in ("", None)}


def _plan_values(record: PlanRecord) -> dict[str, object]:
    """Fields of the log line of a plan; `coordinator explain` tells the rest."""
    triggers = [
        f"{trigger.cause.value} {trigger.member_id}".rstrip() for trigger in record.triggers
    ]
    values = {
        "group": record.group_id,
        "triggers": triggers,
        "waited_ms": max(0, record.made_at_ms - record.called_at_ms),
        "members": record.member_count,
        "partitions": record.partition_count,
        "moves": dict(record.counts),
        "unplaced": dict(record.unplaced),
        "unowned": record.unowned.partitions,
        "unowned_ms": record.unowned.ms_max,
    }
    return {name: value for name, value in values.items() if value not in ("", {}, [])}


def _handoff_values(record: PartitionSwitched | PhaseEntered) -> dict[str, object]:
    """Fields of the log line of a hand-off that has ended."""
    line = record.line
    assert line is not None
    to = record.member_id if isinstance(record, PartitionSwitched) else line.source
    idle_ms = None if line.stop is None else max(line.stop.idle_ms(line.ended_at_ms))
    values = {
        "group": record.group_id,
        "topic": record.topic,
        "partition": record.partition,
        "source": line.source,
        "successor": to,
        "mode": line.mode,
        "reason": line.reason,
        "outcome": line.outcome,
        "took_ms": max(0, line.ended_at_ms - line.opened_at_ms),
        "unowned_ms": idle_ms,
    }
    return {name: value for name, value in values.items() if value not in ("", None)}
