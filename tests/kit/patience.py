"""Time-outs of tests. `TESTS_PATIENCE=3` stretches every time-out three times.

A time-out in a test guards against hangs and decides nothing else: it is far longer than what it
waits for takes on a machine that does ten other things. A test that would pass or fail by the
speed of the machine counts work instead, or takes virtual time.
"""

from __future__ import annotations

import os

PATIENCE = float(os.environ.get("TESTS_PATIENCE") or 1)

HANG_S = 120 * PATIENCE
"""Seconds after which what a test waits for is taken not to come."""
FAST_TEST_S = 300 * PATIENCE
SLOW_TEST_S = 900 * PATIENCE
"""Seconds for one test and its fixtures, unless it says how much it needs."""
