"""The delayed operations of a shard.

Operations change nothing themselves. Each asks the core whether its condition is true, and posts
a command when it completes; the same step handles that command before the next input, so nothing
is re-entered.

Source: Kafka `DelayedJoin`, `InitialDelayedJoin`, `DelayedSync`, `DelayedHeartbeat`,
`DelayedProduce`, `DelayedFetch`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from coordinator.core.classic import rebalance
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.commands import (
    Command,
    CompleteJoinPhase,
    InitialDelayElapsed,
    SessionExpired,
    SyncPhaseExpired,
)
from coordinator.core.errors import ErrorCode
from coordinator.core.group import GroupState
from coordinator.core.machine import GroupMachine
from coordinator.core.outcome import DeferInitialJoin, DeferJoin, DeferSync, Write
from coordinator.core.written import ReplacementOverdue, Resume
from coordinator.shard.followers import FetchEntries
from coordinator.shard.waits import Wait, Waits
from timer.operation import DelayedOperation


class OperationContext:
    """The machine that operations ask, and the queue that they post to.

    Args:
        post: puts a command on the shard's inner queue.
    """

    __slots__ = ("machine", "post")

    def __init__(self, machine: GroupMachine, post: Callable[[Command], None]) -> None:
        self.machine = machine
        self.post = post


class _DelayedPhaseEnd(Wait):
    __slots__ = ("_context", "_defer")

    def __init__(
        self, defer: DeferJoin | DeferSync, context: OperationContext, waits: Waits
    ) -> None:
        super().__init__(waits)
        self._defer = defer
        self._context = context


class DelayedJoin(_DelayedPhaseEnd):
    """End of an ordinary join phase: all members have joined, or its time-out."""

    __slots__ = ()

    def try_complete(self) -> bool:
        group = self._context.machine.groups.get(self._defer.group_id)
        if self._is_moot(group) or (group and rebalance.join_phase_is_complete(group)):
            return self.force_complete()
        return False

    def on_complete(self) -> None:
        self._context.post(CompleteJoinPhase(self._defer.group_id, self._defer.generation))

    def _is_moot(self, group: ClassicGroup | None) -> bool:
        return (
            group is None
            or group.state is not GroupState.PREPARING_REBALANCE
            or group.generation != self._defer.generation
        )


class InitialDelayedJoin(DelayedOperation):
    """End of a slice of the initial delay: by time only, so its wait is not counted."""

    __slots__ = ("_context", "_defer")

    def __init__(self, defer: DeferInitialJoin, context: OperationContext) -> None:
        super().__init__()
        self._defer = defer
        self._context = context

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        defer = self._defer
        self._context.post(
            InitialDelayElapsed(
                defer.group_id, defer.generation, defer.delay_ms, defer.remaining_ms
            )
        )


class DelayedSync(_DelayedPhaseEnd):
    """End of a sync phase: silent if all have synced; on expiry the other members are removed."""

    __slots__ = ()

    def try_complete(self) -> bool:
        group = self._context.machine.groups.get(self._defer.group_id)
        if rebalance.sync_phase_is_complete(group, self._defer.generation):
            return self.force_complete()
        return False

    def on_complete(self) -> None:
        pass  # All members have synced: nothing follows.

    def on_expiration(self) -> None:
        super().on_expiration()
        self._context.post(SyncPhaseExpired(self._defer.group_id, self._defer.generation))


class DelayedHeartbeat(DelayedOperation):
    """Session deadline of a member; heartbeats move it.

    Moving it to a later time is the hot path: the timer only stores the new deadline. There is one
    for every member, so it has few fields.
    """

    __slots__ = ("_context", "_group_id", "_member_id")

    def __init__(self, group_id: str, member_id: str, context: OperationContext) -> None:
        super().__init__()
        self._group_id = group_id
        self._member_id = member_id
        self._context = context

    def try_complete(self) -> bool:
        """Checked when a member may have left; heartbeats move the deadline instead."""
        group = self._context.machine.groups.get(self._group_id)
        member_id = self._member_id
        if group is None or not (
            member_id in group.members or member_id in group.pending_member_ids
        ):
            return self.force_complete()
        return False

    def on_complete(self) -> None:
        pass  # The member has left: nothing follows.

    def on_expiration(self) -> None:
        self._context.post(SessionExpired(self._group_id, self._member_id, self.deadline_ms))


class DelayedProduce(Wait):
    """Holds a follow-up back until the records before it are durable, or refused.

    `required_offset` is the end of the entry that carries them, once it is formed.
    A time-out does not decide whether the records are written: their append goes on, unless
    `on_time_out` removes them from the queue.
    """

    __slots__ = (
        "_are_enough",
        "_high_watermark",
        "_on_time_out",
        "_post",
        "_settled",
        "_then",
        "error",
        "is_carrier",
        "records",
        "required_offset",
    )

    def __init__(
        self,
        write: Write,
        high_watermark: Callable[[], int],
        are_enough: Callable[[], bool],
        post: Callable[[Command], None],
        on_time_out: Callable[[DelayedProduce], None],
        waits: Waits,
    ) -> None:
        super().__init__(waits)
        self.records = write.records
        self.is_carrier = bool(write.records)
        self.required_offset: int | None = None
        self._then = write.then
        self._settled = write.settled
        # Error on a time-out; replaced by the result of the append.
        self.error = (
            ErrorCode.NOT_COORDINATOR
            if isinstance(write.then, Resume)
            else ErrorCode.COORDINATOR_NOT_AVAILABLE
        )
        self._high_watermark = high_watermark
        self._are_enough = are_enough
        self._post = post
        self._on_time_out = on_time_out

    @property
    def _only_waits(self) -> bool:
        """True if it waits for the end of earlier appends, whatever their results."""
        return isinstance(self._then, Resume | ReplacementOverdue)

    def try_complete(self) -> bool:
        if self.is_completed or self.required_offset is None:
            return False
        if self.required_offset > self._high_watermark():
            return False
        if self._are_enough() or self._only_waits:
            self.error = ErrorCode.NONE  # Else it is stored, on fewer nodes than `min_in_sync`.
        return self.force_complete()

    def fail(self, error: ErrorCode, *, is_final: bool = False) -> None:
        """Complete with `error`, because the append failed; no effect after a time-out.

        Args:
            is_final: the shard is given up, so that `error` also goes to operations that only wait.
        """
        if not self.is_completed:
            self.error = ErrorCode.NONE if self._only_waits and not is_final else error
            self.force_complete()

    def settle(self, error: ErrorCode) -> None:
        """Post the `settled` follow-up with the result of the append.

        With NONE the records are durable. It may come after a time-out, and before the nodes in
        sync have the records.
        """
        settled, self._settled = self._settled, None
        if settled is not None:
            self._post(replace(settled, error=error))

    def run(self) -> None:
        if not self.is_completed:
            self._on_time_out(self)
        super().run()

    def on_complete(self) -> None:
        self._post(replace(self._then, error=self.error))


class DelayedFetch(Wait):
    """A parked fetch of a follower: waits for `min_bytes` or the end of its time.

    Args:
        need_not_wait: `Tail.need_not_wait`.
        answer: queues the fetch for an answer in this step.
    """

    __slots__ = ("_answer", "_need_not_wait", "fetch")

    def __init__(
        self,
        fetch: FetchEntries,
        need_not_wait: Callable[[int, int], bool],
        answer: Callable[[FetchEntries], None],
        waits: Waits,
    ) -> None:
        super().__init__(waits)
        self.fetch = fetch
        self._need_not_wait = need_not_wait
        self._answer = answer

    def try_complete(self) -> bool:
        if self._need_not_wait(self.fetch.offset, self.fetch.min_bytes):
            return self.force_complete()
        return False

    def on_complete(self) -> None:
        self._answer(self.fetch)
