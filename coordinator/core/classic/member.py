"""A member of a group: its metadata, its assignment, and its parked calls."""

from __future__ import annotations

from dataclasses import KW_ONLY, InitVar, dataclass, field

from coordinator.core.values.ids import NO_TIME, CallId
from coordinator.core.values.records import MemberRecord
from coordinator.core.values.requests import JoinGroup

Protocols = tuple[tuple[str, bytes], ...]

BEATS_A_SESSION = 3
"""Heartbeats in a session timeout, at least, as Kafka advises for `heartbeat.interval.ms`."""
LATENESS = 4
"""A member whose heartbeat is late by a quarter of its interval is taken to be dead or paused."""
SILENCE_MIN_MS = 3_000
"""A member whose heartbeat is later than this was silent, which is an event of its own."""


@dataclass(slots=True, eq=False)
class ClassicMember:
    """A member of a group. `protocols` holds (name, metadata) in its order of preference.

    Times of signs of life, epoch milliseconds: `last_call_ms` of calls other than heartbeats and of
    their answers; `last_beat_ms` of the last heartbeat, or of the answer to SyncGroup, from which
    clients count their first one; `beat_before_ms` of the one before, since that SyncGroup.
    `interval_ms` is the longest time between heartbeats of earlier generations. -1: unknown.
    `excused_ms` is no sign of life: the session of a member that cannot have called counts from it.
    """

    member_id: str
    _: KW_ONLY
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    now_ms: InitVar[int]
    last_call_ms: int = field(init=False)
    last_beat_ms: int = NO_TIME
    beat_before_ms: int = NO_TIME
    interval_ms: int = NO_TIME
    excused_ms: int = NO_TIME
    client_software: str = ""
    # Signs of life after an outage that have an event: the first, and the second heartbeat.
    unseen_signs: int = 0
    assignment: bytes = b""
    parked_join: CallId | None = None
    parked_sync: CallId | None = None
    is_new: bool = True  # Until the join phase it entered completes.

    def __post_init__(self, now_ms: int) -> None:
        self.last_call_ms = now_ms

    @classmethod
    def joining(cls, command: JoinGroup, member_id: str, now_ms: int) -> ClassicMember:
        """Create the member that a JoinGroup describes."""
        return cls(
            member_id,
            instance_id=command.instance_id,
            client_id=command.client_id,
            client_host=command.client_host,
            client_software=command.client_software,
            rebalance_timeout_ms=command.rebalance_timeout_ms,
            session_timeout_ms=command.session_timeout_ms,
            protocols=command.protocols,
            now_ms=now_ms,
        )

    @property
    def is_static(self) -> bool:
        """True if the member has an instance id (KIP-345)."""
        return self.instance_id is not None

    @property
    def last_seen_ms(self) -> int:
        """Time of its last sign of life."""
        return max(self.last_beat_ms, self.last_call_ms)

    @property
    def session_began_ms(self) -> int:
        """Time from which its session counts."""
        return max(self.last_seen_ms, self.excused_ms)

    def beat(self, now_ms: int) -> None:
        """Note a heartbeat. `liveness.beat`, the fast path, looks at two heartbeats only."""
        self.interval_ms = self._measured_ms()
        self.beat_before_ms = self.last_beat_ms
        self.last_beat_ms = now_ms

    def begin_to_beat(self, now_ms: int) -> None:
        """Note that its JoinGroup or SyncGroup is answered: a heartbeat follows an interval later.

        Members may send none while their JoinGroup waits: that is no interval.
        """
        self.interval_ms = self._measured_ms()
        self.beat_before_ms = NO_TIME
        self.last_beat_ms = now_ms
        self.unseen_signs = 0

    def last_sign(self) -> tuple[int, int, int]:
        """Last sign of life, as events have it: last seen, due, interval; see `MemberEvicted`."""
        measured_ms = self._measured_ms()
        interval_ms = measured_ms if measured_ms > 0 else self.session_timeout_ms // BEATS_A_SESSION
        seen_ms = self.last_seen_ms
        since_ms = self.excused_ms if seen_ms == NO_TIME else seen_ms
        due_ms = self.last_beat_ms + interval_ms
        if due_ms < since_ms or self.last_beat_ms == NO_TIME:
            due_ms = since_ms + interval_ms
        return seen_ms, due_ms, measured_ms if measured_ms > 0 else NO_TIME

    def is_silent(self, now_ms: int) -> bool:
        """True if its heartbeat is late by a quarter of its interval, and no call of it waits."""
        if self.parked_join is not None or self.parked_sync is not None:
            return False
        seen_ms, due_ms, _ = self.last_sign()
        since_ms = self.excused_ms if seen_ms == NO_TIME else seen_ms
        return due_ms + (due_ms - since_ms) // LATENESS < now_ms

    def is_back_late(self, now_ms: int) -> bool:
        """True if its sign of life now is so late that it counts as having been silent."""
        if self.parked_join is not None or self.parked_sync is not None:
            return False
        seen_ms, due_ms, _ = self.last_sign()
        return seen_ms != NO_TIME and now_ms - due_ms >= SILENCE_MIN_MS

    def _measured_ms(self) -> int:
        if self.beat_before_ms == NO_TIME:
            return self.interval_ms
        return max(self.interval_ms, self.last_beat_ms - self.beat_before_ms)

    def metadata_for(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for a protocol; empty if it does not list it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def record(self, protocol_name: str | None, assignment: bytes) -> MemberRecord:
        """Return the member's part of a `GroupMetadata` record."""
        return MemberRecord(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            metadata=self.metadata_for(protocol_name),
            assignment=assignment,
            client_software=self.client_software,
        )
