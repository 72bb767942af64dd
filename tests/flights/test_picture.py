"""The picture of owners: bars, hatched rests, round ticks and the account of a kill."""

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from flights.history import SIGSTOP, History, Kill, Moment, Refusal, Stint
from flights.picture import PALETTE, account, draw

SVG = "{http://www.w3.org/2000/svg}"
B_AND_C = "until b and c went on with them"


def history(*stints, kills=(), rebalances=(), end_s=20.0):
    of = tuple(Stint(*stint) for stint in stints)
    owners = tuple(dict.fromkeys(stint.owner for stint in of))
    return History(owners, of, tuple(kills), tuple(rebalances), end_s)


KILLED = history(
    ("a", 0, 0.0, 10.0),
    ("b", 0, 13.5, 20.0),
    ("a", 1, 0.0, 10.0),
    ("b", 1, 14.0, 20.0),
    ("b", 2, 0.0, 20.0),
    kills=[Kill("a", 10.0, 13.0)],
    rebalances=[13.0],
)


def drawn(of, partitions=3):
    return ET.fromstring(draw(of, "Who <works>?", partitions))


def bars(root):
    """Bars of the lanes as (fill, x, width, y, title)."""
    return [
        (
            bar.get("fill"),
            float(bar.get("x")),
            float(bar.get("width")),
            float(bar.get("y")),
            bar.find(SVG + "title").text,
        )
        for bar in root.iter(SVG + "rect")
        if bar.find(SVG + "title") is not None
    ]


def texts(root):
    return [text.text for text in root.iter(SVG + "text")]


@pytest.mark.parametrize(
    ("first_s", "end_s", "expected"),
    [
        (4.7, 29.6, [0, 5, 10, 15, 20, 25]),
        (33.2, 79.7, [30, 35, 40, 45, 50, 55, 60, 65, 70, 75]),
        (33.2, 108.9, [30, 40, 50, 60, 70, 80, 90, 100]),
        (0.2, 0.9, [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]),
    ],
)
def test_the_axis_begins_at_a_round_tick_before_the_first_event(first_s, end_s, expected):
    shown = history(("a", 0, first_s, end_s), end_s=end_s)
    labels = [text for text in texts(drawn(shown)) if text.endswith(" s")]
    assert labels == [f"{tick} s" for tick in expected]


def test_bars_and_hatched_rests_stand_where_and_as_long_as_the_history_says():
    lanes = {}
    for fill, x, width, y, title in bars(drawn(KILLED)):
        lanes.setdefault(y, []).append((fill, x, width, title))
    (_, first), (_, second), (_, third) = sorted(lanes.items())
    second_s = 880 / 20  # Pixels.
    a, b = PALETTE[0][0], PALETTE[1][0]
    assert sorted(first, key=lambda bar: bar[1]) == [
        (a, 100, 10 * second_s, "a, 0.0 to 10.0 s"),
        ("url(#hatch-0)", 540, 3.5 * second_s, "nobody for 3.5 s: a was killed"),
        (b, 694, 6.5 * second_s, "b, 13.5 to 20.0 s"),
    ]
    assert [(fill, width) for fill, _, width, _ in second] == [
        (a, 10 * second_s),
        (b, 6 * second_s),
        ("url(#hatch-0)", 4 * second_s),
    ]
    assert third == [(b, 100, 880, "b, 0.0 to 20.0 s")]


def test_a_hatch_is_a_pattern_in_the_colour_of_the_owner_that_was_killed():
    root = drawn(KILLED)
    (pattern,) = root.iter(SVG + "pattern")
    assert pattern.get("id") == "hatch-0"
    assert {part.get("fill") for part in pattern} == {"white", PALETTE[0][0]}


def test_the_kill_and_the_end_of_the_session_are_lines_with_their_times():
    root = drawn(KILLED)
    lines = {line.find(SVG + "title").text: line for line in root.iter(SVG + "line")
             if line.find(SVG + "title") is not None}  # fmt: skip
    assert set(lines) == {
        "a rebalance begins", "SIGKILL at 10.0 s", "session expired at 13.0 s"
    }  # fmt: skip
    assert lines["SIGKILL at 10.0 s"].get("x1") == "540.0"
    assert {"SIGKILL at 10.0 s", "session expired"} <= set(texts(root))


STOPPED = Kill("a", 10.0, 13.0, SIGSTOP, woken_s=16.0)


