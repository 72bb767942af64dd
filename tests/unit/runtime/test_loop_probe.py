"""Lag of the event loop, against the leases that members were told."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.policy import Policy
from coordinator.core.values.session_messages import Attach
from coordinator.runtime.clock import AnchoredClock
from coordinator.runtime.loop_probe import LoopProbe
from coordinator.settings import Settings
from coordinator.testing.virtual import CountingIds
from tests.kit.nodes import ObservedNode

pytestmark = pytest.mark.virtual_time
MINUTE_S = 60


class LateNode(ObservedNode):
    """A node in a process of its own that stands still now and then."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.process = self.loop.process("node")
        clock = AnchoredClock(self.process.wall_ns, self.process.monotonic_ns)
        super().__init__(Settings.of(shards=1), clock=clock, ids=CountingIds())

    async def attach(self, name: str, lease_ms: int) -> None:
        """Have a member in a group of its own that renews its lease with Attaches."""
        await self.process.run(self._attach(name, lease_ms, 1))
        self.process.run(self._keep(name, lease_ms))

    async def _keep(self, name: str, lease_ms: int) -> None:
        for number in itertools.count(2):
            await asyncio.sleep(lease_ms / 4_000)
            await self._attach(name, lease_ms, number)

    async def _attach(self, name: str, lease_ms: int, number: int) -> None:
        attach = Attach(
            call_id=self.node.new_call_id(),
            group_id=f"g-{name}",
            incarnation=name,
            stream_number=number,
            topics=(("t", 1),),
            wishes=Policy(lease_ms=lease_ms),
        )
        (reply,) = await self.node.ask([attach])
        assert reply.error is ErrorCode.NONE

    async def stand_still(self, seconds: float, times: int) -> None:
        """A minute in which it does so."""
        ends_at = self.loop.time() + MINUTE_S
        for _ in range(times):
            self.process.pause(self.loop.time() + seconds)
            await asyncio.sleep(1)
        await asyncio.sleep(ends_at - self.loop.time())


@pytest.fixture
async def late():
    late = LateNode()
    await late.process.run(late.node.start("h", 1))
    yield late
    late.process.kill()


async def test_a_loop_that_is_late_for_the_shortest_lease_is_reported_once_a_minute(late):
    await late.attach("patient", 45_000)
    await late.attach("standard", 10_000)
    for minute in range(1, 4):
        await late.stand_still(0.9, times=5)
        assert len(late.failures) in (minute - 1, minute)  # Late probes make long minutes.
    assert "a lease of 10,000 ms" in late.failures[0][0]


async def test_lags_that_the_leases_bear_are_not_reported(late):
    await late.attach("standard", 10_000)
    await late.stand_still(0.45, times=10)
    await late.stand_still(0.9, times=2)
    await late.stand_still(0, times=0)
    assert late.failures == []
    assert len(late.node.loaded_shards()[0].machine.groups["g-standard"].members) == 1


async def test_without_session_members_no_lag_is_too_long(late):
    await late.stand_still(0.9, times=10)
    await late.stand_still(0.9, times=10)
    assert late.failures == []


async def test_the_percentile_is_that_of_the_last_minute():
    probe = LoopProbe(AnchoredClock(lambda: 0, lambda: 0))
    assert probe.lag_p99_s == 0
    for _ in range(3):
        probe.measured(2.0)
    for _ in range(237):
        probe.measured(0.001)
    assert probe.lag_p99_s == 2.0
    probe.measured(0.001)
    assert probe.lag_p99_s == 0.001
