"""Those who wait for an answer of a shard: clients, and followers that ask for its log's end."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.core.errors import ErrorCode, Refused
from coordinator.core.ids import CallId
from coordinator.core.replies import Reply
from coordinator.core.requests import Request
from coordinator.shard.followers import FetchedEntries, FetchEntries


class Callers:
    """Remembers who has not been answered, so that nobody is forgotten when a shard goes."""

    def __init__(self) -> None:
        self._requests: dict[CallId, Request] = {}
        self._fetches: dict[CallId, FetchEntries] = {}

    @property
    def waiting(self) -> list[CallId]:
        """The calls of clients."""
        return list(self._requests)

    def ask(self, request: Request) -> None:
        """A client waits from now on."""
        self._requests[request.call_id] = request

    def fetch(self, fetch: FetchEntries) -> None:
        """A follower waits from now on."""
        self._fetches[fetch.call_id] = fetch

    def cancel(self, call_id: CallId) -> bool:
        """The client of a call has gone. False: nobody waited."""
        return self._requests.pop(call_id, None) is not None

    def answered(self, replies: Iterable[tuple[CallId, Reply]]) -> None:
        """These clients wait no more."""
        for call_id, _ in replies:
            self._requests.pop(call_id, None)

    def fetched(self, fetched: Iterable[tuple[CallId, FetchedEntries]]) -> None:
        """These followers wait no more."""
        for call_id, _ in fetched:
            self._fetches.pop(call_id, None)

    def refuse_clients(self, error: ErrorCode) -> list[tuple[CallId, Reply]]:
        """The answers to all clients that wait, of whom none waits then."""
        requests, self._requests = self._requests, {}
        refused = Refused(error)
        return [(call_id, request.refusal(refused)) for call_id, request in requests.items()]

    def refuse_followers(self, error: ErrorCode) -> list[tuple[CallId, FetchedEntries]]:
        """The answers to all followers that wait, of whom none waits then."""
        fetches, self._fetches = self._fetches, {}
        refused = Refused(error)
        return [(call_id, fetch.refusal(refused)) for call_id, fetch in fetches.items()]
