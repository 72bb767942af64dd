"""A stream of messages both ways, as its handler sees it.

Handlers of such streams are coroutines that read and write. As generators, which gRPC offers too,
each stream would keep several of them, and each message would pass through all.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

In_co = TypeVar("In_co", covariant=True)
Out_contra = TypeVar("Out_contra", contravariant=True)


class Conversation(Protocol[In_co, Out_contra]):
    """One stream. At most one task reads at a time, and at most one writes."""

    async def read(self) -> In_co | None:
        """Return the next message that the pipeline admits; None: the client closed its side.

        Raises:
            CallRefused: the message is refused, and the stream has to end.
        """

    async def write(self, message: Out_contra) -> None:
        """Write a message. Waits while the client does not read."""
