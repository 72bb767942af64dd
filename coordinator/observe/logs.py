"""Log lines: JSON for machines, readable on a terminal; one for each event that matters."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Sequence
from dataclasses import fields
from enum import Enum
from typing import Any

import structlog

from coordinator.core.events import (
    Event,
    MemberEvicted,
    MemberJoined,
    MemberSynced,
    OffsetsCommittedEvent,
    RebalanceFailed,
)
from coordinator.printable import printable, printable_lines

VALUE_MAX = 256
"""Characters that a line shows of any value: whoever calls chooses group ids, reasons and names."""
SENTENCE_MAX = 2_048
"""Of what we say ourselves, under `what`: a sentence with a path or two in it is shown whole."""
TRACEBACK_MAX = 16_384
"""Of a traceback the end, which says what happened."""

_DETAILS = (MemberJoined, MemberSynced, OffsetsCommittedEvent)
_WARNINGS = (MemberEvicted, RebalanceFailed)


def configure(log_format: str, log_level: str) -> structlog.stdlib.BoundLogger:
    """Set logging up for the process; lines go to standard error.

    Args:
        log_format: json, console, or auto: console on a terminal.
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
        shorten,
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
    """Lines of libraries (asyncio, grpc, kazoo) look like ours, and only trouble is among them."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *common],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    handler.addFilter(is_trouble)
    level = max(logging.WARNING, logging.getLevelNamesMapping()[log_level.upper()])
    logging.basicConfig(handlers=[handler], level=level, force=True)


def shorten(
    logger: object, method: str, line: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Cut what is too long in a line. A processor of structlog's."""
    for name, value in line.items():
        if name == "exception":
            line[name] = str(value)[-TRACEBACK_MAX:]
        elif isinstance(value, str):
            line[name] = _cut(value, SENTENCE_MAX if name == "what" else VALUE_MAX)
        elif isinstance(value, list | tuple | set | frozenset | dict | Exception):
            text = str(value)
            line[name] = value if len(text) <= VALUE_MAX else _cut(text, VALUE_MAX)
    return line


def _cut(text: str, length_max: int) -> str:
    if len(text) <= length_max:
        return text
    return f"{text[:length_max]}… ({len(text)} characters)"


class Readable:
    """In front of what renders for people: texts of clients do nothing to a terminal."""

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


def is_trouble(record: logging.LogRecord) -> bool:
    """False for what gRPC says, with a traceback for every call, of a client that goes away while
    it is answered, and of metadata that is no UTF-8: anybody could fill the log with them, and the
    second has the bytes in it, which may be of a token."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, UnicodeDecodeError) and record.name.startswith("grpc."):
        return False
    return type(error).__name__ != "ExecuteBatchError"  # A name that gRPC does not export.


class EventLog:
    """Writes events: what members do all day at debug, trouble as warnings, the rest as info."""

    def __init__(self, logger: structlog.stdlib.BoundLogger) -> None:
        self._logger = logger

    def __call__(self, events: Sequence[Event], now_ms: int) -> None:
        for event in events:
            if isinstance(event, _DETAILS):
                level = logging.DEBUG
            elif isinstance(event, _WARNINGS):
                level = logging.WARNING
            else:
                level = logging.INFO
            self._logger.log(level, event_name(event), **event_values(event))


def event_name(event: Event) -> str:
    """`RebalanceStarted` as `rebalance_started`."""
    name = type(event).__name__.removesuffix("Event")
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def event_values(event: Event) -> dict[str, object]:
    """An event's fields as log lines show them: groups and members by short names."""
    values: dict[str, object] = {}
    for field in fields(event):
        value = getattr(event, field.name)
        if value == "":
            continue
        name = {"group_id": "group", "member_id": "member"}.get(field.name, field.name)
        values[name] = value.value if isinstance(value, Enum) else value
    return values
