"""Recordings: the inputs of a shard as lines of JSON, which replay to the same state.

    {"format": 1, "version": "0.1.0", "shard": 5, "config": {...},
     "acks": {...}, "now_ms": ...}
    {"load": ["<record>", ...], "now_ms": ...}                    records of the log
    {"restore": [sequence, next_offset, raised], "now_ms": ...}   the shard begins to serve
    {"id": "<member id>"}                                         drawn at random, in order
    {"in": {"JoinGroup": {...}}, "now_ms": ...}                   an input, see `inputs.py`
    {"beat": [group, member, instance, generation], "now_ms": ...}  a heartbeat without a step
    {"take": stream id, "now_ms": ...}                            its pending message was taken
    {"hash": "<of the state>", "inputs": n}                       at intervals, and at the end

`inputs` counts steps and heartbeats.

A recording that cannot be written ends, and the shard goes on without.

Decisions are deterministic, so replies and timers are not recorded. A file covers one shard in one
process, from a load to the next.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from coordinator import __version__
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.config import GroupConfig
from coordinator.core.payloads import PayloadReader
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.values.ids import CallId, IdSource, ShardId
from coordinator.core.values.records import Record
from coordinator.core.values.session_messages import ToMember
from coordinator.runtime import codec
from coordinator.runtime.inputs import to_json
from coordinator.shard.followers import TAIL_BYTES, AckPolicy
from coordinator.shard.inputs import Input, ShardEffects, Unload
from coordinator.shard.shard import Shard

FORMAT = 1
HASH_EVERY = 1_000


@dataclass(frozen=True, slots=True)
class RecordedIds:
    """Ids of another source, recorded."""

    ids: IdSource
    write: Callable[[dict[str, Any]], None]

    def new_member_id(self, prefix: str) -> str:
        member_id = self.ids.new_member_id(prefix)
        self.write({"id": member_id})
        return member_id

    def new_session_id(self) -> str:
        session_id = self.ids.new_session_id()
        self.write({"id": session_id})
        return session_id


class RecordingShard(Shard):
    """A shard that records its inputs.

    Args:
        path: the recording, a file that does not exist yet; its folder is made.
        on_end: called with the reason if the recording cannot be written.
    """

    def __init__(
        self,
        path: Path,
        shard_id: ShardId,
        config: GroupConfig,
        ids: IdSource,
        payloads: PayloadReader,
        *,
        now_ms: int,
        acks: AckPolicy,
        tail_bytes: int = TAIL_BYTES,
        on_end: Callable[[OSError], None] = lambda error: None,
    ) -> None:
        self._file: TextIO | None = None
        self._on_end = on_end
        self._inputs = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("x")
        except OSError as error:
            on_end(error)
        recorded = RecordedIds(ids, self._write)
        super().__init__(
            config, recorded, payloads, now_ms=now_ms, acks=acks, tail_bytes=tail_bytes
        )
        header = {"format": FORMAT, "version": __version__, "shard": shard_id}
        values = {name: asdict(value) for name, value in (("config", config), ("acks", acks))}
        self._write({**header, **values, "now_ms": now_ms})

    def replay(self, records: Iterable[Record], now_ms: int) -> None:
        records = list(records)
        encoded = [base64.b64encode(codec.encode(record)).decode() for record in records]
        self._write({"load": encoded, "now_ms": now_ms})
        super().replay(records, now_ms)

    def restore(
        self, now_ms: int, out: ShardEffects, *, sequence: int, next_offset: int, raised: int = 0
    ) -> None:
        self._write({"restore": [sequence, next_offset, raised], "now_ms": now_ms})
        super().restore(now_ms, out, sequence=sequence, next_offset=next_offset, raised=raised)

    def step(self, event: Input, now_ms: int, out: ShardEffects) -> None:
        if isinstance(event, Unload):
            self._write_hash()
        self._write({"in": to_json(event), "now_ms": now_ms})
        super().step(event, now_ms, out)
        self._count_input()

    def beat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> bool:
        """See `Shard`. Heartbeats that a step has to answer are recorded by that step."""
        is_taken = True
        try:
            is_taken = super().beat(group_id, member_id, instance_id, generation, now_ms)
        finally:  # A replay has to meet a bug in it.
            if is_taken:
                beat = [group_id, member_id, instance_id, generation]
                self._write({"beat": beat, "now_ms": now_ms})
        if is_taken:
            self._count_input()
        return is_taken

    def take(self, stream_id: CallId, now_ms: int) -> ToMember | None:
        """See `Shard`. What a member has been told decides about what it claims later."""
        pending = None
        try:
            pending = super().take(stream_id, now_ms)
        except Exception:
            self._write({"take": stream_id, "now_ms": now_ms})  # A replay has to meet the bug.
            raise
        if pending is not None:
            self._write({"take": stream_id, "now_ms": now_ms})
        return pending

    def _count_input(self) -> None:
        self._inputs += 1
        if self._inputs % HASH_EVERY == 0:
            self._write_hash()

    def _write_hash(self) -> None:
        self._write({"hash": state_hash(self), "inputs": self._inputs})

    def _write(self, line: dict[str, Any]) -> None:
        file = self._file
        if file is None:
            return
        try:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
            file.flush()
        except OSError as error:
            self._file = None
            with contextlib.suppress(OSError):  # It tries to write the rest once more.
                file.close()
            self._on_end(error)


def state_hash(shard: Shard) -> str:
    """SHA-256 of durable records and of group membership and state."""
    digest = hashlib.sha256()
    for record in shard.records():
        digest.update(codec.encode(record))
    for group_id, group in sorted(shard.machine.groups.items()):
        soft = _soft_sessions(group) if isinstance(group, SessionGroup) else _soft_classic(group)
        digest.update(repr((group_id, group.state.value, *soft)).encode())
    return digest.hexdigest()


def _soft_classic(group: ClassicGroup) -> tuple[Any, ...]:
    return (
        group.generation,
        group.leader_id,
        sorted(group.members),
        sorted(group.pending_member_ids),
        sorted(group.awaited_syncs),
    )


def _soft_sessions(group: SessionGroup) -> tuple[Any, ...]:
    members = [
        (member_id, member.stream_number, member.number, member.is_suspect, member.mailbox.version)
        for member_id, member in sorted(group.members.items())
    ]
    states = group.partition_states.items()
    return (
        members,
        sorted(group.waiting),
        sorted((partition, target) for partition, (target, _) in group.planning.targets.items()),
        sorted((partition, state.release.token) for partition, state in states if state.release),
        sorted(
            (partition, state.writes_pending) for partition, state in states if state.writes_pending
        ),
    )
