"""Words for people: times, durations, members, numbers of things, ranges of partitions.

Names come from clients, so every one is made printable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Protocol

from coordinator.assignors.partitions import spelled_ranges
from coordinator.printable import WITH_UUID, printable, short_id

RANGES_NAMED = 8


class _Range(Protocol):
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...


def spell(ms: int) -> str:
    """A duration for people: 12 ms, 4.1 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1_000:.1f} s"
    minutes, hours = ms // 60_000, ms // 3_600_000
    if hours < 1:
        return f"{minutes} min {ms % 60_000 // 1_000} s"
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def spell_between(shortest_ms: int, longest_ms: int) -> str:
    """A duration that is known to lie between two; -1: it has no upper bound."""
    if longest_ms < 0 and not shortest_ms:
        return "an unknown time"
    if longest_ms < 0:
        return f"at least {spell(shortest_ms)}"
    if spell(shortest_ms) == spell(longest_ms):
        return spell(longest_ms)
    return f"between {spell(shortest_ms)} and {spell(longest_ms)}"


def time_of_day(at_ms: int) -> str:
    """A time with milliseconds: 12:00:01.250 UTC."""
    at = datetime.fromtimestamp(at_ms / 1_000, UTC)
    return f"{at:%H:%M:%S}.{at_ms % 1_000:03d} UTC"


def name_of(member_id: str, client_id: str, client_host: str = "", software: str = "") -> str:
    """The client id, else a short form of the member id; with the client's software and host."""
    name = printable(client_id or short_id(member_id) or "an unknown member")
    where = ", ".join(
        printable(given_name)
        for given_name in (software, client_host.removeprefix("/"))
        if given_name
    )
    return f"{name} ({where})" if where else name


def member_of(member_id: str) -> str:
    """Name or client id that a session member's id begins with, and the end of the id: 'w-a' …3f2c.

    A name may be that of two processes after each other. Without a UUID: the id, quoted.
    """
    match = WITH_UUID.fullmatch(member_id)
    name = match["name"] if match else member_id
    return f"{quoted(name)} …{member_id[-4:]}" if match and name else quoted(short_id(member_id))


def quoted(text: str) -> str:
    """A name in quotation marks."""
    return f"'{printable(text)}'"


def count_of(number: int, noun: str) -> str:
    """1 member, 2 members."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(names: Iterable[str], most: int) -> str:
    """The first names, equal ones once: one, 3 × two and 58 more."""
    counts = Counter(names)
    shown = [name if n == 1 else f"{n} × {name}" for name, n in list(counts.items())[:most]]
    left = sum(list(counts.values())[most:])
    return f"{', '.join(shown)}{f' and {left} more' if left else ''}"


def partitions_of(topic: str, ranges: Iterable[_Range], count: int) -> str:
    """Partitions of a topic: orders-0…3,5."""
    named = [(some.first, some.last) for some in list(ranges)[:RANGES_NAMED]]
    left = count - sum(last - first + 1 for first, last in named)
    return f"{spelled_ranges(printable(topic), named)}{f' and {left} more' if left > 0 else ''}"
