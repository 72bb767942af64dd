"""Topics of a worker: a mapping, or a function that is asked again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from coordinator.client.validation import topics_of
from coordinator.client.worker.policy import check_number
from coordinator.client.worker.user_calls import UserCalls

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

    async def ask(self, calls: UserCalls) -> dict[str, int]:
        """The topics as they are now. Raises what the function raises, and as `checked`."""
        if self._ask is not None:
            self.known = checked(await calls.ask(self._ask))
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
