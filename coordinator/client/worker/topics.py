"""Topics of a worker: a mapping, or a function that is asked again."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from coordinator.client.worker.handlers import is_coroutine_function

if TYPE_CHECKING:
    from coordinator.client.worker.body import Body

TopicCounts = Mapping[str, int]
TopicsFunction = Callable[[], TopicCounts | Awaitable[TopicCounts]]


class Topics:
    """Topic to number of partitions.

    Args:
        given: the mapping, or a function that returns it. An `async def` function is awaited on the
            protocol's loop and must not block it; another one is called in a thread.
        refresh_ms: time between two calls of the function.
    """

    def __init__(self, given: TopicCounts | TopicsFunction, refresh_ms: int) -> None:
        self.refresh_ms = refresh_ms
        self.known: dict[str, int] = {}
        self._ask: TopicsFunction | None = None
        if callable(given):
            self._ask = given
        else:
            self.known = checked(given)

    @property
    def is_asked_again(self) -> bool:
        """True if it is a function."""
        return self._ask is not None

    async def ask(self, body: Body) -> dict[str, int]:
        """The topics as they are now. Raises what the function raises, and as `checked`."""
        if self._ask is not None:
            if is_coroutine_function(self._ask):
                found = self._ask()
            else:
                found = await body.in_thread(self._ask)
            self.known = checked(await found if inspect.isawaitable(found) else found)
        return self.known


def checked(topics: object) -> dict[str, int]:
    """Topics as a dictionary.

    Raises:
        TypeError, ValueError: it is no mapping of names to numbers of partitions.
    """
    form = 'topics is a mapping of names to numbers of partitions: topics={"invoices": 12}'
    if not isinstance(topics, Mapping):
        raise TypeError(f"{form}; this is {topics!r}")
    for name, count in topics.items():
        if not isinstance(name, str) or isinstance(count, bool) or not isinstance(count, int):
            raise TypeError(f"{form}; this has {name!r}: {count!r}")
        if not name or count < 1:
            raise ValueError(f"{form}; this has {name!r}: {count!r}")
    if not topics:
        raise ValueError(f"{form}; this is empty")
    return dict(topics)
