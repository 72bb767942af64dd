"""Where the logs of a group's partitions end, as its members say: what lag is measured by.

The coordinator has no rows. Members know their sources, and tell now and then. It is soft: not
in the log, not followed by standbys, and said again a few seconds after a fail-over.

Source: ours. Kafka's tools ask the brokers (ListOffsets).
"""

from __future__ import annotations

from coordinator.core.errors import ErrorCode, Refused
from coordinator.core.group import Group, GroupState
from coordinator.core.outcome import Outcome
from coordinator.core.replies import ListLogEndsReply, LogEnd, ReportLogEndsReply
from coordinator.core.requests import ListLogEnds, ReportLogEnds


def take_in(group: Group, command: ReportLogEnds, now_ms: int, out: Outcome) -> None:
    """Remember ends that a member reports. It is no sign of life, as a heartbeat is."""
    if group.log_ends is None:
        group.log_ends = {}
    for topic, partition, offset in command.ends:
        group.log_ends[(topic, partition)] = LogEnd(topic, partition, offset, now_ms)
    out.reply(command.call_id, ReportLogEndsReply())


def list_all(group: Group, command: ListLogEnds, out: Outcome) -> None:
    """Every end that is known.

    Raises:
        Refused: GROUP_ID_NOT_FOUND.
    """
    if group.state is GroupState.DEAD:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND)
    ends = group.log_ends or {}
    out.reply(command.call_id, ListLogEndsReply(ends=tuple(ends.values())))
