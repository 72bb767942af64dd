"""`BlockingMember`: a `GroupMember` for code that does not use asyncio.

The members of a process live on an event loop in a thread of its own, so that they beat while
their owners work, and beat together. Nothing happens at import or construction: the thread, the
loop and the connections are made by `start`, in the process that calls it, which makes it sound
in forked worker processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeVar

from coordinator.assignors import TopicPartition
from coordinator.client.events import RebalanceEvent
from coordinator.client.loop_thread import LoopThread
from coordinator.client.offsets import Offsets
from coordinator.client.session import GroupMember

T = TypeVar("T")


class BlockingMember:
    """The same as `GroupMember`, method by method, for one calling thread.

    Raises:
        RuntimeError: a method is called before `start` or after `close`.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        group_id: str,
        topics: Mapping[str, int],
        **settings: Any,  # Any: the settings of GroupMember.
    ) -> None:
        self._make: Callable[[], GroupMember] = lambda: GroupMember(
            bootstrap, group_id, topics, **settings
        )
        self._member: GroupMember | None = None
        self._on: LoopThread | None = None

    def start(self) -> None:
        """Begin to join, in the background."""
        if self._on is not None:
            return
        self._on = LoopThread.use()
        self._member = self._call(self._build())
        self._call(self._member.start())

    def close(self, reason: str = "closed", *, leave: bool | None = None) -> None:
        """Stop, and leave the group (a static member keeps its place)."""
        if self._on is None or self._member is None:
            return
        try:
            self._call(self._member.close(reason, leave=leave))
        finally:
            self._on.release()
            self._on = None

    def __enter__(self) -> BlockingMember:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close("closed" if error is None else f"failed: {error}")

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions this member may work on now."""
        return self._started.assignment

    @property
    def generation(self) -> int:
        """The group's generation as far as the member knows; -1: none."""
        return self._started.generation

    @property
    def member_id(self) -> str:
        """The id the coordinator gave; empty: none."""
        return self._started.member_id

    @property
    def is_leader(self) -> bool:
        """True if this member computed the assignment of its generation."""
        return self._started.is_leader

    def poll(self, timeout: float = 0.0) -> list[RebalanceEvent]:
        """See `GroupMember.poll`."""
        return self._call(self._started.poll(timeout))

    def commit(
        self,
        offsets: Offsets,
        *,
        atomic: bool = False,
        expected: Mapping[TopicPartition, int] | None = None,
        manifest: bytes = b"",
    ) -> None:
        """See `GroupMember.commit`."""
        self._call(
            self._started.commit(offsets, atomic=atomic, expected=expected, manifest=manifest)
        )

    def committed(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """See `GroupMember.committed`."""
        return self._call(self._started.committed(partitions))

    @property
    def _started(self) -> GroupMember:
        if self._member is None:
            raise RuntimeError("the member has not been started")
        return self._member

    async def _build(self) -> GroupMember:
        return self._make()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if self._on is None:
            work.close()
            raise RuntimeError("the member is closed, or was never started")
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._on.loop)
        return future.result()
