"""The marker `virtual_time`, and what stops fast tests from sleeping without it."""

import asyncio
import time

import pytest

from coordinator.testing.engine.loop import SimulatedLoop


@pytest.fixture
async def began_s():
    await asyncio.sleep(0.5)
    return asyncio.get_running_loop().time()


@pytest.mark.virtual_time
async def test_a_marked_test_and_its_fixtures_run_on_the_simulated_loop(began_s):
    assert began_s == 0.5
    await asyncio.sleep(86_400)
    assert asyncio.get_running_loop().time() == 86_400.5


async def test_others_run_on_a_loop_of_asyncio_and_may_not_sleep():
    assert not isinstance(asyncio.get_running_loop(), SimulatedLoop)
    await asyncio.sleep(0)
    with pytest.raises(pytest.fail.Exception, match=r"test_virtual_time\.py sleeps"):
        await asyncio.sleep(0.001)


@pytest.mark.virtual_time
async def test_real_sleep_is_refused_on_virtual_time_too():
    with pytest.raises(pytest.fail.Exception, match=r"test_virtual_time\.py sleeps"):
        time.sleep(0.001)  # noqa: ASYNC251  # It is refused.
