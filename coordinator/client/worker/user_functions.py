"""Functions that a worker was given beside its handlers: `topics`, `start`, `log_ends`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Literal, TypeVar

from coordinator.assignors import TopicPartition
from coordinator.client.log_ends import LogEnds
from coordinator.client.offsets import OffsetAndMetadata
from coordinator.client.validation import log_ends_returned, offset_returned, topics_of
from coordinator.client.worker.environment import Environment
from coordinator.client.worker.handlers import check_number, is_coroutine_function
from coordinator.client.worker.held_partition import HeldPartition

TOPICS_REFRESH_MS = 10_000
"""Time between two counts of partitions, unless another one is set."""
TopicCounts = Mapping[str, int]
TopicsFunction = Callable[[], TopicCounts | Awaitable[TopicCounts]]


class WorkerTopics:
    """Topic to number of partitions.

    Args:
        topics: the mapping, or a function that returns it. An `async def` function is awaited on
            the protocol's loop and must not block it; another one is called in a thread.
        refresh_ms: time between two calls of the function.
    """

    def __init__(self, topics: TopicCounts | TopicsFunction, refresh_ms: int) -> None:
        self.refresh_ms = refresh_ms
        self.known: dict[str, int] = {}
        self.first: dict[str, int] = {}
        """Topics when the worker was started."""
        self._ask: TopicsFunction | None = None
        if callable(topics):
            self._ask = topics
        else:
            self.known = checked(topics)
            for name, count in self.known.items():
                if not count:
                    raise ValueError(
                        f"topics has {name!r}: 0, so there is nothing to do; where the number "
                        "grows, give a function that returns it, topics=count_partitions"
                    )
        check_number("topics_refresh_ms", refresh_ms, 1)

    @property
    def is_asked_again(self) -> bool:
        """True if it is a function."""
        return self._ask is not None

    async def request(self, calls: UserCalls) -> dict[str, int]:
        """The topics as they are now. Raises what the function raises, and as `checked`."""
        if self._ask is not None:
            self.known = checked(await calls.request(self._ask))
        return self.known


def checked(topics: object) -> dict[str, int]:
    """Topics as a dictionary.

    Raises:
        TypeError, ValueError: it is no mapping of names to numbers of partitions.
    """
    counts = topics_of(topics)
    if not counts:
        raise ValueError("topics is empty; write the number of partitions: topics={'invoices': 12}")
    return counts


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
        committed: Mapping[HeldPartition, OffsetAndMetadata],
    ) -> dict[HeldPartition, int]:
        """Position of each partition, given its committed offset; -1: none is stored.

        Args:
            first: topics and numbers of partitions when the worker was started.
        """
        begins = {held: commit.offset for held, commit in committed.items() if commit.offset >= 0}
        new = {held.key: held for held in committed if held not in begins}
        if not new:
            return begins
        if callable(self._start):
            for key, held in new.items():
                answer = await calls.request(self._start, key)
                begins[held] = offset_returned(f"start for {key}", answer)
            return begins
        is_latest = self._start == "latest"
        old = {key for key in new if is_latest and key.partition < first.get(key.topic, 0)}
        ends = await _offsets_from(calls, "log_ends", self._log_ends, old)
        ends |= await _offsets_from(calls, "begin_offsets", self._begin_offsets, new.keys() - old)
        return begins | {held: ends[key] for key, held in new.items()}


async def _offsets_from(
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


T = TypeVar("T")


class UserCalls:
    """Calls from the protocol's loop, which no function may block."""

    def __init__(self, environment: Environment, loop: asyncio.AbstractEventLoop) -> None:
        self._environment, self._loop = environment, loop

    async def request(self, function: Callable[..., T | Awaitable[T]], *args: Any) -> T:
        """Call a user's function, which may be `async def`; any other is called in a thread."""
        if is_coroutine_function(function):
            result = function(*args)
        else:
            result = await self.in_thread(function, *args)
        return await result if inspect.isawaitable(result) else result

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function in a thread that does not keep the interpreter from exiting."""
        future: asyncio.Future[T] = self._loop.create_future()

        def work() -> None:
            try:
                settle, outcome = future.set_result, function(*args)
            except BaseException as error:  # noqa: BLE001  # Its caller hears of it.
                settle, outcome = future.set_exception, error  # type: ignore[assignment]
            self._environment.post(lambda: future.done() or settle(outcome))

        self._environment.start_thread(work, f"worker-{getattr(function, '__name__', 'call')}")
        return await future
