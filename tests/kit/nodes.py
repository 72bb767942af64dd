"""Nodes on the loop of the test, without a transport, and what they have reported."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from typing import Any, Self, TypeVar

from coordinator.core.values import requests as c
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.events import Event
from coordinator.runtime.node import Node
from coordinator.runtime.watchers import Watchers
from coordinator.service import calls as kinds
from coordinator.service.calls import Call, CallingPeer, Credential
from coordinator.service.pipeline import Pipeline
from coordinator.settings import Settings
from tests.kit import commands

T = TypeVar("T")
KINDS = {kind.command: kind for kind in vars(kinds).values() if isinstance(kind, kinds.Kind)}
KINDS[c.LeaveGroup] = kinds.LEAVE_GROUP  # RemoveMembers becomes this command too.
KINDS[c.CommitOffsets] = kinds.OFFSET_COMMIT  # And changes of topics these two.
KINDS[c.DeleteOffsets] = kinds.OFFSET_DELETE


class LoopClock:
    """The time of the loop that runs."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def now_ms(self) -> int:
        return int(1000 * self._loop.time())


class ObservedNode:
    """A node, and what it has reported.

    Args:
        parts: log, coordination, clock and such, as `Node` takes them.
    """

    def __init__(self, settings: Settings, **parts: Any) -> None:
        self.events: list[Event] = []
        self.failures: list[tuple[str, BaseException | None]] = []
        self.recoveries: list[str] = []
        self.node = Node(
            settings,
            watchers=Watchers(
                events=lambda events, _: self.events.extend(events),
                failure=lambda what, error: self.failures.append((what, error)),
                recovery=self.recoveries.append,
            ),
            **parts,
        )


class PipelineNode(ObservedNode):
    """A node in the time of its loop, whose calls come by no transport: commands, as they are.

    Args:
        on_pipeline: more of what `Pipeline` takes, such as `guard`.
    """

    def __init__(
        self,
        *,
        log: Any = None,
        coordination: Any = None,
        on_pipeline: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        settings = {"group_initial_rebalance_delay_ms": 0, **settings}
        super().__init__(
            Settings.of(**settings), log=log, coordination=coordination, clock=LoopClock()
        )
        self.malformed: list[tuple[str, ...]] = []
        self.pipeline = Pipeline(
            self.node,
            on_malformed=lambda *what: self.malformed.append(what),
            **(on_pipeline or {}),
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Run the node. It must not have failed in it: a test that makes it fail clears
        `failures`."""
        await self.node.start("h", 1)
        yield self
        await self.node.stop()
        assert self.failures == []

    def new(self) -> int:
        """A new call id."""
        return self.node.new_call_id()

    def call(self, *requests: c.Request, token: str | None = None, **more: Any) -> PlainCall:
        """The call that these requests make."""
        kind = more.pop("kind", None) or KINDS[type(requests[0])]
        groups = [getattr(request, "group_id", None) for request in requests]
        member_id = getattr(requests[0], "member_id", "")
        return PlainCall(kind, caller(token), groups, member_id, **more)

    async def ask(self, *requests: c.Request, **more: Any) -> Any:
        """The replies to requests that make one call."""
        return await self.pipeline.answer(
            self.call(*requests, **more), lambda _: translated(requests)
        )

    async def member(self, group_id: str = "a", share: bytes = b"all", **more: Any) -> str:
        """A member alone, with its assignment; returns its id."""
        (joined,) = await self.ask(commands.join(self.new(), group_id), **more)
        shares = {joined.member_id: share}
        (synced,) = await self.ask(commands.sync(self.new(), joined, group_id, shares), **more)
        assert (joined.error, synced.assignment) == (ErrorCode.NONE, share)
        return joined.member_id


class PlainCall(Call):
    """A call of which all is known from the beginning."""

    system = "plain"
    caller = groups = member_id = None  # Set by each call; properties of `Call`.

    def __init__(
        self,
        kind: kinds.Kind,
        caller: CallingPeer,
        groups: Iterable[str | None] = (None,),
        member_id: str = "",
        *,
        remaining_s: Callable[[], float] | None = None,
        where: str = "",
    ) -> None:
        super().__init__(kind, where)
        self.caller, self.groups, self.member_id = caller, groups, member_id
        self._remaining_s = remaining_s

    def remaining_s(self) -> float | None:
        return self._remaining_s() if self._remaining_s is not None else None

    def naming(self, groups: Iterable[str | None]) -> Self:
        self.groups = groups
        return self


def caller(token: str | None = None) -> CallingPeer:
    """A caller from one place, with a token."""
    return CallingPeer("peer", "/host", lambda: Credential(token))


def translated(requests: T) -> Generator[None, None, T]:
    """A translation that takes two turns."""
    yield
    return requests
