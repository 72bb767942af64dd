"""The loop whose clock jumps: order, time, threads, and what it says when nothing moves."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator

import pytest

from coordinator.testing.engine.loop import Livelock, SimulatedLoop, Stuck


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    loop = SimulatedLoop(rounds_at_one_time_max=1_000)
    yield loop
    loop.close()


def test_time_jumps_to_the_next_timer(loop):
    async def nap():
        await asyncio.sleep(86_400)
        return loop.time()

    assert loop.run_until_complete(nap()) == 86_400


def test_timers_of_one_moment_run_in_the_order_in_which_they_were_set(loop):
    ran: list[int] = []
    for number in range(50):
        loop.call_later(1, ran.append, number)
    loop.run_until_complete(asyncio.sleep(1))
    assert ran == list(range(50))


def test_what_is_ready_runs_before_time_moves_on(loop):
    ran: list[object] = []

    def chain(left: int) -> None:
        ran.append(left)
        if left:
            loop.call_soon(chain, left - 1)

    loop.call_later(0.001, ran.append, "timer")
    loop.call_soon(chain, 3)
    loop.run_until_complete(asyncio.sleep(1))
    assert ran == [3, 2, 1, 0, "timer"]


def test_a_timer_of_now_joins_the_next_round_behind_what_is_ready(loop):
    ran: list[str] = []

    def first() -> None:
        loop.call_later(0, ran.append, "timer")
        loop.call_soon(loop.call_soon, ran.append, "later round")
        loop.call_soon(ran.append, "ready")

    loop.call_soon(first)
    loop.run_until_complete(asyncio.sleep(1))
    assert ran == ["ready", "timer", "later round"]


@pytest.mark.parametrize("delay_s", [1e-12, 0.1, 1 / 3, 0.3, 1e-3, 12345.678901234])
def test_a_timer_is_never_early(loop, delay_s):
    async def wait() -> None:
        due = loop.time() + delay_s
        while loop.time() < due:  # noqa: ASYNC110 - the subject.
            await asyncio.sleep(due - loop.time())

        due = loop.time() + delay_s
        reached = loop.create_future()
        loop.call_at(due, reached.set_result, None)
        await reached
        assert loop.time() >= due

    loop.run_until_complete(wait())


def test_cancelled_timers_neither_run_nor_take_time_nor_stay(loop):
    handles = [loop.call_later(1 + number, pytest.fail) for number in range(10_000)]
    for handle in handles:
        handle.cancel()
        handle.cancel()
    assert all(handle.cancelled() for handle in handles)
    assert len(loop.timers) < 250
    loop.run_until_complete(asyncio.sleep(0.5))
    assert loop.time() == 0.5
    with pytest.raises(Stuck):
        loop.run_forever()
    assert loop.time() == 0.5


def test_cancelling_what_has_run_is_nothing(loop):
    handle = loop.call_later(1, int)
    soon = loop.call_soon(int)
    loop.run_until_complete(asyncio.sleep(2))
    for _ in range(200):
        handle.cancel()
        soon.cancel()
    assert loop.timers._cancelled == 0


def test_stuck_says_what_is_pending(loop):
    async def waits_for_nothing() -> None:
        await loop.create_future()

    async def main() -> None:
        await asyncio.sleep(3)
        await asyncio.gather(waits_for_nothing(), waits_for_nothing())

    with pytest.raises(Stuck, match=r"(?s)at 3.0 s .*waits_for_nothing.*, line \d+"):
        loop.run_until_complete(main())


def test_livelock_is_noticed(loop):
    async def spins() -> None:
        while True:  # noqa: ASYNC110 - the subject.
            await asyncio.sleep(0)

    with pytest.raises(Livelock, match=r"1000 rounds at 0\.0 s"):
        loop.run_until_complete(spins())


def test_many_turns_while_time_moves_on_are_no_livelock(loop):
    async def main() -> None:
        for _ in range(30):
            for _ in range(900):
                await asyncio.sleep(0)
            await asyncio.sleep(0.001)

    loop.run_until_complete(main())


def test_a_function_for_a_thread_runs_here_and_takes_no_time(loop):
    async def main() -> None:
        assert await asyncio.to_thread(threading.get_ident) == threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(divmod, 1, 0)
        assert loop.time() == 0
        loop.world.thread_takes_s = 0.25
        assert await loop.run_in_executor(None, divmod, 7, 2) == (3, 1)
        assert loop.time() == 0.25

    loop.run_until_complete(main())


def test_other_threads_are_refused(loop):
    refused: list[BaseException] = []

    def call() -> None:
        try:
            loop.call_soon_threadsafe(print)
        except RuntimeError as error:
            refused.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert len(refused) == 1


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda loop: loop.create_connection(None, "localhost", 1), "sockets"),
        (lambda loop: loop.create_server(None, "localhost", 1), "sockets"),
        (lambda loop: loop.getaddrinfo("localhost", 1), "sockets"),
        (lambda loop: loop.add_reader(0, print), "sockets"),
        (lambda loop: loop.subprocess_exec(None, "true"), "subprocesses"),
        (lambda loop: loop.add_signal_handler(2, print), "signals"),
    ],
)
def test_the_outside_world_is_refused_with_the_reason(loop, call, reason):
    with pytest.raises(NotImplementedError, match=reason):
        call(loop)


def test_timeouts_groups_and_queues_of_asyncio_work(loop):
    async def main() -> list[object]:
        queue: asyncio.Queue[int] = asyncio.Queue(1)

        async def produce() -> None:
            for number in range(5):
                await asyncio.sleep(1)
                await queue.put(number)

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            got: list[object] = [await queue.get() for _ in range(5)]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await queue.get()
        done, pending = await asyncio.wait(
            [asyncio.ensure_future(asyncio.sleep(n)) for n in range(5)], timeout=2.5
        )
        for task in pending:
            task.cancel()
        return [*got, len(done), len(pending), loop.time()]

    assert loop.run_until_complete(main()) == [0, 1, 2, 3, 4, 3, 2, 17.5]


def order_of_sets() -> list[str]:
    """Ends of tasks that asyncio and this function keep in sets, as often as they are."""
    loop = SimulatedLoop()
    ran: list[str] = []

    async def child(number: int) -> None:
        try:
            await loop.create_future()
        finally:
            ran.append(f"{number} {asyncio.current_task().get_name()}")

    async def main() -> None:
        async def fail() -> None:
            await asyncio.sleep(1)
            raise ValueError

        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                for number in range(200):
                    group.create_task(child(number))
                group.create_task(fail())
        futures = {loop.create_future() for _ in range(100)}
        ran.extend(str(future.number) for future in futures)

    loop.run_until_complete(main())
    loop.close()
    assert len(ran) == 300
    return ran


def test_sets_of_tasks_and_futures_have_the_same_order_each_time():
    first = order_of_sets()
    garbage = [object() for _ in range(1_001)]  # Other addresses.
    assert order_of_sets() == first
    del garbage


def test_errors_of_callbacks_reach_the_handler_and_the_loop_goes_on(loop, caplog):
    seen: list[dict[str, object]] = []

    loop.call_soon(divmod, 1, 0)
    loop.run_until_complete(asyncio.sleep(1))
    assert "Exception in <built-in function divmod>" in caplog.text

    loop.set_exception_handler(lambda loop, context: seen.append(context))
    loop.call_soon(divmod, 1, 0)
    loop.run_until_complete(asyncio.sleep(1))
    assert isinstance(seen[0]["exception"], ZeroDivisionError)


def test_exceptions_come_out(loop):
    async def fails() -> None:
        await asyncio.sleep(1)
        raise KeyError("x")

    with pytest.raises(KeyError):
        loop.run_until_complete(fails())


def test_asyncio_runner_takes_it():
    async def main() -> float:
        asyncio.get_running_loop().create_task(asyncio.sleep(1_000))
        await asyncio.sleep(5)
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        assert runner.run(main()) == 5


def test_a_closed_loop_takes_nothing(loop):
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon(print)
    with pytest.raises(RuntimeError, match="closed"):
        loop.run_forever()
