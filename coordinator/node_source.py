"""What stands for the addresses of nodes, and finds them when they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class NodeSource(Protocol):
    """Finds the nodes of a store, as `embedded` does. Its text stands for their addresses."""

    def find_node(self, timeout_s: float) -> tuple[str, str]:
        """HOST:PORT of a node, and the token that it asks for; empty: it has none of its own.

        Blocks, in any thread.

        Raises:
            CoordinatorError: there is none, and none can be run.
        """


Bootstrap = str | Sequence[str] | NodeSource
"""One or several HOST:PORT, or what finds the nodes."""
