"""The console: groups, owners, lag and the timelines of rebalances, on a page of the node's own.

It reads what any client may read, by gRPC from the node that serves it, and writes nothing.
"""

from coordinator.console.server import Console

__all__ = ["Console"]
