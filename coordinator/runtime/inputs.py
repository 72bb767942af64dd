"""JSON codec of a shard's inputs: dataclasses by their names and fields."""

from __future__ import annotations

import base64
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

from coordinator.core.pauses import Pause
from coordinator.core.values import commands as c
from coordinator.core.values import requests as q
from coordinator.core.values import session_messages as s
from coordinator.core.values.commands import PlanComputed
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.plans import (
    Move,
    MoveReason,
    Obstacle,
    Partition,
    Plan,
    Range,
    Unplaced,
)
from coordinator.core.values.policy import Mode, OnStall, Policy
from coordinator.shard import inputs as o
from coordinator.shard.followers import FetchEntries, FollowersChanged
from coordinator.typed_json import parse_dataclass


@dataclass(frozen=True, slots=True)
class RecordedPlan:
    """A `Plan` as JSON has it: without mappings from numbers, and without enums in tuples.

    grants: member, topic, ranges. moves: topic, partition, source, target, reason. unplaced: topic,
    partition, why. obstacles: members above, others, partition.
    """

    grants: tuple[tuple[int, int, tuple[Range, ...]], ...]
    moves: tuple[tuple[int, int, int, int, str], ...]
    unplaced: tuple[tuple[int, int, str], ...]
    obstacles: tuple[tuple[tuple[int, ...], tuple[int, ...], Partition | None], ...]

    @classmethod
    def of(cls, plan: Plan) -> RecordedPlan:
        return cls(
            tuple(
                (member, topic, ranges)
                for member, by_topic in plan.grants.items()
                for topic, ranges in by_topic.items()
            ),
            tuple((*move[:-1], move.reason.value) for move in plan.moves),
            tuple((*partition, why.value) for partition, why in plan.unplaced.items()),
            plan.obstacles,
        )

    def plan(self) -> Plan:
        """The plan that was recorded.

        Raises:
            ValueError: a reason is unknown.
        """
        grants: dict[int, dict[int, tuple[Range, ...]]] = {}
        for member, topic, ranges in self.grants:
            grants.setdefault(member, {})[topic] = ranges
        return Plan(
            grants,
            tuple(Move(*move[:-1], MoveReason(move[-1])) for move in self.moves),
            {(topic, partition): Unplaced(why) for topic, partition, why in self.unplaced},
            tuple(Obstacle(*obstacle) for obstacle in self.obstacles),
        )


_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *q.Request.__args__,
        c.CallCancelled,
        q.LeavingMember,
        q.PartitionCommit,
        q.PutDocument,
        o.Tick,
        o.Appended,
        o.AppendFailed,
        o.Unload,
        FetchEntries,
        Pause,
        FollowersChanged,
        *s.SessionInput.__args__,
        s.PartitionAck,
        Policy,
        PlanComputed,
        RecordedPlan,
    )
}
_KINDS["Revive"] = o.Activate  # Its name in recordings.
_NAMES = {kind: name for name, kind in _KINDS.items()}
_ENUMS: dict[str, type[Enum]] = {
    kind.__name__: kind
    for kind in (ErrorCode, o.AppendFailure, q.ListOrder, s.AckKind, s.LeaveKind, Mode, OnStall)
}


def to_json(value: Any) -> Any:
    """Convert to JSON values: `{"Name": {field: value}}`, `{"bytes": base64}`, `{"enum": [..]}`."""
    if isinstance(value, Enum):
        return {"enum": [type(value).__name__, value.name]}
    if isinstance(value, Plan):
        value = RecordedPlan.of(value)
    if is_dataclass(value):
        name = _NAMES[type(value)]
        return {name: {f.name: to_json(getattr(value, f.name)) for f in fields(value)}}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    return value


def from_json(value: Any) -> Any:
    """Convert back from `to_json`.

    Raises:
        ValueError: there is no such input, or it has other fields.
    """
    if isinstance(value, list):
        return tuple(from_json(item) for item in value)
    if not isinstance(value, dict):
        return value
    ((name, content),) = value.items()
    if name == "bytes" and isinstance(content, str):
        return base64.b64decode(content)
    if name == "enum":
        kind, member = content
        try:
            return _ENUMS[kind][member]
        except (KeyError, TypeError):
            raise ValueError(f"there is no {kind!r:.80} {member!r:.80}") from None
    if name not in _KINDS or not isinstance(content, dict):
        raise ValueError(f"there is no input {name!r:.80}")
    parsed = parse_dataclass(
        _KINDS[name], {field: from_json(item) for field, item in content.items()}
    )
    return parsed.plan() if isinstance(parsed, RecordedPlan) else parsed
