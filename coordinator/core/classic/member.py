"""A member of a group: what it said of itself, what it holds, and which calls of it are parked."""

from __future__ import annotations

from coordinator.core.ids import CallId
from coordinator.core.records import MemberRecord

Protocols = tuple[tuple[str, bytes], ...]


class Member:
    """A member of a group. `protocols` is its ordered list of (name, metadata)."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "last_heard_ms",
        "member_id",
        "parked_join",
        "parked_sync",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        *,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        now_ms: int,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = b""
        self.parked_join: CallId | None = None
        self.parked_sync: CallId | None = None
        self.is_new = True  # Until the join phase it entered completes.
        self.last_heard_ms = now_ms

    @property
    def is_static(self) -> bool:
        """True if a restart takes the same place in the group."""
        return self.instance_id is not None

    def metadata_for(self, protocol_name: str | None) -> bytes:
        """The member's metadata for a protocol; empty if it does not list it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def record(self, protocol_name: str | None, assignment: bytes) -> MemberRecord:
        """The member as it is written to the log."""
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
