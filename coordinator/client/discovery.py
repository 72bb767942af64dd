"""Discovery: who coordinates the group, asked of one bootstrap address after the other."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.client.calls import Broken, Failure, FindCoordinator, Found, Result


class Discovery:
    """The connection to the group's coordinator, as a number that rises with each one found.

    Args:
        addresses: HOST:PORT each. One that fails is asked last from then on: it may hang for as
            long as anybody waits.
    """

    def __init__(self, group_id: str, addresses: Iterable[str]) -> None:
        self._group_id = group_id
        self.addresses = list(addresses)
        assert self.addresses, "there is no bootstrap address"
        self._failed = 0
        self.connection = 0
        self.is_connected = False
        self.is_looking = False

    def look(self) -> FindCoordinator:
        """Ask the next address."""
        self.is_looking = True
        return FindCoordinator(self._group_id, self.addresses[0])

    def handle(self, result: Result) -> Failure | None:
        """What came of it. A failure is returned once every address has failed."""
        self.is_looking = False
        if isinstance(result, Found):
            self.connection += 1
            self.is_connected = True
            self._failed = 0
            return None
        assert isinstance(result, Failure), "only FindCoordinator is asked of an address"
        if not isinstance(result, Broken):
            self.addresses.append(self.addresses.pop(0))
            self._failed += 1
            if self._failed < len(self.addresses):
                return None
        self._failed = 0
        return result
