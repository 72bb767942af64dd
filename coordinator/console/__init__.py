"""Web console of a node: groups, owners, lag and timelines of rebalances.

It reads by gRPC from its own node, as any client may, and writes nothing.
"""

from coordinator.console.server import Console

__all__ = ["Console"]
