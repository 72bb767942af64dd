"""A recording run again: the same inputs, the same decisions, the same journal."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from coordinator.core.config import GroupConfig
from coordinator.core.events import RebalanceJournaled
from coordinator.core.records import RebalanceRecord
from coordinator.runtime import codec
from coordinator.runtime.inputs import from_json
from coordinator.runtime.payloads import PAYLOADS
from coordinator.runtime.recording import FORMAT, state_hash
from coordinator.shard.replicas import AckPolicy
from coordinator.shard.shard import Shard

Line = dict[str, Any]  # Any: JSON.


class NoRecording(ValueError):
    """The lines are no recording, or one of another version. The message says what is wrong."""


@dataclass
class Replayed:
    """What came of it. `checked` hashes were compared; `differences` says where they differ."""

    rebalances: list[RebalanceRecord] = field(default_factory=list)
    inputs: int = 0
    checked: int = 0
    differences: list[str] = field(default_factory=list)


class _NoIds:
    """Ids as they were drawn. Each comes before the end of the step that asks for it."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def new_member_id(self, prefix: str) -> str:
        if not self.ids:
            raise NoRecording("an id is asked for that was not asked for before")
        return self.ids.pop(0)


def replay(lines: Iterable[str]) -> Replayed:
    """Run a recording.

    Raises:
        NoRecording: see there. A recording that ends in the middle is run up to there.
    """
    found = Replayed()
    ids = _NoIds()
    shard: Shard | None = None
    for line, ids.ids in _with_ids(lines):
        if "format" in line:
            shard = _new_shard(line, ids)
        elif shard is None:
            raise NoRecording("the first line does not say what it is")
        elif "load" in line:
            records = (codec.decode(base64.b64decode(data)) for data in line["load"])
            shard.replay(list(records), line["now_ms"])
        elif "restore" in line:
            sequence, next_offset = line["restore"]
            shard.restore(line["now_ms"], sequence=sequence, next_offset=next_offset)
        elif "in" in line:
            outbox = shard.step(from_json(line["in"]), line["now_ms"])
            found.inputs += 1
            found.rebalances += [
                event.record for event in outbox.events if isinstance(event, RebalanceJournaled)
            ]
        elif "hash" in line:
            found.checked += 1
            if state_hash(shard) != line["hash"]:
                found.differences.append(f"the state differs after {found.inputs} inputs")
    return found


def _with_ids(lines: Iterable[str]) -> Iterator[tuple[Line, list[str]]]:
    """Each line with the ids that were drawn while it was worked on: they are written behind it."""
    waiting: Line | None = None
    ids: list[str] = []
    for text in lines:
        try:
            line = json.loads(text)
        except ValueError:
            break  # The last line of a process that was killed.
        if "id" in line:
            ids.append(line["id"])
            continue
        if waiting is not None:
            yield waiting, ids
        waiting, ids = line, []
    if waiting is not None:
        yield waiting, ids


def _new_shard(header: Line, ids: _NoIds) -> Shard:
    if header["format"] != FORMAT:
        raise NoRecording(f"format {header['format']}; this version reads {FORMAT}")
    try:
        config = GroupConfig(**header["config"])
        acks = AckPolicy(**header["acks"])
    except TypeError as error:
        raise NoRecording(f"recorded by another version: {error}") from None
    return Shard(config, ids, PAYLOADS, now_ms=header["now_ms"], acks=acks)
