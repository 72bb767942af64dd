"""The name of a member in messages."""

from __future__ import annotations


def member_name(group_id: str, *ids: str | None) -> str:
    """A member and its group as log lines begin with them, by the first id that there is."""
    who = next(filter(None, ids), "without an id yet")
    return f"member {who} of group {group_id}"
