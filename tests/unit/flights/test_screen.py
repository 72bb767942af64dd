"""The live view: owners by colour and name, the dead marked, plain lines without a terminal."""

import io
import re

import pytest
from rich.console import Console

from flights.history import SIGKILL
from flights.screen import Screen
from flights.watching import Happening, Member, View

ENDS = {0: 100, 1: 100, 2: 100}
LIVING = Member("worker-1", "worker-1")
DEAD = Member("worker-2", "worker-2", killed_at_s=3.0)


def view(owners, at_s=5.0, members=(LIVING, DEAD), offsets=None):
    of = {f"{member.label}-id": member for member in members}
    return View(at_s, "Stable", 4, of, owners, offsets or {0: 50, 1: 50, 2: 50})


def shown(a_view, happenings=(), *, terminal=True, **options):
    """Output on a terminal, with its escape sequences."""
    written = io.StringIO()
    console = Console(
        file=written, force_terminal=terminal, color_system="truecolor", width=100, **options
    )
    with Screen(ENDS, "counted", console) as screen:
        screen.show(a_view, list(happenings))
    return written.getvalue()


def plain(text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def row(text, partition):
    """The last row of a partition: with its escape sequences, and without."""
    rows = [it for it in text.splitlines() if re.match(rf"│ +{partition} ", plain(it))]
    return rows[-1], plain(rows[-1])


def code(colour):
    """The escape sequence of a colour: `#0072B2` is `38;2;0;114;178`."""
    return "38;2;" + ";".join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))


def test_a_member_that_was_killed_is_marked_as_long_as_the_group_has_it():
    text = shown(view({0: LIVING, 1: DEAD}))
    _, without_colour = row(text, 1)
    assert "worker-2 † killed 2 s ago" in without_colour
    assert "▒" in without_colour
    assert "█" not in without_colour
    assert "members: worker-1, worker-2 † killed 2 s ago" in plain(text)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 45), (200, 60)])
def test_the_view_fits_into_the_terminal_and_shows_the_newest_events(width, height):
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=width, height=height)
    ends = dict.fromkeys(range(12), 30_000)
    with Screen(ends, "enriched", console) as screen:
        dead = Member("spark-driver-2", "spark-driver-2", killed_at_s=3.0)
        seen = view(dict.fromkeys(ends, dead), members=(LIVING, dead), offsets={0: 14_500})
        happened = [Happening(float(n), f"event {n}", "generation") for n in range(20)]
        screen.show(seen, happened)
    frame = plain(written.getvalue()).rpartition("members: ")[2].splitlines()
    assert max(map(len, frame)) <= width
    assert len(frame) <= height
    assert "spark-driver-2 † killed 2 s ago" in frame[5]
    assert "14,500 / 30,000" in frame[5]
    assert any("event 19" in line for line in frame)


def test_no_color_is_respected_and_names_and_signs_remain(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    text = shown(view({0: LIVING, 1: DEAD}), [Happening(3.0, "worker-2 killed", SIGKILL)])
    assert "38;2" not in text
    assert "31m" not in text
    assert "worker-2 † killed 2 s ago" in text


def test_without_a_terminal_each_event_and_each_tenth_is_a_plain_line_once(capsys):
    console = Console(file=io.StringIO())
    happenings = [Happening(3.0, "worker-2 killed by SIGKILL", SIGKILL)]
    with Screen(ENDS, "counted", console) as screen:
        screen.show(view({0: LIVING}, at_s=4.0, offsets={0: 30}), happenings)
        happenings.append(Happening(5.1, "worker-2 removed: session expired", "evicted"))
        screen.show(view({0: LIVING}, at_s=6.0, offsets={0: 33}), happenings)
    assert capsys.readouterr().out.splitlines() == [
        "   3.0 s  worker-2 killed by SIGKILL",
        "   4.0 s  10 % of the flights counted",
        "   5.1 s  worker-2 removed: session expired",
    ]
