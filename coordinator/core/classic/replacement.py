"""A restarted static member's join that waits for the log."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.records import MemberRecord
from coordinator.core.requests import JoinGroup


@dataclass(slots=True, eq=False)
class Replacement:
    """A restarted static member's join, in a Stable group: what it asked for becomes true when the
    log has it, and until then the member is as it was.

    `member_id` is the new id. `deadline_ms` is when its time is over, once its record is on the
    way; None: it waits for its turn.
    """

    command: JoinGroup
    member_id: str
    deadline_ms: int | None = None

    @property
    def instance_id(self) -> str:
        """Of the member whose place is wanted."""
        assert self.command.instance_id is not None
        return self.command.instance_id

    def record(self, protocol_name: str | None, assignment: bytes) -> MemberRecord:
        """The process as the log is to know it."""
        command = self.command
        return MemberRecord(
            member_id=self.member_id,
            instance_id=command.instance_id,
            client_id=command.client_id,
            client_host=command.client_host,
            rebalance_timeout_ms=command.rebalance_timeout_ms,
            session_timeout_ms=command.session_timeout_ms,
            metadata=dict(command.protocols).get(protocol_name or "", b""),
            assignment=assignment,
        )
