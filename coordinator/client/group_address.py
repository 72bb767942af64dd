"""Address of a group, for those that ask its coordinator beside a member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from coordinator.dial import Credentials


class GroupAddress(NamedTuple):
    """Address of a group.

    Args:
        bootstrap: addresses to ask for its coordinator, HOST:PORT, or several.
        credentials: None: those of the environment.
    """

    bootstrap: str | Sequence[str]
    group_id: str
    credentials: Credentials | None = None
