"""A restarted static member's join that waits for the log."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.classic.member import Member
from coordinator.core.requests import JoinGroup


@dataclass(slots=True, eq=False)
class Replacement:
    """A restarted static member's join, in a Stable group: what it asked for becomes true when the
    log has it, and until then the member is as it was.

    `successor` is the process under its new id. `deadline_ms` is when its time is over, once its
    record is on the way; None: it waits for its turn.
    """

    command: JoinGroup
    successor: Member
    deadline_ms: int | None = None

    @property
    def instance_id(self) -> str:
        """The instance id whose place is wanted."""
        assert self.command.instance_id is not None
        return self.command.instance_id
