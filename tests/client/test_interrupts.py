"""Reasons with which members leave, and signal handlers that are put back."""

from __future__ import annotations

import asyncio
import functools
import itertools
import signal
import threading

import pytest

from coordinator.client.transport.interrupts import (
    Interrupted,
    SignalGuard,
    Terminated,
    closing_reason,
)


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
