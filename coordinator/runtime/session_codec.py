"""Codec of the records of session groups. Part of `codec`, which alone is called."""

from __future__ import annotations

from collections.abc import Callable
from sys import intern
from typing import Any

from coordinator.core.records import Record
from coordinator.core.session_values.journal import PlanRecord
from coordinator.core.session_values.policy import Mode, OnStall, Policy
from coordinator.core.session_values.records import (
    EndCause,
    Grant,
    HandoffsEnded,
    HoldingsStored,
    KeptFreed,
    KeptStored,
    PartitionsGranted,
    PartitionSwitched,
    Phase,
    PhaseEntered,
    PolicyStored,
    SessionMemberEnded,
    SessionMemberStored,
    TokenFloor,
)
from coordinator.durable.v1 import records_pb2 as pb
from coordinator.runtime.holdings_codec import (
    decode_holdings,
    decode_kept,
    encode_holdings,
    encode_kept,
)
from coordinator.runtime.journal_codec import decode_line, decode_plan, encode_line, encode_plan
from coordinator.runtime.record_fields import (
    distances,
    names_of,
    ranges,
    read_fields,
    values_of,
)

_MEMBER = names_of(SessionMemberStored, ("topics", "place"))
_END = names_of(SessionMemberEnded, ("cause",))
_PHASE = names_of(PhaseEntered, ("phase", "line"))
_SWITCHED = names_of(PartitionSwitched, ("line",))
_POLICY = names_of(Policy, ("mode", "on_stall"))


# --- Encoders -----------------------------------------------------------------------------------


def _member(record: SessionMemberStored) -> pb.Record:
    place = record.place
    message = pb.SessionMember(
        topics=[pb.SessionMember.Topic(name=n, partitions=c) for n, c in record.topics],
        place=None
        if place is None
        else pb.SessionMember.Place(pod_uid=place[0], container=place[1], started_at_ms=place[2]),
        **values_of(record, _MEMBER),
    )
    return pb.Record(group_id=record.group_id, session_member=message)


def _end(record: SessionMemberEnded) -> pb.Record:
    message = pb.SessionEnd(cause=record.cause.value, **values_of(record, _END))
    return pb.Record(group_id=record.group_id, session_end=message)


def _granted(record: PartitionsGranted) -> pb.Record:
    grants = [
        pb.Grants.Grant(
            member_id=grant.member_id,
            topic=grant.topic,
            ranges=distances(grant.partitions),
            first_token=grant.first_token,
            source=grant.source,
        )
        for grant in record.grants
    ]
    return pb.Record(group_id=record.group_id, grants=pb.Grants(grants=grants))


def _phase_entered(record: PhaseEntered) -> pb.Record:
    return pb.Record(group_id=record.group_id, phase_entered=_phase(record))


def _phase(record: PhaseEntered) -> pb.PhaseEntered:
    line, fields = encode_line(record.line), values_of(record, _PHASE)
    return pb.PhaseEntered(phase=record.phase.value, line=line, **fields)


def _switched(record: PartitionSwitched) -> pb.Record:
    return pb.Record(group_id=record.group_id, switched=_switch(record))


def _switch(record: PartitionSwitched) -> pb.Switched:
    return pb.Switched(line=encode_line(record.line), **values_of(record, _SWITCHED))


def _ended(record: HandoffsEnded) -> pb.Record:
    message = pb.HandoffsEnded(
        records=[
            pb.HandoffsEnded.One(phase_entered=_phase(each))
            if isinstance(each, PhaseEntered)
            else pb.HandoffsEnded.One(switched=_switch(each))
            for each in record.records
        ]
    )
    return pb.Record(group_id=record.group_id, handoffs_ended=message)


def _policy(record: PolicyStored) -> pb.Record:
    policy = record.policy
    message = pb.Policy(
        mode=policy.mode.value, on_stall=policy.on_stall.value, **values_of(policy, _POLICY)
    )
    return pb.Record(group_id=record.group_id, policy=message)


# Any: each function takes the records of its row.
SESSION_ENCODERS: dict[type, Callable[[Any], pb.Record]] = {
    SessionMemberStored: _member,
    SessionMemberEnded: _end,
    PartitionsGranted: _granted,
    PhaseEntered: _phase_entered,
    PartitionSwitched: _switched,
    KeptFreed: lambda r: pb.Record(group_id=r.group_id, kept_freed=pb.KeptFreed(name=r.name)),
    PolicyStored: _policy,
    PlanRecord: encode_plan,
    HandoffsEnded: _ended,
    HoldingsStored: encode_holdings,
    KeptStored: encode_kept,
    TokenFloor: lambda r: pb.Record(
        token_floor=pb.TokenFloor(token=r.token, handoff_id=r.handoff_id)
    ),
}


# --- Decoders -----------------------------------------------------------------------------------


def _read_member(group_id: str, m: pb.SessionMember) -> Record:
    place = None
    if m.HasField("place"):
        place = (m.place.pod_uid, m.place.container, m.place.started_at_ms)
    return SessionMemberStored(
        group_id,
        topics=tuple((intern(topic.name), topic.partitions) for topic in m.topics),
        place=place,
        **read_fields(m, _MEMBER),
    )


def _read_end(group_id: str, m: pb.SessionEnd) -> Record:
    return SessionMemberEnded(group_id, cause=EndCause(m.cause), **read_fields(m, _END))


def _read_grants(group_id: str, m: pb.Grants) -> Record:
    return PartitionsGranted(
        group_id,
        tuple(
            Grant(intern(g.member_id), intern(g.topic), ranges(g.ranges), g.first_token, g.source)
            for g in m.grants
        ),
    )


def _read_phase(group_id: str, m: pb.PhaseEntered) -> PhaseEntered:
    line = decode_line(m.line) if m.HasField("line") else None
    return PhaseEntered(group_id, phase=Phase(m.phase), line=line, **read_fields(m, _PHASE))


def _read_switched(group_id: str, m: pb.Switched) -> PartitionSwitched:
    line = decode_line(m.line) if m.HasField("line") else None
    return PartitionSwitched(group_id, line=line, **read_fields(m, _SWITCHED))


def _read_ended(group_id: str, m: pb.HandoffsEnded) -> Record:
    return HandoffsEnded(
        group_id,
        tuple(
            _read_phase(group_id, each.phase_entered)
            if each.HasField("phase_entered")
            else _read_switched(group_id, each.switched)
            for each in m.records
        ),
    )


def _read_policy(group_id: str, m: pb.Policy) -> Record:
    chosen = read_fields(m, _POLICY)
    return PolicyStored(group_id, Policy(mode=Mode(m.mode), on_stall=OnStall(m.on_stall), **chosen))


SESSION_DECODERS: dict[str, Callable[[str, Any], Record]] = {
    "session_member": _read_member,
    "session_end": _read_end,
    "grants": _read_grants,
    "phase_entered": _read_phase,
    "switched": _read_switched,
    "kept_freed": lambda group_id, m: KeptFreed(group_id, m.name),
    "policy": _read_policy,
    "plan": decode_plan,
    "handoffs_ended": _read_ended,
    "holdings": decode_holdings,
    "kept": decode_kept,
    "token_floor": lambda _, m: TokenFloor(m.token, m.handoff_id),
}
