"""The process that makes plans: it may die, hang, or be left in the middle of one."""

from __future__ import annotations

import asyncio
import os
import signal
from array import array
from collections.abc import Coroutine
from typing import Any

import pytest

from coordinator.core.sessions.plan.allocator import plan
from coordinator.core.values.plans import FREE, PlanInput, PlanMember, PlanTopic
from coordinator.runtime.planner_process import PlannerError, PlannerProcess

GUARD_S = 60


def state(members: int = 2, count: int = 4) -> PlanInput:
    made = tuple(PlanMember(f"w-{number}", (count,)) for number in range(members))
    return PlanInput(made, (PlanTopic("t", count, array("i", [FREE] * count)),))


def run(work: Coroutine[Any, Any, None]) -> None:
    async def guarded() -> None:
        async with asyncio.timeout(GUARD_S):
            await work

    asyncio.run(guarded())


def test_plans_are_made_by_one_process_and_those_asked_at_once_in_turn() -> None:
    async def work() -> None:
        planner = PlannerProcess()
        states = [state(members) for members in (1, 2, 3)]
        assert await asyncio.gather(*map(planner, states)) == [plan(each) for each in states]
        pid = planner.pid
        assert pid is not None
        assert await planner(states[0]) == plan(states[0])
        assert planner.pid == pid
        await planner.close()
        await planner.close()

    run(work())


def test_a_process_that_was_killed_fails_its_plan_and_is_replaced() -> None:
    async def work() -> None:
        planner = PlannerProcess()
        await planner(state())
        pid = planner.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        asking = asyncio.create_task(planner(state()))
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(PlannerError, match="has ended"):
            await asking
        assert await planner(state()) == plan(state())
        assert planner.pid != pid
        await planner.close()

    run(work())


def test_a_process_that_hangs_is_killed_after_a_while() -> None:
    async def work() -> None:
        planner = PlannerProcess()
        await planner(state())
        pid = planner.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        planner._timeout_s = 0.05
        with pytest.raises(TimeoutError):
            await planner(state())
        planner._timeout_s = GUARD_S
        assert await planner(state()) == plan(state())
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        await planner.close()

    run(work())


def test_a_plan_that_is_given_up_does_not_answer_the_next_one() -> None:
    async def work() -> None:
        planner = PlannerProcess()
        await planner(state())
        pid = planner.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        given_up = asyncio.create_task(planner(state(5, 50)))
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        assert await planner(state(3, 9)) == plan(state(3, 9))
        await planner.close()

    run(work())
