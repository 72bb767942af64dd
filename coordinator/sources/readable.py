"""`GroupReadable`: base class of the sources that a worker can read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coordinator.client.group_address import GroupAddress
    from coordinator.sources.base import Source
    from coordinator.sources.group.rows import GroupRows


class GroupReadable:
    """A source that `Worker(source=...)` takes. One of your own derives from it."""

    def of_group(self: Source, address: GroupAddress) -> GroupRows:
        """The source as one group reads it; called by the worker."""
        from coordinator.sources.group.rows import GroupRows  # With gRPC and the client.

        return GroupRows(self, address)
