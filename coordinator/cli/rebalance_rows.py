"""Rows of `explain`, `timeline`, `watch`, `replay` and `who-blocks`. Times are epoch milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.cli.rows import column
from coordinator.client.wire import code_name
from coordinator.observe.spelling import spell
from coordinator.observe.timeline import Bar, lanes, phases, rests
from coordinator.v1 import admin_pb2

_GROUP = "Group id."
_MEMBER = "Member id."
_CLIENT = "Client id; null: it has none."
_HOST = "Address of the client; null: unknown."
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
class Participant:
    """A member that joined a rebalance."""

    member_id: str = column(_MEMBER)
    client_id: str | None = column(_CLIENT)
    host: str | None = column(_HOST)
    is_new: bool = column("True if it was no member before.")
    is_leader: bool = column("True if it made the assignment.")
    joined_at_ms: int = column("Time of its JoinGroup.")
    synced_at_ms: int | None = column("Time of its SyncGroup; null: not before the end.")
    session_timeout_ms: int | None = column("Session timeout; null: it has gone since.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """A member that left, or was removed."""

    member_id: str = column(_MEMBER)
    client_id: str | None = column(_CLIENT)
    host: str | None = column(_HOST)
    code: str = column("Cause, for example session_expired, join_timed_out, left, admin.")
    cause: str = column("Cause in words, with the reason that it gave.")
    removed_at_ms: int | None = column("Time of it; null: told by an early version.")
    last_heard_ms: int | None = column("Time of its last call; null: not since a fail-over.")
    heartbeat_interval_ms: int | None = column("As measured; null: too few heartbeats.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Partitions with successive numbers."""

    first: int = column("First partition.")
    last: int = column("Last partition.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Partitions of a topic that nobody worked on for a while, or that changed owners."""

    topic: str = column("Topic.")
    partitions: tuple[Range, ...] = column("Their numbers; of many ranges the first.")
    partition_count: int = column("Number of them.")
    from_member: Client = column("Owner before.")
    to_member: Client = column("Owner since.")
    has_moved: bool = column("False: they stayed with their owner, which stopped meanwhile.")
    not_worked_on_ms_min: int = column("Shortest time in which nobody can have worked on them.")
    not_worked_on_ms_max: int | None = column("Longest such time; null: unknown.")
    stopped_earliest_ms: int | None = column("Time until which the owner worked for certain.")
    stopped_latest_ms: int | None = column("Time at which it had stopped for certain.")
    resumed_at_ms: int = column("Time at which the new assignment was stored.")
    is_fetched: bool = column("False: the new owner had not asked for its assignment by then.")
    known_by: str = column("Evidence of when the owner stopped, for example last_heard, left.")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceRow:
    """An advice that no earlier rebalance has given."""

    code: str = column("For example short_session, slow_to_join.")
    text: str = column("The sentence.")
    client_id: str | None = column("The client that it is about; null: the group.")
    duration_ms: int | None = column("The duration that it is about; null: none.")
    count: int | None = column("The number that it is about; null: none.")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotWorkedOn:
    """Partitions that nobody worked on until a rebalance gave them to somebody."""

    partitions: int = column("Number of them.")
    counted_from: str | None = column(
        "`last_work`: when their owners are last known to have worked; null: an early version "
        "counted from when they were removed or joined again."
    )
    longest_ms_min: int | None = column("What is certain of the longest time; null: not counted.")
    longest_ms_max: int = column("Longest time of one of them.")
    total_ms_min: int | None = column("What is certain of the sum; null: not counted.")
    total_ms_max: int = column("Sum over the partitions.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A rebalance, or a refused join, which leads to no generation."""

    group: str = column(_GROUP)
    generation: int | None = column(_GENERATION[:-1] + "; null: a join was refused.")
    generation_before: int | None = column("Generation before it.", None)
    cause: str = column("Cause in words.")
    cause_code: str = column("Cause, for example member_joined, join_refused.", None)
    outcome: str = column("`completed`, `interrupted`, `failed: …`, or the code of a refusal.")
    caused_by: Client | None = column("The member that caused it; null: none did.", None)
    reason: str | None = column("The reason that it gave; null: none.", None)
    started_at_ms: int = column("Begin; of refused joins the first.", None)
    ended_at_ms: int = column("End; of refused joins the last.", None)
    duration_ms: int = column("Time between the two.", None)
    phases_ms: Phases | None = column("Lengths of its phases; null: a join was refused.", None)
    protocol: str | None = column("Selected protocol; null: none.", None)
    was_initial: bool = column("True for the first rebalance of an empty group.", None)
    cooperative_round: int | None = column(
        "Number of the round of a cooperative rebalance; null: it took one only.", None
    )
    partitions_taken_away: int | None = column("Partitions that the next round hands out.", None)
    members: int | None = column("Members after it; null: a join was refused.", None)
    participants: tuple[Participant, ...] = column("Members that joined; of many the last.", None)
    removed: tuple[Removed, ...] = column("Members that left or were removed; of many some.", None)
    removed_count: int = column("Number of them.", None)
    partitions_moved: int | None = column("Partitions that changed owners; null: unknown.", None)
    not_worked_on: NotWorkedOn | None = column("Partitions that rested; null: unknown.", None)
    moves: tuple[Move, ...] = column("Who had what before and since; of many some.", None)
    partitions_left_out: int = column("Number of partitions that are not in moves.", None)
    advice: tuple[AdviceRow, ...] = column("Advice.", None)
    explanation: tuple[str, ...] = column("All of it in sentences.", text=" ".join)


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
    waits_ms: int = column("Time for which the phase has lasted.", "FOR", text=spell)
    phase_ends_at_ms: int = column("Time at which the phase ends at the latest.", None)
    client_id: str | None = column("Client id; null: it has a member id and has not joined.")
    host: str | None = column("Address; null: it has not joined.")
    consumer_id: str = column(_MEMBER)
    last_heard_ms: int | None = column("Time of its last call; null: it has not joined.", None)
    silent_ms: int | None = column(
        "Time since then; null: it has not joined.",
        "LAST-HEARD",
        text=lambda ms: "-" if ms is None else f"{spell(ms)} ago",
    )
    is_leader: bool = column("True if the group waits for its assignment.", "LEADER")


def explained(rebalance: admin_pb2.Rebalance) -> Explained:
    """The row of a rebalance."""
    caused_by = (rebalance.member_id, rebalance.client_id, rebalance.client_host)
    return Explained(
        group=rebalance.group_id,
        generation=rebalance.generation_after,
        generation_before=rebalance.generation_before,
        cause=rebalance.cause,
        cause_code=rebalance.cause_code,
        outcome=rebalance.outcome,
        caused_by=_client(*caused_by) if any(caused_by) else None,
        reason=rebalance.reason or None,
        started_at_ms=rebalance.started_at_ms,
        ended_at_ms=rebalance.ended_at_ms,
        duration_ms=rebalance.ended_at_ms - rebalance.started_at_ms,
        phases_ms=Phases(
            join=_known(rebalance.join_phase_ms),
            sync=_known(rebalance.sync_phase_ms),
            durable=_known(rebalance.durable_phase_ms),
        ),
        protocol=rebalance.protocol or None,
        was_initial=rebalance.was_initial,
        cooperative_round=rebalance.cooperative_round or None,
        partitions_taken_away=rebalance.partitions_taken_away,
        members=rebalance.members,
        participants=tuple(_participant(m, rebalance.leader) for m in rebalance.participants),
        removed=tuple(map(_removed, rebalance.removed)),
        removed_count=rebalance.removed_count,
        partitions_moved=_known(rebalance.partitions_moved),
        not_worked_on=_not_worked_on(rebalance),
        moves=tuple(map(_move, rebalance.moves)),
        partitions_left_out=rebalance.partitions_left_out,
        advice=tuple(map(_advice, rebalance.advice)),
        explanation=tuple(rebalance.explanation),
    )


def refused(group: str, join: admin_pb2.RefusedJoin) -> Explained:
    """The row of refused joins of one client."""
    return Explained(
        group=group,
        generation=None,
        generation_before=None,
        cause="join refused",
        cause_code="join_refused",
        outcome=code_name(join.error_code),
        caused_by=_client("", join.client_id, join.client_host),
        reason=None,
        started_at_ms=join.first_at_ms,
        ended_at_ms=join.last_at_ms,
        duration_ms=join.last_at_ms - join.first_at_ms,
        phases_ms=None,
        protocol=None,
        was_initial=False,
        cooperative_round=None,
        partitions_taken_away=None,
        members=None,
        participants=(),
        removed=(),
        removed_count=0,
        partitions_moved=None,
        not_worked_on=None,
        moves=(),
        partitions_left_out=0,
        advice=(),
        explanation=(join.explanation,),
    )


def lane_rows(rebalance: admin_pb2.Rebalance) -> list[LaneRow]:
    """The lanes of a timeline, the phases first."""

    def row(name: str, bars: tuple[Bar, ...], note: str = "") -> LaneRow:
        return LaneRow(
            group=rebalance.group_id,
            generation=rebalance.generation_after,
            name=name,
            bars=tuple(
                BarRow(kind=bar.kind, begin_ms=bar.begin_ms, end_ms=bar.end_ms) for bar in bars
            ),
            note=note or None,
        )

    drawn = (*lanes(rebalance), *rests(rebalance))
    return [
        row("phases", phases(rebalance)),
        *(row(lane.name, lane.bars, lane.note) for lane in drawn),
    ]


def blocking(group: str, phase: admin_pb2.DescribePhaseResponse, now_ms: int) -> list[Blocking]:
    """The members that a group waits for."""
    return [
        Blocking(
            group=group,
            state=phase.group_state,
            waits_ms=max(0, now_ms - phase.since_ms),
            phase_ends_at_ms=phase.deadline_ms,
            client_id=member.client_id or None,
            host=member.client_host or None,
            consumer_id=member.member_id,
            last_heard_ms=_known(member.last_heard_ms),
            silent_ms=None if member.last_heard_ms < 0 else max(0, now_ms - member.last_heard_ms),
            is_leader=member.is_leader,
        )
        for member in phase.awaited
    ]


# --- Inside -------------------------------------------------------------------------------------


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _client(member_id: str, client_id: str, host: str = "") -> Client:
    return Client(member_id=member_id or None, client_id=client_id or None, host=host or None)


def _participant(member: admin_pb2.RebalanceParticipant, leader: str) -> Participant:
    return Participant(
        member_id=member.member_id,
        client_id=member.client_id or None,
        host=member.client_host or None,
        is_new=member.is_new,
        is_leader=member.member_id == leader,
        joined_at_ms=member.joined_at_ms,
        synced_at_ms=_known(member.synced_at_ms),
        session_timeout_ms=_known(member.session_timeout_ms),
    )


def _removed(member: admin_pb2.RemovedMember) -> Removed:
    return Removed(
        member_id=member.member_id,
        client_id=member.client_id or None,
        host=member.client_host or None,
        code=member.code,
        cause=member.cause,
        removed_at_ms=member.removed_at_ms or None,
        last_heard_ms=_known(member.last_heard_ms) or None,
        heartbeat_interval_ms=_known(member.heartbeat_interval_ms) or None,
    )


def _not_worked_on(rebalance: admin_pb2.Rebalance) -> NotWorkedOn | None:
    if rebalance.partitions_moved < 0:
        return None
    is_counted = bool(rebalance.counted_from)
    return NotWorkedOn(
        partitions=rebalance.unowned_partitions,
        counted_from=rebalance.counted_from or None,
        longest_ms_min=rebalance.unowned_ms_max_at_least if is_counted else None,
        longest_ms_max=rebalance.unowned_ms_max,
        total_ms_min=rebalance.unowned_ms_total_at_least if is_counted else None,
        total_ms_max=rebalance.unowned_ms_total,
    )


def _move(move: admin_pb2.PartitionMove) -> Move:
    return Move(
        topic=move.topic,
        partitions=tuple(Range(first=some.first, last=some.last) for some in move.partitions),
        partition_count=move.partition_count,
        from_member=_client(move.from_member_id, move.from_client_id),
        to_member=_client(move.to_member_id, move.to_client_id),
        has_moved=move.has_moved,
        not_worked_on_ms_min=move.unowned_ms_min,
        not_worked_on_ms_max=_known(move.unowned_ms_max),
        stopped_earliest_ms=_known(move.stopped_earliest_ms),
        stopped_latest_ms=_known(move.stopped_latest_ms),
        resumed_at_ms=move.resumed_at_ms,
        is_fetched=move.is_fetched,
        known_by=move.known_by,
    )


def _advice(advice: admin_pb2.Advice) -> AdviceRow:
    return AdviceRow(
        code=advice.code,
        text=advice.text,
        client_id=advice.client_id or None,
        duration_ms=advice.duration_ms or None,
        count=advice.count or None,
    )
