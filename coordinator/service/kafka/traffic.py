"""Connections and requests by the client's library, as plain counts that a collector reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from coordinator.kafka.apis import APIS

NAMES_MAX = 20
"""Libraries with series of their own: clients choose the name."""
OTHER, UNNAMED = "other", "unnamed"


class Ended(StrEnum):
    """Reason for which the node ended a connection."""

    TOO_MANY = "too_many"
    TOO_MANY_OF_ADDRESS = "too_many_of_address"
    NO_MEMORY = "no_memory"
    TOO_SLOW = "too_slow"
    IDLE = "idle"
    NOT_UNDERSTOOD = "not_understood"
    NOT_AUTHENTICATED = "not_authenticated"


class Tally:
    """Counts of one library. `requests`: by the API's key."""

    __slots__ = ("connections", "requests")

    def __init__(self) -> None:
        self.connections = 0
        self.requests = [0] * (max(APIS) + 1)


@dataclass(slots=True)
class Traffic:
    """Counts of a listener. `ended`: connections that the node ended, by reason."""

    ended: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(Ended, 0)))
    _tallies: dict[str, Tally] = field(default_factory=lambda: {UNNAMED: Tally()})

    def tally(self, software: str) -> Tally:
        """Return the counts of a library; beyond `NAMES_MAX` of them, those of all others."""
        known, software = self._tallies, software or UNNAMED
        if software not in known and len(known) > NAMES_MAX:
            software = OTHER
        return known.setdefault(software, Tally())

    def connections(self) -> dict[str, int]:
        """Open connections by library."""
        return {name: tally.connections for name, tally in list(self._tallies.items())}

    def requests(self) -> Mapping[tuple[str, str], int]:
        """Requests by API and library."""
        return {
            (api.name, name): tally.requests[api.key]
            for name, tally in list(self._tallies.items())
            for api in APIS.values()
            if tally.requests[api.key]
        }
