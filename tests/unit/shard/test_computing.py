"""Plans that the driver of a shard has its host compute."""

from __future__ import annotations

import pytest

from coordinator.core.config import GroupConfig
from coordinator.core.sessions.plan import scheduler
from coordinator.core.sessions.plan.allocator import plan
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.events import PlanFailed
from coordinator.core.values.ids import CallId, ShardId
from coordinator.core.values.plans import Plan, PlanInput
from coordinator.core.values.policy import Policy
from coordinator.core.values.session_messages import Attach
from coordinator.runtime.jobs import build
from coordinator.runtime.payloads import PAYLOADS
from coordinator.shard.driver import ShardDriver
from coordinator.shard.effects import (
    Broken,
    Build,
    Compute,
    Done,
    DriverInput,
    HostEffects,
    Load,
    Start,
    Stop,
    TakeOver,
    WriteEntry,
)
from coordinator.shard.inputs import Tick
from coordinator.shard.shard import Shard
from coordinator.storage.log import Fence, Loaded
from coordinator.testing.virtual import CountingIds

COUNT = 60


class Host:
    """Carries everything out at once but plans, which it keeps."""

    def __init__(self) -> None:
        self.driver = ShardDriver(ShardId(0))
        self.plans: list[Compute] = []
        self.events: list[object] = []
        self.now_ms = 0

    def handle(self, event: DriverInput) -> HostEffects:
        effects = self.driver.handle(event, self.now_ms)
        self.events += effects.events
        for job in effects.jobs:
            match job:
                case TakeOver():
                    self.handle(Done(job, Fence(ShardId(0), 1)))
                case Load():
                    self.handle(Done(job, Loaded(None, [])))
                case Build():
                    shard = Shard(GroupConfig(), CountingIds(), PAYLOADS, now_ms=0)
                    self.handle(Done(job, build(shard, job.loaded, 0)))
                case WriteEntry():
                    self.handle(Done(job, tuple(b"" for _ in job.append.records)))
                case Compute():
                    self.plans.append(job)
        return effects

    def to(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.handle(Tick())

    @property
    def held(self) -> int:
        assert self.driver.shard is not None
        group = self.driver.shard.machine.groups["g"]
        return sum(map(bool, group.topics["t"].holders))


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    """A host whose group waits for its plan."""
    monkeypatch.setattr(scheduler, "PLANNED_AT_ONCE", COUNT - 1)
    host = Host()
    host.handle(Start())
    attach = Attach(
        call_id=CallId(1),
        group_id="g",
        incarnation="i",
        topics=(("t", COUNT),),
        wishes=Policy(initial_delay_ms=0),
    )
    host.handle(attach)
    host.to(100)
    assert len(host.plans) == 1
    return host


def made(job: Compute) -> Plan:
    assert isinstance(job.ask.state, PlanInput)
    return plan(job.ask.state)


def test_the_result_is_taken_once(host: Host) -> None:
    job = host.plans[0]
    assert host.driver.is_wanted(job)
    host.handle(Done(job, made(job)))
    assert host.held == COUNT
    assert not host.driver.is_wanted(job)
    host.handle(Done(job, made(job)))
    assert host.driver.shard is not None


def test_a_host_that_cannot_compute_does_not_stop_the_shard(host: Host) -> None:
    for attempt, at in enumerate((1_100, 3_100, 7_100), 1):
        host.handle(Broken(OSError("no process"), host.plans[-1]))
        assert host.driver.shard is not None
        assert len(host.plans) == attempt
        host.to(at)
        assert len(host.plans) == attempt + 1, "asked again, after a while"
    failed = [event for event in host.events if isinstance(event, PlanFailed)]
    assert [event.in_a_row for event in failed] == [1, 2, 3]
    assert failed[0].error == "OSError: no process"
    host.handle(Done(host.plans[-1], made(host.plans[-1])))
    assert host.held == COUNT


def test_a_result_after_the_end_of_the_shard_is_ignored(host: Host) -> None:
    job = host.plans[0]
    host.handle(Stop(ErrorCode.NOT_COORDINATOR))
    assert not host.driver.is_wanted(job)
    host.handle(Done(job, made(job)))
    host.handle(Broken(OSError("no process"), job))
    assert host.driver.shard is None
    assert not host.plans[1:]


def test_a_result_for_the_shard_before_a_reload_is_ignored(host: Host) -> None:
    job = host.plans[0]
    host.handle(Broken(ValueError("a bug elsewhere")))
    host.to(host.now_ms + 60_000)
    assert host.driver.shard is not None
    host.handle(Done(job, made(job)))
    assert not host.driver.shard.machine.groups.get("g") or not host.held
