"""The picture of owners: bars, hatched rests, round ticks and the account of a kill."""

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from flights.history import SIGSTOP, History, Kill, Refusal, Stint
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