def crosses(root):
    return [
        group.find(SVG + "title").text
        for group in root.iter(SVG + "g")
        if group.find(SVG + "path") is not None
    ]


def test_a_pause_and_the_batch_that_is_refused_after_it_are_drawn_and_told():
    paused = replace(KILLED, kills=(STOPPED,), refusals=(Refusal("a", 0, 16.2),))
    root = drawn(paused)
    legend = texts(root)
    for text in ("a is stopped, nobody works", "SIGSTOP at 10.0 s", "a batch is refused"):
        assert text in legend
    assert crosses(root) == ["a batch of a is refused at 16.2 s"]
    (sentence,) = account(paused)
    assert sentence == (
        "a was stopped at 10.0 s: its 2 partitions rested for 3.5 s to 4.0 s, until b went on "
        "with them. It was woken at 16.0 s, and its batch of 1 partition was refused."
    )
    early = replace(paused, refusals=(Refusal("a", 0, 9.0), Refusal("b", 2, 17.0)))
    assert account(early)[0].endswith("went on with them. It was woken at 16.0 s.")
    assert crosses(drawn(KILLED)) == []


def test_steps_are_numbered_beside_each_other_and_told_in_order():
    steps = replace(KILLED, moments=(Moment(2.0, "a is <started>"), Moment(2.1, "b is started")))
    root = drawn(steps)
    circles = [float(circle.get("cx")) for circle in root.iter(SVG + "circle")]
    assert circles[1] - circles[0] >= 17, "they can be read"
    assert account(steps)[:2] == ["1: at 2.0 s a is <started>.", "2: at 2.1 s b is started."]
    assert {"1", "2"} <= set(texts(root))
    assert list(drawn(KILLED).iter(SVG + "circle")) == []


def test_the_legend_names_owners_and_the_one_that_is_dead():
    legend = texts(drawn(KILLED))
    for text in ("a", "b", "a is dead, nobody works", "nobody works", "a rebalance begins"):
        assert text in legend
    without = texts(drawn(history(("a", 0, 1.0, 2.0))))
    assert not any("dead" in text for text in without)


@pytest.mark.parametrize(
    ("stints", "told"),
    [
        (
            [("a", 0, 0, 9), ("b", 0, 13.5, 20), ("a", 1, 0, 9), ("b", 1, 14, 20)],
            ": its 2 partitions rested for 3.5 s to 4.0 s, until b went on with them.",
        ),
        (
            [("a", 0, 0, 10), ("b", 0, 10.25, 20)],
            ": its partition rested for 250 ms, until b went on with it.",
        ),
        ([("a", 0, 0, 10)], ": its partition rested for 10.0 s, until the end."),
        ([("b", 0, 0, 20)], "; it had no partitions."),
        (
            [("a", 0, 0, 9), ("b", 0, 11, 20), ("a", 1, 0, 9), ("c", 1, 12, 20), ("a", 2, 0, 9)],
            f": its 3 partitions rested for 1.0 s to 10.0 s, {B_AND_C}; 1 of them until the end.",
        ),
    ],
)
def test_the_account_of_a_kill_says_how_long_its_partitions_rested(stints, told):
    of = history(*stints, kills=[Kill("a", 10.0, None)])
    sentence = f"a was killed at 10.0 s{told}"
    assert account(of) == [sentence]
    shown = drawn(of)
    assert sentence in shown.get("aria-label")
    assert sentence in " ".join(texts(shown))


def test_bars_that_are_wide_enough_carry_their_owners_name_and_names_are_escaped():
    shown = drawn(history(("<b>&", 0, 0.0, 9.0), ("<b>&", 1, 0.0, 0.2), end_s=10.0))
    assert texts(shown).count("<b>&") == 2, "in the legend and in one of the bars"
    assert "Who <works>?" in texts(shown)


def test_more_owners_than_colours_are_drawn():
    many = [(f"worker-{n}", n, 0.0, 1.0 + n) for n in range(20)]
    shown = drawn(history(*many), partitions=20)
    assert len(bars(shown)) == 20
    assert all(float(rect.get("x") or 0) < 980 for rect in shown.iter(SVG + "rect"))


def test_nothing_at_all_is_drawn_as_empty_lanes():
    shown = drawn(history(end_s=0.0))
    assert bars(shown) == []
    assert texts(shown).count("partition 2") == 1
