"""Replay of a recording: the same inputs, the same decisions, the same journal."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from coordinator import __version__
from coordinator.core.config import GroupConfig
from coordinator.core.values.events import RebalanceJournaled
from coordinator.core.values.ids import CallId
from coordinator.core.values.rebalance_journal import RebalanceRecord
from coordinator.runtime import codec
from coordinator.runtime.inputs import from_json
from coordinator.runtime.payloads import PAYLOADS
from coordinator.runtime.recording import FORMAT, state_hash
from coordinator.shard.followers import AckPolicy
from coordinator.shard.inputs import Input, ShardEffects
from coordinator.shard.shard import Shard
from coordinator.storage.log import Damaged
from coordinator.typed_json import matches_type, parse_dataclass

Line = dict[str, Any]  # Any: JSON.
_OURS = f"version {__version__}"


class NoRecording(ValueError):
    """The lines are no recording that this version reads; the message says why."""


class _MissingId(NoRecording):
    """An input asks for an id that was not recorded after it."""


@dataclass
class Replayed:
    """Result of a replay: number of hashes compared (`checked`), and where they differ."""

    rebalances: list[RebalanceRecord] = field(default_factory=list)
    inputs: int = 0
    checked: int = 0
    differences: list[str] = field(default_factory=list)


class _NoIds:
    """Source of the recorded ids, in the order in which they were drawn."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def new_member_id(self, prefix: str) -> str:
        if not self.ids:
            raise _MissingId("an input asks for a member id that was not recorded")
        return self.ids.pop(0)

    def new_session_id(self) -> str:
        return self.new_member_id("")


def replay(lines: Iterable[str]) -> Replayed:
    """Run a recording; one that ends in the middle is run up to there.

    Raises:
        NoRecording: see there.
        AssertionError: an input broke a rule of the shard, as it did when it was recorded.
    """
    replayed = Replayed()
    ids = _NoIds()
    shard: Shard | None = None
    now_ms, made_by = 0, ""
    for line, ids.ids, is_last in _with_ids(lines):
        if "format" in line:
            made_by = _made_by(line)
            with _reading(made_by):
                now_ms = _now_ms(line, now_ms)
                shard = _new_shard(line, ids, now_ms, made_by)
        elif shard is None:
            raise NoRecording("the first line does not say what it is")
        elif "load" in line:
            with _reading(made_by):
                now_ms = _now_ms(line, now_ms)
                records = [codec.decode(base64.b64decode(data)) for data in line["load"]]
            shard.replay(records, now_ms)
        elif "restore" in line:
            with _reading(made_by):
                now_ms = _now_ms(line, now_ms)
                sequence, next_offset, raised = map(_number, line["restore"])
            shard.restore(
                now_ms, ShardEffects(), sequence=sequence, next_offset=next_offset, raised=raised
            )
        elif "in" in line:
            with _reading(made_by):
                now_ms = _now_ms(line, now_ms)
                event = from_json(line["in"])
                if not isinstance(event, Input):
                    raise NoRecording(f"{type(event).__name__} is no input")
            if not _step(shard, event, now_ms, replayed, is_last=is_last):
                break
        elif "beat" in line:
            with _reading(made_by):
                now_ms = _now_ms(line, now_ms)
                heartbeat = _beat(line["beat"])
            _beat_again(shard, heartbeat, now_ms, replayed)
        elif "take" in line:
            with _reading(made_by):
                now_ms = _now_ms(line, now_ms)
                stream_id = CallId(_number(line["take"]))
            _take_again(shard, stream_id, now_ms, replayed)
        elif "hash" in line:
            _count(_number(line.get("inputs", replayed.inputs)), replayed)
            _compare(shard, line["hash"], replayed)
        else:
            raise NoRecording(f"{made_by} wrote a line that {_OURS} does not read: {line!r:.80}")
    if shard is None:
        raise NoRecording("it is empty, or its first line is cut short")
    return replayed


def _beat_again(
    shard: Shard, heartbeat: tuple[str, str, str | None, int], now_ms: int, replayed: Replayed
) -> None:
    replayed.inputs += 1
    if not shard.beat(*heartbeat, now_ms):
        replayed.differences.append(f"input {replayed.inputs} is no heartbeat of a member at rest")


