"""Messages of one connection arrive in the order in which they were sent."""

import asyncio
import random

from coordinator.testing.engine.clock import MachineClock
from coordinator.testing.engine.loop import SimulatedLoop
from coordinator.testing.engine.network import MessageOrder, Network, Weather
from coordinator.testing.engine.story import Story


def test_messages_that_wait_for_an_earlier_one_keep_their_order():
    loop = SimulatedLoop()
    dice = random.Random(1)

    def now() -> float:
        return loop.true_ns / 1e9

    network = Network(now, dice, Story(now), Weather(slow=0.3))
    process, order, arrived = loop.process("a", MachineClock(drift_ppm=-200)), MessageOrder(), []

    async def send() -> None:
        for number in range(5_000):
            network.send("b", process, "a", arrived.append, number, order=order)
            await asyncio.sleep(0.01 * dice.random())

    loop.run_until_complete(send())
    loop.run_until_complete(asyncio.sleep(10))
    loop.close()
    assert arrived == list(range(5_000))
