"""Signals of `worker.run()`: which ones it takes, and that it puts their handlers back."""

from __future__ import annotations

import signal
import threading

import pytest

from coordinator.client.transport.interrupts import SIGNALS, EndNow, signals_handled


def test_the_first_signal_stops_the_worker_and_the_second_ends_it(handlers):
    before, stopped = handlers(), []
    with signals_handled(lambda *how: stopped.append(how)):
        signal.raise_signal(signal.SIGINT)
        assert stopped == [("stopped by SIGINT", None, False)]
        with pytest.raises(EndNow):
            signal.raise_signal(signal.SIGTERM)
    assert stopped[1:] == [("stopped by a second SIGTERM", 0, True)]
    assert handlers() == before


@pytest.mark.parametrize("ignored", SIGNALS)
def test_a_signal_that_is_ignored_stays_ignored(handlers, ignored):
    signal.signal(ignored, signal.SIG_IGN)
    stopped = []
    with signals_handled(lambda *how: stopped.append(how)):
        signal.raise_signal(ignored)
        assert stopped == []
        assert signal.getsignal(ignored) is signal.SIG_IGN
        other = next(number for number in SIGNALS if number != ignored)
        signal.raise_signal(other)
        assert stopped == [(f"stopped by {other.name}", None, False)]
    assert signal.getsignal(ignored) is signal.SIG_IGN


def test_another_thread_takes_no_signals(handlers):
    before, seen = handlers(), []

    def look():
        with signals_handled(lambda *_: None):
            seen.append(handlers())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]
