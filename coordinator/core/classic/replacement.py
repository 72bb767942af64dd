"""A replacement of a static member that waits for the log."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.classic.member import ClassicMember
from coordinator.core.values.requests import JoinGroup


@dataclass(slots=True, eq=False)
class Replacement:
    """JoinGroup of a restarted static member in a Stable group; it takes effect once durable.

    `successor` is the new process under its new member id. `deadline_ms` is the time-out of the
    write; None while it waits for an earlier replacement.
    """

    command: JoinGroup
    successor: ClassicMember
    deadline_ms: int | None = None

    @property
    def instance_id(self) -> str:
        """Instance id of the static member to replace."""
        assert self.command.instance_id is not None
        return self.command.instance_id
