"""JSON codec of a shard's inputs: dataclasses by their names and fields."""

from __future__ import annotations

import base64
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from coordinator.core import commands as c
from coordinator.core import requests as q
from coordinator.core.errors import ErrorCode
from coordinator.core.pauses import Pause
from coordinator.shard import outbox as o
from coordinator.shard.followers import FetchEntries, FollowersChanged
from coordinator.typed_json import parse_dataclass

_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *q.Request.__args__,
        c.CallCancelled,
        q.LeavingMember,
        q.PartitionCommit,
        o.Tick,
        o.Appended,
        o.AppendFailed,
        o.Unload,
        FetchEntries,
        Pause,
        FollowersChanged,
    )
}
_KINDS["Revive"] = o.Activate  # Its name in recordings.
_NAMES = {kind: name for name, kind in _KINDS.items()}
_ENUMS: dict[str, type[Enum]] = {
    kind.__name__: kind for kind in (ErrorCode, o.AppendFailure, q.ListOrder)
}


def to_json(value: Any) -> Any:
    """Convert to JSON values: `{"Name": {field: value}}`, `{"bytes": base64}`, `{"enum": [..]}`."""
    if isinstance(value, Enum):
        return {"enum": [type(value).__name__, value.name]}
    if is_dataclass(value):
        name = _NAMES[type(value)]
        return {name: {f.name: to_json(getattr(value, f.name)) for f in fields(value)}}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, tuple | list):
        return [to_json(each) for each in value]
    return value


def from_json(value: Any) -> Any:
    """Convert back from `to_json`.

    Raises:
        ValueError: there is no such input, or it has other fields.
    """
    if isinstance(value, list):
        return tuple(from_json(each) for each in value)
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
    return parse_dataclass(
        _KINDS[name], {field: from_json(each) for field, each in content.items()}
    )
