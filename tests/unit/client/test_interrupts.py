"""Reasons with which members leave, and signal handlers that are put back."""

from __future__ import annotations

import _weakrefset
import asyncio
import dis
import functools
import itertools
import signal
import sys
import threading

import pytest

from coordinator.client.transport.interrupts import (
    Interrupted,
    SignalGuard,
    Terminated,
    closing_reason,
)
from coordinator.client.transport.loop_thread import LoopThread, run_on
from tests.kit.patience import HANG_S


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, "closed"),
        (GeneratorExit(), "closed"),
        (KeyboardInterrupt(), "interrupted (Ctrl-C)"),
        (Interrupted(130), "interrupted (Ctrl-C)"),
        (Terminated(143), "terminated (SIGTERM)"),
        (SystemExit(), "exited"),
        (SystemExit(3), "exited with 3"),
        (asyncio.CancelledError(), "cancelled"),
        (ValueError("no such row"), "failed: ValueError: no such row"),
        (ValueError("two\nlines"), "failed: ValueError: two lines"),
        (ValueError(), "failed: ValueError"),
    ],
)
def test_the_reason_says_in_words_how_the_with_ended(error, reason):
    assert closing_reason(error) == reason


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_former_handlers_are_back_in_whatever_order_members_end(handlers, order):
    plain = handlers()
    guards = [SignalGuard(lambda: None) for _ in range(3)]
    for guard in guards:
        guard.install()
    for number in order:
        assert handlers() != plain
        guards[number].remove()
    assert handlers() == plain


@pytest.mark.parametrize(
    ("number", "kind", "status"),
    [(signal.SIGINT, Interrupted, 130), (signal.SIGTERM, Terminated, 143)],
)
def test_a_signal_is_raised_as_an_exit_with_its_status(handlers, number, kind, status):
    guard = SignalGuard()
    guard.install()
    with pytest.raises(kind) as raised:
        signal.raise_signal(number)
    assert raised.value.code == status
    assert isinstance(raised.value, SystemExit)
    assert isinstance(raised.value, KeyboardInterrupt) == (number is signal.SIGINT)
    guard.remove()


def test_tasks_are_all_cancelled_by_the_first_signal_and_the_second_is_raised(handlers):
    cancelled: list[int] = []
    guards = [SignalGuard(functools.partial(cancelled.append, n)) for n in range(3)]
    for guard in guards:
        guard.install()
    guards[1].remove()
    signal.raise_signal(signal.SIGTERM)
    assert sorted(cancelled) == [0, 2]
    with pytest.raises(Terminated):
        signal.raise_signal(signal.SIGTERM)
    guards[2].remove()
    guards[0].remove()


def test_handlers_of_the_program_are_left_alone(handlers):
    def own(*_):
        pass

    signal.signal(signal.SIGTERM, own)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    guard = SignalGuard()
    guard.install()
    assert handlers() == [signal.SIG_IGN, own]
    guard.remove()


def test_a_handler_that_the_program_installs_meanwhile_stays(handlers):
    def own(*_):
        pass

    guard = SignalGuard()
    guard.install()
    signal.signal(signal.SIGTERM, own)
    guard.remove()
    assert handlers() == [signal.default_int_handler, own]


def test_other_threads_take_no_signals(handlers):
    plain = handlers()
    thread = threading.Thread(target=SignalGuard().install)
    thread.start()
    thread.join()
    assert handlers() == plain


class AtPoint:
    """Raises in the calling thread at the n-th point where Python looks for signals.

    Those are the beginnings of functions, the ends of calls and the turns of loops; in between,
    the interpreter enters and leaves a `with` of a lock in one step. Callbacks of weak references
    are left out: Python drops what is raised in one, so no call could be interrupted there.
    """

    def __init__(self, n: int) -> None:
        self.left = n

    def __enter__(self) -> None:
        sys.settrace(self._trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame, event, _):
        if frame.f_code.co_filename == _weakrefset.__file__:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and _looks_for_signals(frame.f_code, frame.f_lasti):
            self.left -= 1
            if self.left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._trace


@functools.cache
def _looks_for_signals(code, offset):
    """True if the instruction before this one is one after which Python looks."""
    names = {one.offset: one.opname for one in dis.get_instructions(code)}
    before = [at for at in names if at < offset]
    return bool(before) and names[max(before)].startswith(("RESUME", "CALL", "JUMP_BACKWARD"))


def test_a_signal_at_any_point_of_a_blocking_call_leaves_the_loop_free():
    async def work():
        for _ in range(1000):  # So that most points come before its end.
            await asyncio.sleep(0)

    on, points = LoopThread.use(), 0
    for points in itertools.count():
        try:
            with AtPoint(points):
                on.result_of(run_on(on.loop, work))
            break
        except KeyboardInterrupt:
            assert run_on(on.loop, functools.partial(asyncio.sleep, 0, "free")).result(HANG_S)
    on.release()
    assert points > 20


class HeldByItsReader:
    """The end of a reply, at which its reader takes the reply's lock and does not give it back."""

    def __init__(self, reply) -> None:
        self._reply = reply

    def release(self) -> None:
        reader = threading.Thread(target=self._reply._condition.acquire)
        reader.start()
        reader.join()


def test_a_signal_while_the_result_is_read_leaves_the_loop_free():
    on, begun = LoopThread.use(), threading.Event()
    on.loop.call_soon_threadsafe(begun.wait)
    reply = run_on(on.loop, functools.partial(asyncio.sleep, 0))
    reply._ended = HeldByItsReader(reply)
    begun.set()
    assert run_on(on.loop, functools.partial(asyncio.sleep, 0, "free")).result(HANG_S)
    on.release()


def test_tasks_that_are_left_end_with_the_loop_of_the_last_member():
    thread = LoopThread.use()
    begun, ended = threading.Event(), threading.Event()

    async def left() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    asyncio.run_coroutine_threadsafe(left(), thread.loop)
    assert begun.wait(HANG_S)
    thread.release()
    assert ended.is_set()
