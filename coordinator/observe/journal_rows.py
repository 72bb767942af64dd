"""Rows of `explain`, `timeline`, `watch`, `replay` and `who-blocks`.

Fields that end in `_at_ms` are epoch milliseconds. Those of a message's entry of a journal are
made by name (`rows.row_of`), so a fact that a row declares is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coordinator.observe.rows import ABSENT, column, row_of


def _spelled(ms: int | None) -> str:
    from coordinator.observe.spelling import spell  # Help does not import the server.

    return ABSENT if ms is None else spell(ms)


_GROUP = "Group id."
_MEMBER = "Member id."
_CLIENT = "Client id; null: it has none."
_HOST = "Address of the client; null: unknown."
_SOFTWARE = "Name and version of a Kafka client's library; null: unknown."
_GENERATION = "Generation that the rebalance led to."


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A member of a group."""

    member_id: str | None = column("Member id; null: it never had one.")
    client_id: str | None = column(_CLIENT)
    host: str | None = column(_HOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """Lengths of the phases of a rebalance, in milliseconds."""

    join: int | None = column("Until the members had joined; null: not reached.")
    sync: int | None = column("From there to the leader's assignment; null: not reached.")
    durable: int | None = column("From there until it was stored; null: not reached.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParticipantRow:
    """A member that joined a rebalance."""

    member_id: str = column(_MEMBER)
    client_id: str | None = column(_CLIENT)
    host: str | None = column(_HOST, source="client_host")
    is_new: bool = column("True if it was no member before.")
    is_leader: bool = column("True if it made the assignment.")
    joined_at_ms: int = column("Time of its JoinGroup.")
    synced_at_ms: int | None = column("Time of its SyncGroup; null: not before the end.")
    session_timeout_ms: int | None = column("Session timeout; null: it has gone since.")
    client_software: str | None = column(_SOFTWARE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedRow:
    """A member that left, or was removed."""

    member_id: str = column(_MEMBER)
    client_id: str | None = column(_CLIENT)
    host: str | None = column(_HOST, source="client_host")
    code: str = column("Cause, for example session_expired, join_timed_out, left, admin.")
    cause: str = column("Cause in words, with the reason that it gave.")
    removed_at_ms: int = column("Time of it.")
    last_seen_ms: int | None = column(
        "Time of its last call; null: not since a fail-over.", is_zero_null=True
    )
    heartbeat_interval_ms: int | None = column(
        "As measured; null: too few heartbeats.", is_zero_null=True
    )
    client_software: str | None = column(_SOFTWARE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRow:
    """Partitions with successive numbers."""

    first: int = column("First partition.")
    last: int = column("Last partition.")


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRow:
    """Partitions of a topic that nobody worked on for a while, or that changed owners."""

    topic: str = column("Topic.")
    partitions: tuple[RangeRow, ...] = column("Their numbers; of many ranges the first.")
    partition_count: int = column("Number of them.")
    from_member: Client = column("Owner before.")
    to_member: Client = column("Owner since.")
    has_moved: bool = column("False: they stayed with their owner, which stopped meanwhile.")
    not_worked_on_ms_min: int = column(
        "Shortest time in which nobody can have worked on them.", source="unowned_ms_min"
    )
    not_worked_on_ms_max: int | None = column(
        "Longest such time; null: unknown.", source="unowned_ms_max"
    )
    stopped_earliest_ms: int | None = column("Time until which the owner worked for certain.")
    stopped_latest_ms: int | None = column("Time at which it had stopped for certain.")
    resumed_at_ms: int = column("Time at which the new assignment was stored.")
    is_fetched: bool = column("False: the new owner had not asked for its assignment by then.")
    known_by: str = column("Evidence of when the owner stopped, for example last_seen, left.")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceRow:
    """An advice that no earlier rebalance has given."""

    code: str = column("For example short_session, slow_to_join.")
    text: str = column("The sentence.")
    client_id: str | None = column("The client that it is about; null: the group.")
    duration_ms: int | None = column(
        "The duration that it is about; null: none.", is_zero_null=True
    )
    count: int | None = column("The number that it is about; null: none.", is_zero_null=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotWorkedOn:
    """Partitions that nobody worked on until a rebalance gave them to somebody."""

    partitions: int = column("Number of them.")
    longest_ms_min: int = column("What is certain of the longest time.")
    longest_ms_max: int = column("Longest time of one of them.")
    total_ms_min: int = column("What is certain of the sum.")
    total_ms_max: int = column("Sum over the partitions.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A rebalance, or a refused join, which leads to no generation."""

    group: str = column(_GROUP, source="group_id")
    generation: int | None = column(
        _GENERATION[:-1] + "; null: a join was refused.", source="generation_after"
    )
    generation_before: int | None = column("Generation before it.", None)
    cause: str = column("Cause in words.")
    cause_code: str = column("Cause, for example member_joined, join_refused.", None)
    outcome: str = column("`completed`, `interrupted`, `failed: …`, or the code of a refusal.")
    caused_by: Client | None = column("The member that caused it; null: none did.", None)
    reason: str | None = column("The reason that it gave; null: none.", None)
    started_at_ms: int = column("Begin; of refused joins the first.", None)
    ended_at_ms: int = column("End; of refused joins the last.", None)
    duration_ms: int = column("Time between the two.", "TOOK", text=_spelled)
    phases_ms: Phases | None = column("Lengths of its phases; null: a join was refused.", None)
    protocol: str | None = column("Selected protocol; null: none.", None)
    was_initial: bool = column("True for the first rebalance of an empty group.", None)
    cooperative_round: int | None = column(
        "Number of the round of a cooperative rebalance; null: it took one only.",
        None,
        is_zero_null=True,
    )
    partitions_taken_away: int | None = column("Partitions that the next round hands out.", None)
    members: int | None = column("Members after it; null: a join was refused.", None)
    participants: tuple[ParticipantRow, ...] = column(
        "Members that joined; of many the last.", None
    )
    removed: tuple[RemovedRow, ...] = column(
        "Members that left or were removed; of many some.", None
    )
    removed_count: int = column("Number of them.", None)
    partitions_moved: int | None = column("Partitions that changed owners; null: unknown.", "MOVED")
    not_worked_on: NotWorkedOn | None = column(
        "Partitions that stood idle; null: unknown. A table has the longest time.",
        text=lambda message: ABSENT if message is None else _spelled(message.longest_ms_max),
    )
    moves: tuple[MoveRow, ...] = column("Who had what before and since; of many some.", None)
    partitions_left_out: int = column("Number of partitions that are not in moves.", None)
    advice: tuple[AdviceRow, ...] = column("Advice.", None)
    explanation: tuple[str, ...] = column("All of it in sentences.", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTriggerRow:
    """An event that called for a plan of a session group."""

    cause: str = column("For example member_died, member_came, partition_freed.")
    member_id: str | None = column("Member id, or the name of one that is not there; null: none.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanMoveRow:
    """Partitions of a topic that a plan gives from one member to another."""

    topic: str = column("Topic.")
    partitions: tuple[RangeRow, ...] = column("Their numbers.")
    from_member_id: str | None = column("Holder, or the last one; null: unknown.")
    to_member_id: str | None = column("Holder since; null: they are given up.")
    reason: str = column("For example free (nobody held them), holder_leaves, balance.")
    not_worked_on_ms_min: int | None = column(
        "Shortest time without work; null: they were held.", source="unowned_ms_min"
    )
    not_worked_on_ms_max: int | None = column(
        "Longest such time; null: unknown.", source="unowned_ms_max"
    )
    known_by: str | None = column("Evidence of when the holder stopped; null: unknown.")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffLineRow:
    """A hand-off of one partition that has ended."""

    group: str = column(_GROUP)
    topic: str = column("Topic.")
    partition: int = column("Number of the partition.")
    from_member_id: str = column("Holder before.", "FROM")
    to_member_id: str | None = column("Holder since; null: nobody.", "TO")
    mode: str = column("`simple`, `warm` or `copy`.")
    reason: str | None = column("Why it moved; null: unknown.", None)
    outcome: str = column("`released`, `holder_left`, `holder_died`, `forced` or `abandoned`.")
    opened_at_ms: int = column("Begin.", None)
    prepared_at_ms: int | None = column("The successor was ready; null: not asked.", None)
    drain_at_ms: int | None = column("The holder was told to finish; null: never.", None)
    forced_at_ms: int | None = column("The holder was told to stop; null: never.", None)
    released_at_ms: int | None = column("The holder released it; null: never.", None)
    ended_at_ms: int = column("End.", None)
    duration_ms: int = column("Time between begin and end.", "TOOK", text=_spelled)
    position: int | None = column("Where the holder stopped; null: it did not say.", None)
    start_offset: int | None = column(
        "Committed offset with which the next holder began; null: none, or there is no holder.",
        None,
    )
    not_worked_on_ms_min: int | None = column(
        "Shortest time in which nobody worked on it; null: somebody always did.",
        None,
        source="unowned_ms_min",
    )
    not_worked_on_ms_max: int | None = column(
        "Longest such time; null: unknown, or somebody always did.",
        "NOT-WORKED-ON",
        text=_spelled,
        source="unowned_ms_max",
    )
    explanation: str = column("All of it in a sentence.", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedPlan:
    """A plan of a session group."""

    group: str = column(_GROUP, source="group_id")
    called_at_ms: int = column("First event that called for it.", None, source="started_at_ms")
    made_at_ms: int = column("Time at which it was made.", None, source="ended_at_ms")
    window_ms: int = column("Time between the two.", "AFTER", text=_spelled)
    triggers: tuple[PlanTriggerRow, ...] = column("What called for it; of many the first.", None)
    trigger_count: int = column("Number of events that called for it.", "#TRIGGERS")
    members: int = column("Members.", "#MEMBERS")
    partitions: int = column("Partitions of the group.", "#PARTITIONS")
    partitions_moved: int = column("Partitions that get another holder.", "MOVED")
    moved_by_reason: dict[str, int] = column("The same by reason.", None)
    unplaced_by_reason: dict[str, int] = column("Partitions that nobody can have, by why.", None)
    not_worked_on: NotWorkedOn | None = column(
        "Partitions that nobody held until then; null: none. A table has the longest time.",
        text=lambda message: ABSENT if message is None else _spelled(message.longest_ms_max),
    )
    moves: tuple[PlanMoveRow, ...] = column("Who gets what; of many the first 100.", None)
    partitions_left_out: int = column("Number of partitions that are not in moves.", None)
    refusing_members: int = column("Members that had refused what they were asked to take.", None)
    explanation: tuple[str, ...] = column("All of it, and its hand-offs, in sentences.", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BarRow:
    """A span of a lane."""

    kind: str = column("late, joined, assigning, synced, idle, perhaps idle; join, sync, durable.")
    begin_ms: int = column("Milliseconds from the begin of the rebalance; below 0: before it.")
    end_ms: int = column("Milliseconds from the begin of the rebalance.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRow:
    """A lane of a timeline."""

    group: str = column(_GROUP)
    generation: int = column(_GENERATION)
    name: str = column("The phases, a member, or partitions.")
    bars: tuple[BarRow, ...] = column("Its spans.", None)
    note: str | None = column("Remark beside it; null: none.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocking:
    """A member that a group waits for."""

    group: str = column(_GROUP)
    state: str = column("State of the group.", is_state=True)
    waits_ms: int = column("Time for which the phase has lasted.", "FOR", text=_spelled)
    phase_ends_at_ms: int = column("Time at which the phase ends at the latest.", None)
    client_id: str | None = column("Client id; null: it has a member id and has not joined.")
    host: str | None = column("Address; null: it has not joined.")
    consumer_id: str = column(_MEMBER)
    last_seen_ms: int | None = column("Time of its last call; null: it has not joined.", None)
    silent_ms: int | None = column(
        "Time since then; null: it has not joined.",
        "LAST-HEARD",
        text=lambda ms: ABSENT if ms is None else f"{_spelled(ms)} ago",
    )
    is_leader: bool = column("True if the group waits for its assignment.", "LEADER")


# --- Entries of journals as rows ----------------------------------------------------------------
# Any: messages of the contract, which is not known here.


def explained(rebalance: Any) -> Explained:
    caused_by = (rebalance.member_id, rebalance.client_id, rebalance.client_host)
    return row_of(
        Explained,
        rebalance,
        caused_by=_client(*caused_by) if any(caused_by) else None,
        duration_ms=rebalance.ended_at_ms - rebalance.started_at_ms,
        phases_ms=Phases(
            join=_known(rebalance.join_phase_ms),
            sync=_known(rebalance.sync_phase_ms),
            durable=_known(rebalance.durable_phase_ms),
        ),
        participants=tuple(
            row_of(ParticipantRow, participant, is_leader=participant.member_id == rebalance.leader)
            for participant in rebalance.participants
        ),
        not_worked_on=_not_worked_on(rebalance) if rebalance.partitions_moved >= 0 else None,
        moves=tuple(
            row_of(
                MoveRow,
                move,
                from_member=_client(move.from_member_id, move.from_client_id),
                to_member=_client(move.to_member_id, move.to_client_id),
            )
            for move in rebalance.moves
        ),
    )


def plan_row(record: Any) -> ExplainedPlan:
    plan = record.session_plan
    return row_of(
        ExplainedPlan,
        plan,
        record,
        window_ms=max(0, record.ended_at_ms - record.started_at_ms),
        moved_by_reason={moved.reason: moved.partitions for moved in plan.moved},
        unplaced_by_reason={unplaced.reason: unplaced.partitions for unplaced in plan.unplaced},
        not_worked_on=_not_worked_on(record) if record.unowned_partitions else None,
    )


def handoff_row(group: str, handoff: Any) -> HandoffLineRow:
    """The row of a hand-off."""
    took_ms = max(0, handoff.ended_at_ms - handoff.opened_at_ms)
    return row_of(HandoffLineRow, handoff, group=group, duration_ms=took_ms)


def _not_worked_on(record: Any) -> NotWorkedOn:
    return NotWorkedOn(
        partitions=record.unowned_partitions,
        longest_ms_min=record.unowned_ms_max_at_least,
        longest_ms_max=record.unowned_ms_max,
        total_ms_min=record.unowned_ms_total_at_least,
        total_ms_max=record.unowned_ms_total,
    )


def _client(member_id: str, client_id: str, host: str = "") -> Client:
    return Client(member_id=member_id or None, client_id=client_id or None, host=host or None)


def _known(ms: int) -> int | None:
    return None if ms < 0 else ms