def _take_again(shard: Shard, stream_id: CallId, now_ms: int, replayed: Replayed) -> None:
    if shard.take(stream_id, now_ms) is None:
        replayed.differences.append(f"there is nothing to tell after {replayed.inputs} inputs")


def _count(recorded: int, replayed: Replayed) -> None:
    """Compare the number of inputs: a heartbeat that is missing need not change the state."""
    missing, replayed.inputs = recorded - replayed.inputs, recorded
    if missing:
        difference = f"{abs(missing)} inputs are {'missing' if missing > 0 else 'too many'}"
        replayed.differences.append(f"{difference} before the state after {recorded}")


def _compare(shard: Shard, recorded: object, replayed: Replayed) -> None:
    replayed.checked += 1
    if state_hash(shard) != recorded:
        replayed.differences.append(f"the state differs after {replayed.inputs} inputs")


def _step(shard: Shard, event: Input, now_ms: int, replayed: Replayed, *, is_last: bool) -> bool:
    """Run one input; False if the recording ends between the input and an id that it drew."""
    effects = ShardEffects()
    try:
        shard.step(event, now_ms, effects)
    except _MissingId:
        if not is_last:
            raise
        return False
    replayed.inputs += 1
    replayed.rebalances += [
        event.record for event in effects.events if isinstance(event, RebalanceJournaled)
    ]
    return True


@contextlib.contextmanager
def _reading(made_by: str) -> Iterator[None]:
    """Turn parse errors into NoRecording."""
    try:
        yield
    except NoRecording:
        raise
    except (KeyError, TypeError, ValueError, RecursionError, Damaged) as error:
        reason = error if isinstance(error, ValueError) else repr(error)
        raise NoRecording(f"{made_by} wrote what {_OURS} does not read: {reason}") from error


def _made_by(header: Line) -> str:
    version = header.get("version")
    return f"version {version:.40}" if isinstance(version, str) else "an unnamed version"


def _number(value: Any) -> int:
    if not matches_type(value, int) or value < 0:
        raise NoRecording(f"{value!r:.80} is no number of milliseconds, entries or records")
    number: int = value
    return number


def _now_ms(line: Line, before_ms: int) -> int:
    now_ms = _number(line["now_ms"])
    if now_ms < before_ms:
        raise NoRecording(f"time goes back from {before_ms} to {now_ms} ms")
    return now_ms


def _beat(value: Any) -> tuple[str, str, str | None, int]:
    if not matches_type(tuple(value), tuple[str, str, str | None, int]):
        raise ValueError(f"{value!r:.80} is no heartbeat")
    group_id, member_id, instance_id, generation = value
    return group_id, member_id, instance_id, generation


def _with_ids(lines: Iterable[str]) -> Iterator[tuple[Line, list[str], bool]]:
    """Each line with the ids drawn by it, which are recorded after it; True if it is the last."""
    waiting: Line | None = None
    ids: list[str] = []
    for line in _parsed(lines):
        if "id" in line:
            ids.append(str(line["id"]))
            continue
        if waiting is not None:
            yield waiting, ids, False
        waiting, ids = line, []
    if waiting is not None:
        yield waiting, ids, True


def _parsed(lines: Iterable[str]) -> Iterator[Line]:
    """Each line, parsed. The last one may be cut short by a kill, and is skipped then."""
    cut = 0
    for number, text in enumerate(lines, start=1):
        if cut:
            raise NoRecording(f"line {cut} is damaged")
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            cut = number
            continue
        if not isinstance(line, dict):
            raise NoRecording(f"line {number} is {line!r:.80}")
        yield line


def _new_shard(header: Line, ids: _NoIds, now_ms: int, made_by: str) -> Shard:
    if header["format"] != FORMAT:
        raise NoRecording(
            f"{made_by} recorded in format {header['format']!r:.80}; {_OURS} reads format {FORMAT}"
        )
    config = parse_dataclass(GroupConfig, header["config"])
    acks = parse_dataclass(AckPolicy, header["acks"])
    return Shard(config, ids, PAYLOADS, now_ms=now_ms, acks=acks)
