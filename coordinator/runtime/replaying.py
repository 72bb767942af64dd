"""A recording run again: the same inputs, the same decisions, the same journal."""

from __future__ import annotations

import base64
import contextlib
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
from coordinator.shapes import fits, made
from coordinator.shard.outbox import Input
from coordinator.shard.replicas import AckPolicy
from coordinator.shard.shard import Shard
from coordinator.storage.log import Damaged

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
        AssertionError: an input broke a rule of the shard, as it did then.
    """
    found = Replayed()
    ids = _NoIds()
    shard: Shard | None = None
    now_ms = 0
    for line, ids.ids in _with_ids(lines):
        if "format" in line:
            with _reading():
                now_ms = _now_ms(line, now_ms)
                shard = _new_shard(line, ids, now_ms)
        elif shard is None:
            raise NoRecording("the first line does not say what it is")
        elif "load" in line:
            with _reading():
                now_ms = _now_ms(line, now_ms)
                records = [codec.decode(base64.b64decode(data)) for data in line["load"]]
            shard.replay(records, now_ms)
        elif "restore" in line:
            with _reading():
                now_ms = _now_ms(line, now_ms)
                sequence, next_offset = map(_number, line["restore"])
            shard.restore(now_ms, sequence=sequence, next_offset=next_offset)
        elif "in" in line:
            with _reading():
                now_ms = _now_ms(line, now_ms)
                event = from_json(line["in"])
                if not isinstance(event, Input):
                    raise NoRecording(f"{type(event).__name__} is no input")
            outbox = shard.step(event, now_ms)
            found.inputs += 1
            found.rebalances += [
                event.record for event in outbox.events if isinstance(event, RebalanceJournaled)
            ]
        elif "hash" in line:
            found.checked += 1
            if state_hash(shard) != line["hash"]:
                found.differences.append(f"the state differs after {found.inputs} inputs")
    return found


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """What does not look as a recording does is none."""
    try:
        yield
    except NoRecording:
        raise
    except (KeyError, TypeError, ValueError, RecursionError, Damaged) as error:
        raise NoRecording(f"a line cannot be read: {error!r}") from error


def _number(value: Any) -> int:
    if not fits(value, int) or value < 0:
        raise NoRecording(f"{value!r:.80} is no number of milliseconds, entries or records")
    number: int = value
    return number


def _now_ms(line: Line, before_ms: int) -> int:
    now_ms = _number(line["now_ms"])
    if now_ms < before_ms:
        raise NoRecording(f"time goes back from {before_ms} to {now_ms} ms")
    return now_ms


def _with_ids(lines: Iterable[str]) -> Iterator[tuple[Line, list[str]]]:
    """Each line with the ids that were drawn while it was worked on: they are written behind it."""
    waiting: Line | None = None
    ids: list[str] = []
    for text in lines:
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            break  # The last line of a process that was killed.
        if not isinstance(line, dict):
            raise NoRecording(f"a line is {line!r:.80}")
        if "id" in line:
            ids.append(str(line["id"]))
            continue
        if waiting is not None:
            yield waiting, ids
        waiting, ids = line, []
    if waiting is not None:
        yield waiting, ids


def _new_shard(header: Line, ids: _NoIds, now_ms: int) -> Shard:
    if header["format"] != FORMAT:
        raise NoRecording(f"format {header['format']}; this version reads {FORMAT}")
    try:
        config = made(GroupConfig, header["config"])
        acks = made(AckPolicy, header["acks"])
    except ValueError as error:
        raise NoRecording(f"recorded by another version: {error}") from None
    return Shard(config, ids, PAYLOADS, now_ms=now_ms, acks=acks)
