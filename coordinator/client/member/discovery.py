"""Discovery: asks one bootstrap address after the other for the group's coordinator."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.client.member.calls import BrokenCall, Failure, FindCoordinator, Found, Result


class Discovery:
    """State of the discovery. `connection` numbers the connections; each coordinator found adds 1.

    Args:
        addresses: HOST:PORT each. One that fails becomes the last to be asked: it may hang until
            the timeout.
    """

    def __init__(self, group_id: str, addresses: Iterable[str]) -> None:
        self._group_id = group_id
        self.addresses = list(addresses)
        assert self.addresses, "there is no bootstrap address"
        self._failed = 0
        self._hint = ""
        self.connection = 0
        self.is_connected = False
        self.is_looking = False

    def prefer(self, address: str) -> None:
        """Ask an address first, once: the last coordinator has named it. Empty: none."""
        self._hint = address

    def next_search(self) -> FindCoordinator:
        """Request to the next address."""
        self.is_looking = True
        return FindCoordinator(self._group_id, self._hint or self.addresses[0])

    def handle(self, result: Result) -> Failure | None:
        """Take in the result of a request; returns a failure once every address has failed."""
        self.is_looking = False
        hint, self._hint = self._hint, ""
        if isinstance(result, Found):
            self.connection += 1
            self.is_connected = True
            self._failed = 0
            return None
        assert isinstance(result, Failure), "only FindCoordinator is asked of an address"
        if hint:
            return None
        if not isinstance(result, BrokenCall):
            self.addresses.append(self.addresses.pop(0))
            self._failed += 1
            if self._failed < len(self.addresses):
                return None
        self._failed = 0
        return result
