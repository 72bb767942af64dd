"""A member of a group: its metadata, its assignment, and its parked calls."""

from __future__ import annotations

from dataclasses import KW_ONLY, InitVar, dataclass, field

from coordinator.core.ids import CallId
from coordinator.core.records import MemberRecord
from coordinator.core.requests import JoinGroup

Protocols = tuple[tuple[str, bytes], ...]


@dataclass(slots=True, eq=False)
class Member:
    """A member of a group. `protocols` holds (name, metadata) in its order of preference."""

    member_id: str
    _: KW_ONLY
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    now_ms: InitVar[int]
    last_heard_ms: int = field(init=False)
    assignment: bytes = b""
    parked_join: CallId | None = None
    parked_sync: CallId | None = None
    is_new: bool = True  # Until the join phase it entered completes.

    def __post_init__(self, now_ms: int) -> None:
        self.last_heard_ms = now_ms

    @classmethod
    def joining(cls, command: JoinGroup, member_id: str, now_ms: int) -> Member:
        """Create the member that a JoinGroup describes."""
        return cls(
            member_id,
            instance_id=command.instance_id,
            client_id=command.client_id,
            client_host=command.client_host,
            rebalance_timeout_ms=command.rebalance_timeout_ms,
            session_timeout_ms=command.session_timeout_ms,
            protocols=command.protocols,
            now_ms=now_ms,
        )

    @property
    def is_static(self) -> bool:
        """True if the member has an instance id (KIP-345)."""
        return self.instance_id is not None

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
        )
