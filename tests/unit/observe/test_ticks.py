"""Axes have round times."""

import pytest

from coordinator.observe.timeline_svg import TICKS_MAX, tick_label, tick_step, ticks


@pytest.mark.parametrize(
    ("length_ms", "step_ms"),
    [
        (1, 1), (12, 1), (13, 2), (700, 100), (3_643, 500), (12_000, 1_000), (12_001, 2_000),
        (26_600, 5_000), (60_000, 5_000), (108_900, 10_000), (400_000, 60_000),
        (86_400_000, 7_200_000), (10**9, 86_400_000),
    ],
)  # fmt: skip
def test_ticks_are_a_round_time_apart(length_ms, step_ms):
    assert tick_step(length_ms) == step_ms
    assert length_ms / step_ms <= TICKS_MAX


@pytest.mark.parametrize(
    ("begin_ms", "end_ms", "expected"),
    [
        (0, 26_600, ["0 s", "5 s", "10 s", "15 s", "20 s", "25 s"]),
        (-10_010, 3_643, ["−10 s", "−8 s", "−6 s", "−4 s", "−2 s", "0 s", "2 s"]),
        (0, 700, ["0 s", "0.1 s", "0.2 s", "0.3 s", "0.4 s", "0.5 s", "0.6 s", "0.7 s"]),
        (0, 24, ["0 ms", "2 ms", "4 ms", "6 ms", "8 ms", "10 ms", "12 ms", "14 ms", "16 ms",
                 "18 ms", "20 ms", "22 ms", "24 ms"]),
        (0, 1, ["0 ms", "1 ms"]),
    ],
)  # fmt: skip
def test_labels_are_in_the_unit_of_the_step_and_zero_is_one_of_them(begin_ms, end_ms, expected):
    marks = ticks(begin_ms, end_ms)
    assert [tick_label(at_ms, marks.step) for at_ms in marks] == expected
