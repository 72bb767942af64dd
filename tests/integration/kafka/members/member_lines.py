"""Options, printed lines and orders of the members that are written in Python.

A member is started with one argument, a JSON object: `bootstrap`, `group`, `topics`, `client_id`,
`session_ms`, `rebalance_ms`, `assignor`, `instance` (or null), `more`. It prints a line for each
change of what it owns, `{"event": "owned", "partitions": [["rows", 0], …]}`, the whole each time,
and `{"event": "committed", "offsets": [["rows", 0, 10], …]}`. Standard input takes orders, a line
each: `commit` commits 10 + its number for every partition, `leave` leaves the group and ends.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

Partition = tuple[str, int]


def options() -> dict[str, Any]:
    """The argument of this program."""
    return json.loads(sys.argv[1])


def option(name: str) -> Any:  # Any: as JSON has it.
    """One of the options."""
    return options()[name]


class Ownership:
    """The partitions of this member; every change is printed."""

    def __init__(self) -> None:
        self._owned: set[Partition] = set()

    def add(self, partitions: Iterable[Partition]) -> None:
        self.replace(self._owned | set(partitions))

    def remove(self, partitions: Iterable[Partition]) -> None:
        self.replace(self._owned - set(partitions))

    def replace(self, partitions: Iterable[Partition]) -> None:
        self._owned = set(partitions)
        _print("owned", partitions=sorted(self._owned))

    def offsets(self) -> Iterator[tuple[Partition, int]]:
        """The offset that an order to commit stores for each partition."""
        for topic, partition in sorted(self._owned):
            yield (topic, partition), 10 + partition

    def committed(self) -> None:
        """Print what was stored."""
        _print("committed", offsets=[[*partition, offset] for partition, offset in self.offsets()])


class Orders:
    """Lines of standard input, read by a thread: `next` does not wait."""

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def next(self) -> str:
        """The next order; empty: there is none."""
        return "" if self._orders.empty() else self._orders.get()

    def again(self, order: str) -> None:
        """Give back an order that has to be tried again: a rebalance was under way."""
        self._orders.put(order)

    def wait(self, seconds: float) -> str:
        """The next order; empty: none came within that time."""
        try:
            return self._orders.get(timeout=seconds)
        except queue.Empty:
            return ""

    def _read(self) -> None:
        for line in sys.stdin:
            self._orders.put(line.strip())
        self._orders.put("leave")


def _print(event: str, **what: object) -> None:
    print(json.dumps({"event": event, **what}), flush=True)
