"""End offsets of the partitions that a group reads, reported by members; lag is measured by them.

The coordinator stores no rows, so members report the ends of their sources now and then. Reports
are soft state: not in the log, not replicated, and repeated a few seconds after a fail-over.

Source: ours. Kafka's tools ask the brokers (ListOffsets).
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.core.group import Group, GroupState
from coordinator.core.step import Step
from coordinator.core.values.errors import ErrorCode, Refused
from coordinator.core.values.replies import ListLogEndsReply, LogEnd, ReportLogEndsReply
from coordinator.core.values.requests import ListLogEnds, ReportLogEnds
from coordinator.core.values.session_messages import ReportedLog


def take_in(group: Group, command: ReportLogEnds, step: Step) -> None:
    """Store the ends that a member reports. Unlike a heartbeat it does not extend the session."""
    store(group, command.ends, step.now_ms)
    step.out.reply(command.call_id, ReportLogEndsReply())


def store(group: Group, logs: Iterable[ReportedLog], now_ms: int) -> None:
    """Store reports. One is compared with what was committed by the report before: rows that were
    committed since may have come after the member looked.
    """
    if group.log_ends is None:
        group.log_ends = {}
    for topic, partition, end, *begin in logs:
        key = topic, partition
        before, stored = group.log_ends.get(key), group.offsets.get(key)
        committed = 0 if stored is None else stored.offset
        is_short = before is not None and end < min(before.committed, committed)
        group.log_ends[key] = LogEnd(topic, partition, end, now_ms, sum(begin), committed, is_short)


def list_all(group: Group, command: ListLogEnds, step: Step) -> None:
    """Answer with all known ends.

    Raises:
        Refused: GROUP_ID_NOT_FOUND.
    """
    if group.state is GroupState.DEAD:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND)
    ends = group.log_ends or {}
    step.out.reply(command.call_id, ListLogEndsReply(ends=tuple(ends.values())))
