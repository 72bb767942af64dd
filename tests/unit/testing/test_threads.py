"""Real threads beside virtual time: when it stands still, and how they end."""

import asyncio
import contextlib
import itertools
import threading
from concurrent.futures import Future

import pytest

from coordinator.testing.loop import VirtualLoop, WaitsForever
from coordinator.testing.threads import TestEnded, ThreadHangs


@pytest.fixture
def loop():
    made = VirtualLoop()
    yield made
    made.close()


def started(loop, work):
    thread = loop.threads.make(work, "handler", loop.world.context())
    loop.threads.start(thread)
    return thread


def call(loop, coroutine):
    """Wait in a thread for a coroutine on the loop, as the library does."""
    return loop.wait_for(coroutine)


def test_time_moves_while_a_thread_waits_for_the_library_and_not_while_it_runs(loop):
    gate, seen = threading.Event(), []

    def work():
        gate.wait()
        seen.append(loop.now_s())
        call(loop, asyncio.sleep(30))
        seen.append(loop.now_s())

    async def test():
        started(loop, work)
        opener = threading.Timer(0, gate.set)
        opener.start()
        await loop.pass_time(45)
        opener.join()

    loop.run_until_complete(test())
    assert seen == [0, 30]


def test_pass_time_returns_when_threads_have_done_what_was_due(loop):
    done = []

    def work():
        for _ in range(3):
            call(loop, asyncio.sleep(1))
            done.append(loop.now_s())

    async def test():
        started(loop, work)
        await loop.pass_time(2)
        assert done == [1, 2]
        await loop.pass_time(0)
        assert done == [1, 2]

    loop.run_until_complete(test())


def test_a_thread_that_waits_for_a_lock_of_one_that_waits_for_the_library_stops_nobody(loop):
    lock, commits = threading.Lock(), []

    async def commit():
        await asyncio.sleep(0)
        return loop.now_s()

    def work():
        for _ in range(20):
            with lock:
                commits.append(call(loop, commit()))

    async def test():
        for _ in range(3):
            started(loop, work)
        await loop.pass_time(1)

    loop.run_until_complete(test())
    assert commits == [0] * 60


def test_errors_and_cancellations_reach_the_thread(loop):
    seen = []

    async def fail():
        raise LookupError("no such row")

    async def cancelled():
        raise asyncio.CancelledError

    def work():
        for coroutine in (fail(), cancelled()):
            try:
                call(loop, coroutine)
            except BaseException as error:  # noqa: BLE001  # Told to the test.
                seen.append(type(error).__name__)

    async def test():
        started(loop, work)
        await loop.pass_time(0)

    loop.run_until_complete(test())
    assert seen == ["LookupError", "CancelledError"]


def test_a_thread_that_hangs_is_named_with_its_stack(loop):
    loop.threads.patience_s = 0.01
    gate = threading.Event()

    def stuck_handler():
        gate.wait()

    async def test():
        started(loop, stuck_handler)
        await loop.pass_time(1)

    with pytest.raises(ThreadHangs, match=r"(?s)thread handler,.*stuck_handler") as raised:
        loop.run_until_complete(test())
    assert "time.sleep, locks and I/O are real there" in str(raised.value)
    gate.set()


def test_threads_that_still_wait_at_the_end_are_told_and_joined(loop):
    seen = []

    def work():
        try:
            call(loop, asyncio.sleep(10**6))
        finally:
            try:
                call(loop, asyncio.sleep(1))
            except TestEnded:
                seen.append("refused in finally")

    async def test():
        seen.append(started(loop, work))
        await loop.pass_time(1)

    loop.run_until_complete(test())
    loop.close()
    thread, *rest = seen
    assert rest == ["refused in finally"]
    thread.join()


def test_a_thread_that_was_not_started_here_may_wait_too(loop):
    answers = []

    def ask():
        with contextlib.suppress(TestEnded):
            answers.append(call(loop, asyncio.sleep(5, "done")))

    stranger = threading.Thread(target=ask)

    def work():
        stranger.start()
        stranger.join()

    async def test():
        ended = loop.create_future()
        started(loop, lambda: (work(), loop.call_soon_threadsafe(ended.set_result, None)))
        await ended

    loop.threads.patience_s = 0.01
    with pytest.raises(ThreadHangs):  # Time cannot move on: the thread of the handler waits for it.
        loop.run_until_complete(test())
    loop.close()
    stranger.join()
    assert answers == []


def test_an_interruption_comes_out_of_the_call_that_the_thread_waits_in(loop):
    seen = []

    def work():
        try:
            call(loop, asyncio.sleep(100))
        except SystemExit:
            seen.append(loop.now_s())

    async def test():
        thread = started(loop, work)
        await loop.pass_time(3)
        assert loop.threads.interrupt(thread, SystemExit())
        assert not loop.threads.interrupt(thread, SystemExit())
        await loop.pass_time(3)

    loop.run_until_complete(test())
    assert seen == [3]


def test_a_future_that_is_done_already_is_not_waited_for(loop):
    answers = []
    done = Future()
    done.set_result(7)

    async def test():
        started(loop, lambda: answers.append(loop.threads.wait_for(done)))
        await loop.pass_time(0)

    loop.run_until_complete(test())
    assert answers == [7]


def test_a_test_that_waits_for_what_never_happens_is_told_where(loop):
    async def beat():
        for _ in itertools.count():
            await asyncio.sleep(3)

    async def waits_for_nobody():
        loop.process("beating").run(beat())
        await loop.pass_time(10**5)  # A test may ask for as long as it likes.
        await asyncio.Event().wait()

    with pytest.raises(WaitsForever, match=r"(?s)does not happen.*Event.wait") as raised:
        loop.run_until_complete(waits_for_nobody())
    assert "beat" not in str(raised.value)


def test_several_that_pass_the_same_time_all_return(loop):
    async def test():
        await asyncio.gather(*(loop.pass_time(5) for _ in range(4)))
        return loop.now_s()

    assert loop.run_until_complete(test()) == 5
