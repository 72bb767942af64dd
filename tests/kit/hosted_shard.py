"""A shard in a host: its inputs by hand, and a log that takes an entry when it is told to."""

from __future__ import annotations

from itertools import count

from coordinator.core.config import GroupConfig
from coordinator.core.values.events import Event
from coordinator.core.values.ids import CallId
from coordinator.core.values.requests import (
    FetchOffsets,
)
from coordinator.runtime.payloads import PAYLOADS
from coordinator.shard.driver import Patience
from coordinator.shard.effects import HostEffects, Start
from coordinator.shard.followers import AckPolicy, FetchEntries
from coordinator.shard.inputs import Append, Tick
from coordinator.shard.shard import Shard
from coordinator.storage.memory import MemoryLog
from coordinator.testing.immediate import ImmediateHost
from coordinator.testing.virtual import CountingIds
from tests.kit import commands

LEADER = 1


class HostedShard:
    """Keeps every answer by its call."""

    def __init__(self, acks: AckPolicy = AckPolicy(node=LEADER), **how) -> None:  # noqa: B008
        self.clock = HostClock()
        self.log = MemoryLog()
        self.answers: dict[int, object] = {}
        self.in_sync: list[list[int]] = []
        self.events: list[Event] = []
        self._calls = count(1)
        self._host = ImmediateHost(
            self.log,
            self.clock,
            lambda: Shard(GroupConfig(), CountingIds(), PAYLOADS, now_ms=0, acks=acks, **how),
            self._receive,
            Patience(),
        )
        self._host.hold()
        self.step(Start())

    @property
    def shard(self) -> Shard:
        return self._host.driver.shard

    @property
    def now_ms(self) -> int:
        return self.clock.time_ms

    @now_ms.setter
    def now_ms(self, time_ms: int) -> None:
        self.clock.time_ms = time_ms

    @property
    def deadline_ms(self) -> int | None:
        return self._host.next_expiration_ms()

    @property
    def append(self) -> Append | None:
        """The entry that waits for the log."""
        return self._host.held[0].append if self._host.held else None

    def step(self, event) -> None:
        self._host.handle(event)

    def pass_time(self, ms: int) -> None:
        """Tick at each deadline on the way."""
        until = self.now_ms + ms
        while self.deadline_ms is not None and self.deadline_ms <= until:
            self.now_ms = max(self.now_ms, self.deadline_ms)
            self.step(Tick())
        self.now_ms = until

    def join(self, client_id: str, *, group_id: str = "g") -> int:
        """A dynamic member that may come without an id."""
        timeouts = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 5_000}
        return self._send(commands.join, group_id, client_id=client_id, **timeouts)

    def sync(self, joined: int) -> int:
        """Sync as the one member, whose JoinGroup was call `joined`."""
        return self._send(commands.sync, self.answers[joined])

    def commit(self, offset: int, *, expected: int | None = None) -> int:
        return self._send(commands.commit, offset, expected=expected)

    def _send(self, request, *fields, **more) -> int:
        call = next(self._calls)
        self.step(request(call, *fields, **more))
        return call

    def committed(self) -> int:
        call = next(self._calls)
        self.step(FetchOffsets(call_id=CallId(call), group_id="g", partitions=None))
        return call

    def store(self) -> None:
        """The log takes what is under way, and what comes of it."""
        while self.append is not None:
            self.store_one()

    def store_one(self) -> None:
        """The log takes the entry that is under way."""
        self._host.release(hold_on=True)

    def refuse_one(self, failure: str = "unavailable") -> None:
        """The log does not take the entry that is under way."""
        self.log.fail_next_append(failure)
        self._host.release(hold_on=True)

    def fetch(self, follower: int, offset: int, *, min_bytes=1, max_wait_ms=500) -> int:
        call = next(self._calls)
        self.step(
            FetchEntries(
                call_id=CallId(call),
                follower=follower,
                offset=offset,
                min_bytes=min_bytes,
                max_wait_ms=max_wait_ms,
            )
        )
        return call

    def error(self, call: int):
        """Return the error of an answered commit; None if it is not answered."""
        answer = self.answers.get(call)
        return None if answer is None else answer.results[0].error.name

    def _receive(self, effects: HostEffects) -> None:
        for call_id, answer in (*effects.replies, *effects.fetched):
            assert call_id not in self.answers, "a call is answered once"
            self.answers[call_id] = answer
        self.events += effects.events
        if effects.in_sync is not None:
            self.in_sync.append(sorted(effects.in_sync))
        for notice in effects.notices:
            assert getattr(notice, "error", None) is None, notice


class HostClock:
    """It shows what it was set to."""

    time_ms = 0

    def now_ms(self) -> int:
        return self.time_ms
