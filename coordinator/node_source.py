"""A source of the addresses of nodes, which finds them when they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable


class FoundNode(NamedTuple):
    """A node that was found.

    address: HOST:PORT. token: that it asks for; empty: it has none of its own. is_insecure: the
    token may travel in plain text.
    """

    address: str
    token: str
    is_insecure: bool = False


@runtime_checkable
class NodeSource(Protocol):
    """Finds the nodes of a store, as `embedded` does. Its text stands for their addresses."""

    def find_node(self, timeout_s: float) -> FoundNode:
        """A node that serves. Blocks, in any thread.

        Raises:
            CoordinatorError: there is none, and none can be run.
        """


Bootstrap = str | Sequence[str] | NodeSource
"""One or several HOST:PORT, or what finds the nodes."""
