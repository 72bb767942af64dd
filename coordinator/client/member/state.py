"""The name and the state of a member, as its owner and operator see them."""

from __future__ import annotations

from datetime import UTC, datetime


def member_name(group_id: str, *ids: str | None) -> str:
    """A member and its group as log lines begin with them, by the first id that there is."""
    who = next(filter(None, ids), "without an id yet")
    return f"member {who} of group {group_id}"


class MemberState(str):
    """One of connecting, joining, syncing, stable, revoking, idle, stopped; compares as a string.

    | state | meaning |
    |---|---|
    | connecting | looks for the group's coordinator, in order to join |
    | joining, syncing | takes part in a rebalance |
    | stable | has its assignment |
    | revoking | its owner is finishing partitions that go to other members |
    | idle | has left the group, since its owner made no progress; the next `poll` joins again |
    | stopped | was not started, has been closed, or was refused |
    """

    __slots__ = ("last_error", "since")

    since: datetime
    """Time at which the state was entered, in UTC."""
    last_error: str | None
    """Reason that the member is not stable, or that its calls are not answered now; None: there is
    none."""

    def __new__(cls, name: str, since_ms: int, last_error: str | None) -> MemberState:
        self = super().__new__(cls, name)
        self.since = datetime.fromtimestamp(since_ms / 1000, UTC)
        self.last_error = last_error
        return self

    def __repr__(self) -> str:
        failure = f", {self.last_error!r}" if self.last_error else ""
        return f"<{self} since {self.since:%H:%M:%S} UTC{failure}>"
