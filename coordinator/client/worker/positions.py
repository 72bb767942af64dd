"""Positions of partitions without a committed offset: the `start` policy of a worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Literal

from coordinator.assignors import TopicPartition
from coordinator.client.log_ends import LogEnds
from coordinator.client.offsets import OffsetAndMetadata
from coordinator.client.validation import log_ends_returned, offset_returned
from coordinator.client.worker.scope import Scope
from coordinator.client.worker.user_calls import UserCalls

BeginOffsets = Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]]
"""Function that returns the first offset of each of the partitions; called in a thread."""
StartRule = Literal["earliest", "latest"] | Callable[[TopicPartition], int | Awaitable[int]]


class StartPolicy:
    """Positions of partitions without a committed offset.

    Args:
        start: `earliest`: 0, or what `begin_offsets` says. `latest`: what `log_ends` says, but the
            earliest for partitions that appeared while the worker ran, all of whose rows are new.
            A function: what it returns, asked for each partition, in a thread if it is no
            coroutine.
    Raises:
        ValueError: `latest` without `log_ends`, or another text. TypeError: `begin_offsets` is no
            function.
    """

    def __init__(
        self, start: StartRule, begin_offsets: BeginOffsets | None, log_ends: LogEnds | None
    ) -> None:
        forms = 'start is "earliest", "latest", or a function of a TopicPartition'
        if start == "latest" and log_ends is None:
            raise ValueError(
                'start="latest" begins where the log ends: give log_ends=, a function that returns '
                "the log end offset of each partition"
            )
        if start not in ("earliest", "latest") and not callable(start):
            raise ValueError(f"{forms}; this is {start!r}")
        if begin_offsets is not None and not callable(begin_offsets):
            raise TypeError(
                f"begin_offsets is {begin_offsets!r}; it is a function that returns the first "
                "offset of each of the partitions it is given"
            )
        self._start = start
        self._begin_offsets, self._log_ends = begin_offsets, log_ends

    async def begins(
        self,
        calls: UserCalls,
        first: Mapping[str, int],
        committed: Mapping[Scope, OffsetAndMetadata],
    ) -> dict[Scope, int]:
        """Position of each scope, given its committed offset; -1: none is stored.

        Args:
            first: topics and numbers of partitions when the worker was started.
        """
        begins = {scope: commit.offset for scope, commit in committed.items() if commit.offset >= 0}
        new = {scope.key: scope for scope in committed if scope not in begins}
        if not new:
            return begins
        if callable(self._start):
            for key, scope in new.items():
                answer = await calls.ask(self._start, key)
                begins[scope] = offset_returned(f"start for {key}", answer)
            return begins
        is_latest = self._start == "latest"
        old = {key for key in new if is_latest and key.partition < first.get(key.topic, 0)}
        ends = await _asked(calls, "log_ends", self._log_ends, old)
        ends |= await _asked(calls, "begin_offsets", self._begin_offsets, new.keys() - old)
        return begins | {scope: ends[key] for key, scope in new.items()}


async def _asked(
    calls: UserCalls, name: str, ask: LogEnds | None, keys: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Offsets that a function returns for partitions; 0 without a function."""
    if ask is None or not keys:
        return dict.fromkeys(keys, 0)
    logs = log_ends_returned(name, await calls.in_thread(ask, frozenset(keys)))
    ends = {key: log.stop for key, log in logs.items()}
    for key in keys:
        if key not in ends:
            raise ValueError(f"{name} returned no offset of {key}")
    return ends
