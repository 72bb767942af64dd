"""Codec of the journal of session groups. Part of `session_codec`."""

from __future__ import annotations

from sys import intern

from coordinator.core.ids import NO_OFFSET, NO_TIME
from coordinator.core.session_values.journal import (
    HandoffLine,
    HandoffOutcome,
    PartlyDeclared,
    PlannedMove,
    PlanRecord,
    PlanTrigger,
    Stop,
    StoppedBy,
    TriggerCause,
    Unowned,
)
from coordinator.durable.v1 import records_pb2 as pb
from coordinator.runtime.record_fields import (
    distances,
    names_of,
    ranges,
    read_fields,
    values_of,
)

_LINE = names_of(HandoffLine, ("outcome", "stop"))
_PLAN = names_of(
    PlanRecord, ("triggers", "counts", "unplaced", "moves", "unowned", "partly_declared")
)
_PARTLY = names_of(PartlyDeclared, ("member_ids",))
_MOVE = names_of(PlannedMove, ("partitions", "stop"))
_UNOWNED = names_of(Unowned)


def encode_line(line: HandoffLine | None) -> pb.Handoff | None:
    """Encode a hand-off."""
    if line is None:
        return None
    known = {k: v for k, v in values_of(line, _LINE).items() if v not in (NO_TIME, NO_OFFSET)}
    return pb.Handoff(outcome=line.outcome.value, stop=_stop(line.stop), **known)


def decode_line(message: pb.Handoff) -> HandoffLine:
    """Decode a hand-off."""
    known = read_fields(message, _LINE)
    known["source"] = intern(known["source"])
    outcome = HandoffOutcome(message.outcome)
    return HandoffLine(outcome=outcome, stop=_read_stop(message), **known)


def encode_plan(record: PlanRecord) -> pb.Record:
    """Encode a plan."""
    message = pb.Plan(
        triggers=[
            pb.Plan.Trigger(cause=t.cause.value, member_id=t.member_id) for t in record.triggers
        ],
        counts=_counts(record.counts),
        unplaced=_counts(record.unplaced),
        moves=[_move(move) for move in record.moves],
        unowned=pb.Plan.Unowned(**values_of(record.unowned, _UNOWNED)),
        partly_declared=[
            pb.Plan.PartlyDeclared(member_ids=each.member_ids, **values_of(each, _PARTLY))
            for each in record.partly_declared
        ],
        **values_of(record, _PLAN),
    )
    return pb.Record(group_id=record.group_id, plan=message)


def decode_plan(group_id: str, m: pb.Plan) -> PlanRecord:
    """Decode a plan."""
    return PlanRecord(
        group_id,
        triggers=tuple(PlanTrigger(TriggerCause(t.cause), t.member_id) for t in m.triggers),
        counts=tuple((count.reason, count.partitions) for count in m.counts),
        unplaced=tuple((count.reason, count.partitions) for count in m.unplaced),
        moves=tuple(
            PlannedMove(
                partitions=ranges(move.ranges), stop=_read_stop(move), **read_fields(move, _MOVE)
            )
            for move in m.moves
        ),
        unowned=Unowned(**read_fields(m.unowned, _UNOWNED)),
        partly_declared=tuple(
            PartlyDeclared(member_ids=tuple(each.member_ids), **read_fields(each, _PARTLY))
            for each in m.partly_declared
        ),
        **read_fields(m, _PLAN),
    )


def _counts(counts: tuple[tuple[str, int], ...]) -> list[pb.Plan.Count]:
    return [pb.Plan.Count(reason=reason, partitions=count) for reason, count in counts]


def _move(move: PlannedMove) -> pb.Plan.Move:
    fields = {k: v for k, v in values_of(move, _MOVE).items() if v != NO_TIME}
    return pb.Plan.Move(ranges=distances(move.partitions), stop=_stop(move.stop), **fields)


def _stop(stop: Stop | None) -> pb.Stop | None:
    if stop is None:
        return None
    return pb.Stop(
        known_by=stop.known_by.value, earliest_ms=stop.earliest_ms, latest_ms=stop.latest_ms
    )


def _read_stop(message: pb.Handoff | pb.Plan.Move) -> Stop | None:
    if not message.HasField("stop"):
        return None
    stop = message.stop
    return Stop(StoppedBy(stop.known_by), stop.earliest_ms, stop.latest_ms)
