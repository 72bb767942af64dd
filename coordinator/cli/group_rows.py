"""Rows of `coordinator groups`. Keys are Kafka's columns in snake case, without `#`.

Partitions and members of a group that rebalances have columns of their own for the state and for
whom the group waits; keys are the same in every state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass
from typing import get_type_hints

from coordinator.observe.rows import ABSENT, Change, Column, column, columns_of

_GROUP = "Group id."
_STATE = (
    "State of the group: `Empty`, `PreparingRebalance`, `CompletingRebalance` or `Stable`; of a "
    "session group `Empty`, `Assigning`, `Reconciling` or `Stable`."
)
_TOPIC = "Topic; null: the member has no partition."
_CONSUMER = "Member id; null: nobody owns the partition."
_INSTANCE = "Instance id of a static member; null: there is none."
_HOST = "Address of the member, as Kafka's tools write it; null: nobody owns the partition."
_CLIENT = "Client id of the member; null: it has none, or nobody owns the partition."
_SOFTWARE = (
    "Name and version of a Kafka client's library, as it tells them; null: unknown, as for members "
    "that use gRPC."
)
_WAITED_FOR = "True if the running rebalance waits for this member."
_HEARD = (
    "When the member was last seen, epoch milliseconds; null: the group does not wait for it, or "
    "it has a member id and has not joined."
)
_SINCE = "Start of the current phase of the rebalance, epoch milliseconds; null: none runs."
_OFFSET = "Offset of the next row to read; null: none is committed."


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A group."""

    group: str = column(_GROUP)
    type: str = column("Type of the group: `Classic` or `Session`.")
    protocol: str | None = column("Protocol type, such as `consumer`; null: no member ever joined.")
    state: str = column(_STATE, is_state=True)
    members: int = column("Number of members.", "#MEMBERS")


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitedMemberRow:
    """A member that a rebalance waits for."""

    consumer_id: str = column("Member id.")
    client_id: str | None = column("Client id; null: the member has not joined yet, or has none.")
    host: str | None = column("Address; null: the member has not joined yet.")
    last_seen_ms: int | None = column(_HEARD)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummaryRow:
    """A group as a whole."""

    group: str = column(_GROUP)
    coordinator: str = column("HOST:PORT of the node that coordinates the group.")
    assignment_strategy: str | None = column("Selected protocol; null: not in this state.")
    state: str = column(_STATE, is_state=True)
    generation: int = column("Generation; 0 for a session group.", None)
    members: int = column("Number of members.", "#MEMBERS")
    partitions: int = column(
        "Number of partitions that have an owner or a committed offset.", "#PARTITIONS"
    )
    total_lag: int | None = column(
        "Rows behind the known ends of the logs, over all partitions; null: no end is known."
    )
    partitions_without_lag: int = column(
        "Partitions whose log end is not known; `total_lag` leaves them out.", None
    )
    rebalancing_since_ms: int | None = column(_SINCE, None)
    waits_until_ms: int | None = column(
        "When that phase times out, epoch milliseconds; null: no rebalance runs.", None
    )
    waits_for: tuple[AwaitedMemberRow, ...] = column("Members that the phase waits for.", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """A partition with its offsets and owner, or a member without partitions."""

    group: str = column(_GROUP)
    topic: str | None = column(_TOPIC)
    partition: int | None = column("Number of the partition; null: the member has none.")
    current_offset: int | None = column(_OFFSET)
    log_end_offset: int | None = column(
        "Offset after the last row of the log, as members report it or --log-offsets says; null: "
        "unknown."
    )
    lag: int | None = column("Rows not yet read; null: the end of the log is unknown.")
    log_is_short: bool = column(
        "The log ends before what is committed: it was made anew or has lost rows.", None
    )
    consumer_id: str | None = column(_CONSUMER)
    host: str | None = column(_HOST)
    client_id: str | None = column(_CLIENT)
    client_software: str | None = column(_SOFTWARE, None)
    group_instance_id: str | None = column(_INSTANCE, None)
    state: str = column(_STATE, None, is_state=True)
    rebalancing_since_ms: int | None = column(_SINCE, None)
    waited_for: bool = column(_WAITED_FOR, None)
    last_seen_ms: int | None = column(_HEARD, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPartitionRow(PartitionRow):
    """A partition of a session group, or a member of one without partitions."""

    token: int | None = column("Token of the grant; null: nobody holds it.", None, default=None)
    phase: str | None = column(
        "Phase of the partition: `held`; of a hand-off `prepare`, `drain`, `forced` or `copy`; "
        "`reserved` for a name; `free`.",
        None,
        default=None,
    )
    successor_id: str | None = column(
        "Member id of the one that gets it next; null: nobody.", None, default=None
    )
    phase_ends_ms: int | None = column(
        "End of the phase at the latest, epoch milliseconds; null: it has none.",
        None,
        default=None,
    )
    why: str | None = column(
        "Why nobody holds it, as a code, or the name that it is reserved for; null: somebody does.",
        None,
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitions:
    """Partitions of one topic."""

    topic: str = column("Topic.")
    partitions: tuple[int, ...] = column("Numbers of the partitions.")


def _spelled(assignment: Sequence[TopicPartitions] | None) -> str:
    """An assignment as Kafka's tool writes it: `t(0,1), u(2)`."""
    parts = [f"{part.topic}({','.join(map(str, part.partitions))})" for part in assignment or ()]
    return ", ".join(parts) or ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRow:
    """A member of a group."""

    group: str = column(_GROUP)
    consumer_id: str = column("Member id.")
    group_instance_id: str | None = column(_INSTANCE)
    host: str | None = column("Address of the member; null: it has not joined yet.")
    client_id: str | None = column("Client id; null: the member has not joined yet, or has none.")
    partitions: int | None = column(
        "Number of partitions that it owns; null: the group rebalances, or its assignments are not "
        "in the format of consumers.",
        "#PARTITIONS",
    )
    assignment: tuple[TopicPartitions, ...] | None = column(
        "Partitions that it owns by topic; null as `partitions`.", None, text=_spelled
    )
    client_software: str | None = column(_SOFTWARE, None)
    leader: bool = column("True for the leader, which computes the assignment.", None)
    state: str = column(_STATE, None, is_state=True)
    rebalancing_since_ms: int | None = column(_SINCE, None)
    waited_for: bool = column(_WAITED_FOR, None)
    last_seen_ms: int | None = column(_HEARD, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMemberRow(MemberRow):
    """A member of a session group, or a process that waits for the name of one."""

    status: str = column(
        "What the member is: `active`; `suspect`: it has no stream; `waiting` for its name; "
        "`evicted`, `leaving`, `stalled`, `overloaded`, `not ready`: it receives nothing.",
        None,
        is_state=True,
    )
    lease_ms: int = column("Lease that it was told, milliseconds.", None)
    lease_ends_ms: int | None = column(
        "When its lease ends if it is not heard, epoch milliseconds; of a waiting process the "
        "lease of the one before it.",
        None,
        default=None,
    )
    waits_for_id: str | None = column(
        "Id of the member whose name a waiting process has; null: it is none.",
        None,
        default=None,
    )
    why: str | None = column(
        "Why it has nothing; null: it has something, or waits.", None, default=None
    )
    differing_wishes: dict[str, int | str | bool] = column(
        "Settings of the policy that it asked for and that have other values.", None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRow:
    """A committed offset."""

    group: str = column(_GROUP)
    topic: str = column("Topic.")
    partition: int = column("Number of the partition.")
    current_offset: int = column("Offset of the next row to read.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedGroupRow(Change):
    """The deletion of a group."""

    group: str = column(_GROUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedOffsetRow(Change):
    """The deletion of a committed offset."""

    group: str = column(_GROUP)
    topic: str = column("Topic.")
    partition: int = column("Number of the partition.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedMemberRow(Change):
    """The removal of a member."""

    group: str = column(_GROUP)
    consumer_id: str | None = column("Member id; null: the group has no such member.")
    group_instance_id: str | None = column(_INSTANCE)
    host: str | None = column("Address of the member; null: the group has no such member.")
    client_id: str | None = column("Client id; null: it has none, or the group has no such member.")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOffsetRow:
    """The reset of an offset."""

    group: str = column(_GROUP)
    topic: str = column("Topic.")
    partition: int = column("Number of the partition.")
    current_offset: int | None = column("Committed offset before the reset; null: there is none.")
    new_offset: int = column("Offset of the next row to read.")
    executed: bool = column("True if it was committed; false for a dry run.", None)


def showing(kind: type, *keys: str) -> type:
    """A kind of row whose tables have further columns; its rows are those of `kind`."""
    hints, columns = get_type_hints(kind), columns_of(kind)

    def shown(shown_column: Column) -> object:
        return column(shown_column.meaning, text=shown_column.text, is_state=shown_column.is_state)

    fields = [(key, hints[key], shown(columns[key])) for key in keys]
    return make_dataclass(kind.__name__, fields, bases=(kind,), frozen=True, kw_only=True)
