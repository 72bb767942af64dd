"""Processes of the simulated loop: killed, paused, and with clocks of their own."""

import asyncio
import contextlib
import gc
from collections.abc import Iterator

import pytest

from coordinator.runtime import garbage
from coordinator.runtime.clock import AnchoredClock
from coordinator.testing.engine.clock import MachineClock
from coordinator.testing.engine.loop import SimulatedLoop, Stuck
from timer.aio import AsyncTimerDriver

DAY_S = 86_400


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    loop = SimulatedLoop()
    yield loop
    loop.close()


class Ticker:
    """Notes the time on each tick."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.ticks: list[float] = []

    async def run(self, every_s: float = 1.0) -> None:
        while True:
            await asyncio.sleep(every_s)
            self.ticks.append(self.loop.world.monotonic_ns() / 1e9)


def let_pass(loop: SimulatedLoop, seconds: float) -> None:
    loop.run_until_complete(asyncio.sleep(seconds))


def test_a_killed_process_does_nothing_more_and_the_others_go_on(loop):
    killed, other = Ticker(loop), Ticker(loop)
    process = loop.process("a")
    process.run(killed.run())
    loop.process("b").run(other.run())
    let_pass(loop, 2.5)
    process.kill()
    let_pass(loop, 2)
    assert (killed.ticks, other.ticks) == ([1, 2], [1, 2, 3, 4])


def test_killing_runs_no_line_of_the_process_even_when_it_is_collected(capfd, caplog):
    ran: list[str] = []

    class Guard:
        def __enter__(self) -> None: ...

        def __exit__(self, *reason: object) -> None:
            ran.append("exit")

    @contextlib.contextmanager
    def generator_guard() -> Iterator[None]:
        try:
            yield
        finally:
            ran.append("generator")

    async def rows():
        try:
            for number in range(1_000):
                await asyncio.sleep(1)
                yield number
        finally:
            ran.append("rows")

    async def inner() -> None:
        try:
            with Guard(), generator_guard():
                async for _ in rows():
                    asyncio.get_running_loop().create_task(asyncio.sleep(100))
        finally:
            ran.append("inner")
            await asyncio.sleep(1)

    async def outer() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(inner())
                await inner()
        except BaseException:
            ran.append("except")
            raise
        finally:
            ran.append("finally")

    loop = SimulatedLoop()
    process = loop.process("a")
    process.run(outer())
    let_pass(loop, 3.5)
    never_begun = outer()
    process.run(never_begun)
    process.call_soon(process.run, outer())
    process.call_later(1, process.run, outer())
    process.kill()
    del never_begun
    gc.collect()
    let_pass(loop, 10)
    gc.collect()
    loop.close()
    del loop, process
    gc.collect()
    assert ran == []
    assert capfd.readouterr() == ("", "")
    assert caplog.text == ""


def test_closing_the_loop_is_a_power_cut_for_what_is_pending(capfd, caplog):
    ran: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            ran.append("finally")

    loop = SimulatedLoop()
    loop.process("a").run(work())
    loop.create_task(work())
    let_pass(loop, 1)
    loop.close()
    del loop
    gc.collect()
    assert (ran, caplog.text, capfd.readouterr()) == ([], "", ("", ""))


def test_an_error_that_a_killed_process_never_fetched_is_not_reported(loop, caplog):
    answer = loop.create_future()
    process = loop.process("a")

    async def work() -> None:
        asks = asyncio.get_running_loop().create_future()
        answers.append(asks)
        await asks

    answers: list[asyncio.Future[None]] = []
    process.run(work())
    let_pass(loop, 1)
    process.kill()
    answers.pop().set_exception(ValueError("nobody hears it"))
    let_pass(loop, 1)
    loop.close()
    gc.collect()
    assert caplog.text == ""
    assert not answer.done()


def test_a_process_may_kill_itself(loop):
    ran: list[str] = []
    process = loop.process("a")

    async def work() -> None:
        process.kill()
        ran.append("to the next await")
        loop.call_soon(ran.append, "callback")
        loop.call_later(1, ran.append, "timer")
        loop.create_task(asyncio.sleep(0)).add_done_callback(lambda _: ran.append("task"))
        await asyncio.sleep(0)
        ran.append("after it")

    process.run(work())
    let_pass(loop, 5)
    assert ran == ["to the next await"]
    with pytest.raises(Stuck):
        loop.run_forever()
    assert loop.time() == 5, "timers of the dead take no time"


def test_whoever_cancels_all_tasks_does_not_wait_for_the_dead():
    async def main() -> None:
        loop = asyncio.get_running_loop()
        process, other = loop.process("a"), loop.process("b")
        process.run(asyncio.sleep(100))
        living = other.run(asyncio.sleep(100))
        await asyncio.sleep(1)
        process.kill()
        process.run(asyncio.sleep(100))
        assert asyncio.all_tasks() == {asyncio.current_task(), living}

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(main())


def test_what_the_dead_are_sent_is_dropped(loop):
    ran: list[str] = []
    process = loop.process("a")
    process.kill()
    process.kill()
    process.resume()
    process.pause()
    process.resume()
    process.call_soon(ran.append, "message")
    process.call_later(1, ran.append, "timer")
    process.run(asyncio.sleep(0)).add_done_callback(lambda _: ran.append("task"))
    let_pass(loop, 5)
    assert ran == []


def test_callbacks_belong_to_whoever_adds_them(loop):
    """A network, which belongs to the world, resolves futures of processes."""
    ran: list[str] = []
    answer = loop.create_future()

    async def ask(name: str) -> None:
        await asyncio.shield(answer)
        ran.append(name)

    a, b = loop.process("a"), loop.process("b")
    a.run(ask("a"))
    b.run(ask("b"))
    let_pass(loop, 1)
    a.kill()
    loop.call_later(1, answer.set_result, None)
    let_pass(loop, 5)
    assert ran == ["b"]


def test_a_paused_process_catches_up_all_at_once(loop):
    ticker = Ticker(loop)
    process = loop.process("a")
    process.run(ticker.run())
    times: list[float] = []
    for at_s in (2, 3, 4, 9):
        process.call_at(at_s, lambda: times.append(loop.world.monotonic_ns() / 1e9))
    loop.call_later(1.5, process.pause, 5.5)
    let_pass(loop, 8)
    process.pause()
    let_pass(loop, 4)
    assert times == [5.5, 5.5, 5.5]
    process.resume()
    process.resume()
    let_pass(loop, 0)
    assert times == [5.5, 5.5, 5.5, 12]
    assert ticker.ticks == [1, 5.5, 6.5, 7.5, 12]


def test_what_is_cancelled_during_a_pause_does_not_run(loop):
    process = loop.process("a")
    handle = process.call_later(1, pytest.fail)
    process.pause(10)
    let_pass(loop, 5)
    handle.cancel()
    let_pass(loop, 10)


def test_a_paused_process_may_be_killed(loop):
    process = loop.process("a")
    process.call_later(1, pytest.fail)
    process.pause(10)
    let_pass(loop, 5)
    process.kill()
    let_pass(loop, 10)


def test_stuck_names_the_paused(loop):
    process = loop.process("a")
    task = process.run(asyncio.sleep(1))
    process.pause()
    with pytest.raises(Stuck, match="<Process a paused>"):
        loop.run_until_complete(task)


def test_the_world_is_neither_killed_nor_paused(loop):
    with pytest.raises(ValueError, match="world"):
        loop.world.kill()
    with pytest.raises(ValueError, match="world"):
        loop.world.pause()


@pytest.mark.parametrize("drift_ppm", [-999_999, -500, 0, 500, 2_000_000])
def test_timers_run_on_the_clock_of_their_process(loop, drift_ppm):
    process = loop.process("a", MachineClock(drift_ppm=drift_ppm, started_ns=7_000_000_000))

    async def work() -> None:
        began = loop.time()
        assert began == 7
        await asyncio.sleep(DAY_S)
        assert began + DAY_S <= loop.time() < began + DAY_S + 0.01
        reached = loop.create_future()
        loop.call_at(began + 2 * DAY_S, reached.set_result, None)
        await reached
        assert began + 2 * DAY_S <= loop.time() < began + 2 * DAY_S + 0.01

    loop.run_until_complete(process.run(work()))
    assert loop.time() == pytest.approx(2 * DAY_S / (1 + drift_ppm / 1e6))


def test_a_clock_that_stands_still_is_refused():
    with pytest.raises(ValueError, match="does not move"):
        MachineClock(drift_ppm=-1_000_000)


def test_the_wall_clock_may_be_wrong_and_stepped_while_the_monotonic_one_goes_on(loop):
    clock = MachineClock(wall_offset_ns=3_000_000_000)
    process = loop.process("a", clock)
    anchored = AnchoredClock(process.wall_ns, process.monotonic_ns)
    assert process.wall_ns() - loop.world.wall_ns() == 3_000_000_000
    before_ms = anchored.now_ms()
    clock.wall_offset_ns -= 60_000_000_000
    let_pass(loop, 1)
    assert anchored.now_ms() == before_ms + 1_000
    assert process.wall_ns() - loop.world.wall_ns() == -57_000_000_000


def test_an_async_timer_driver_is_woken_on_the_millisecond(loop):
    process = loop.process("a", MachineClock(drift_ppm=137))
    clock = AnchoredClock(process.wall_ns, process.monotonic_ns)
    woken: list[int] = []

    def start() -> None:
        began_ms = clock.now_ms()

        def on_deadline(now_ms: int) -> None:
            woken.append(now_ms - began_ms)
            driver.wake_at(now_ms + 33)

        driver = AsyncTimerDriver(clock, on_deadline)
        driver.wake_at(began_ms + 33)

    process.call_soon(start)
    let_pass(loop, 10)
    assert len(woken) == 303
    assert woken == [33 * (number + 1) for number in range(len(woken))]
    process.kill()
    let_pass(loop, 10)
    assert len(woken) == 303, "its handles belong to the process that made it"


def test_a_process_inherits_nothing_of_whoever_starts_it(loop):
    a, b = loop.process("a"), loop.process("b", MachineClock(started_ns=5_000_000_000))
    times: list[float] = []

    def start() -> None:
        b.call_soon(lambda: times.append(loop.time()))
        a.kill()

    a.call_soon(start)
    let_pass(loop, 1)
    assert times == [5]


def test_an_abandoned_asynchronous_generator_is_closed_in_its_process(loop):
    closed: list[str] = []

    async def rows():
        try:
            yield 1
        finally:
            await asyncio.sleep(1)
            closed.append(loop.time())

    async def read() -> None:
        async for _ in rows():
            break

    process = loop.process("a", MachineClock(started_ns=100_000_000_000))
    process.run(read())
    let_pass(loop, 5)
    assert closed == [101]


def test_a_process_killed_while_it_keeps_the_collector_quiet_leaves_it_to_the_others(loop):
    async def load() -> None:
        with garbage.gc_paused():
            await asyncio.sleep(1)
            garbage.collect_and_freeze()
        frozen.append(gc.get_freeze_count())
        with garbage.gc_paused():
            await asyncio.sleep(100)

    frozen = [gc.get_freeze_count()]
    process = loop.process("a")
    process.run(load())
    let_pass(loop, 10)
    process.kill()
    assert gc.isenabled()
    after = gc.get_freeze_count()
    assert after <= frozen[1] <= frozen[0], "none more; some of the frozen ones may have ended"
