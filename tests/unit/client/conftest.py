"""Fixtures of the tests of members and of workers."""

from __future__ import annotations

import signal

import pytest

from coordinator.client.transport.interrupts import SIGNALS


@pytest.fixture
def handlers():
    """The handlers of a plain program, and a look at them."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield lambda: [signal.getsignal(number) for number in SIGNALS]
    for number, handler in before.items():
        signal.signal(number, handler)
