"""Durations as people read them."""

from __future__ import annotations

import pytest

from coordinator.observe.spelling import spell


@pytest.mark.parametrize(
    ("ms", "told"),
    [
        (12, "12 ms"),
        (4_100, "4.1 s"),
        (200_000, "3 min 20 s"),
        (3_600_000, "1 h 0 min"),
        (2 * 86_400_000 - 1, "47 h 59 min"),
        (691_206_000, "8 d 0 h"),
    ],
)
def test_a_duration_has_the_units_that_its_length_calls_for(ms, told):
    assert spell(ms) == told
