"""History of a run, from workers' notes: stints, kills and the rests behind them."""

import pytest

from flights.history import (
    SIGSTOP,
    Kill,
    Rest,
    history_of,
    label,
)
from flights.notes import TAKES, WORKS, Note, Notebook, read_notes


def notes(*lines):
    return [Note(at_s, member, kind, partition) for at_s, member, kind, partition in lines]


def stints(history):
    return [(s.owner, s.partition, s.begin_s, s.end_s) for s in history.stints]


A_TAKES_AND_WORKS = [(1.0, "a", TAKES, 0), (2.0, "a", WORKS, 0), (3.0, "a", WORKS, 0)]


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        ([], []),
        ([(1.0, "a", TAKES, 0)], [("a", 0, 1.0, 1.0)]),
        (A_TAKES_AND_WORKS, [("a", 0, 1.0, 3.0)]),
        # A streaming query notes the begin and the end of its batches, and takes nothing.
        ([(1.0, "a", WORKS, 0), (2.0, "a", WORKS, 0)], [("a", 0, 1.0, 2.0)]),
        # Nobody works between the last note of one owner and the first of the next.
        (
            [*A_TAKES_AND_WORKS, (5.0, "b", TAKES, 0), (6.0, "b", WORKS, 0)],
            [("a", 0, 1.0, 3.0), ("b", 0, 5.0, 6.0)],
        ),
        # One that is given back and taken again is worked on twice.
        (
            [*A_TAKES_AND_WORKS, (5.0, "a", TAKES, 0), (6.0, "a", WORKS, 0)],
            [("a", 0, 1.0, 3.0), ("a", 0, 5.0, 6.0)],
        ),
        (
            [(1.0, "a", TAKES, 1), (1.0, "a", TAKES, 0), (2.0, "a", WORKS, 1)],
            [("a", 0, 1.0, 1.0), ("a", 1, 1.0, 2.0)],
        ),
    ],
)
def test_a_stint_lasts_from_the_first_to_the_last_note_of_an_owner(noted, expected):
    assert stints(history_of(notes(*noted), [], end_s=9.0)) == expected


def test_a_killed_owner_has_its_partitions_until_the_kill_and_they_rest_until_the_next_takes_them():
    noted = notes(
        *A_TAKES_AND_WORKS,
        (2.5, "a", TAKES, 1),
        (1.0, "b", TAKES, 2),
        (9.0, "b", WORKS, 2),
        (7.0, "b", TAKES, 0),
        (8.0, "b", WORKS, 0),
    )
    noted.sort(key=lambda note: note.at_s)
    history = history_of(noted, [Kill("a", 4.0, 6.5)], end_s=10.0)
    assert stints(history) == [
        ("a", 0, 1.0, 4.0),
        ("b", 0, 7.0, 8.0),
        ("a", 1, 2.5, 4.0),
        ("b", 2, 1.0, 9.0),
    ]
    assert history.rests(history.kills[0]) == [
        Rest("a", 0, 4.0, 7.0, "b"),
        Rest("a", 1, 4.0, 10.0, None),
    ]


def test_a_partition_that_was_given_away_before_the_kill_does_not_rest():
    noted = notes(*A_TAKES_AND_WORKS, (3.5, "b", TAKES, 0), (6.0, "b", WORKS, 0))
    history = history_of(noted, [Kill("a", 4.0, None)], end_s=10.0)
    assert stints(history) == [("a", 0, 1.0, 3.0), ("b", 0, 3.5, 6.0)]
    assert history.rests(history.kills[0]) == []


def test_the_successor_of_one_that_was_killed_is_another_owner():
    noted = notes(*A_TAKES_AND_WORKS, (6.0, "a", TAKES, 0), (7.0, "a", WORKS, 0))
    history = history_of(noted, [Kill("a", 4.0, 5.0)], end_s=10.0)
    assert stints(history) == [("a", 0, 1.0, 4.0), ("a (restarted)", 0, 6.0, 7.0)]
    assert history.rests(history.kills[0]) == [Rest("a", 0, 4.0, 6.0, "a (restarted)")]


def test_each_of_two_kills_has_its_own_rests():
    noted = notes(*A_TAKES_AND_WORKS, (6.0, "a", WORKS, 0), (9.0, "b", WORKS, 0))
    kills = [Kill("a", 4.0, 5.0), Kill("a", 7.0, 8.0)]
    history = history_of(noted, kills, end_s=10.0)
    assert [kill.owner for kill in history.kills] == ["a", "a (restarted)"]
    assert [history.rests(kill) for kill in history.kills] == [
        [Rest("a", 0, 4.0, 6.0, "a (restarted)")],
        [Rest("a (restarted)", 0, 7.0, 9.0, "b")],
    ]
    assert [label("a", kills) for kills in (0, 1, 2)][2] == "a (restarted 2 times)"


STOPPED = Kill("a", 4.0, 6.0, SIGSTOP, woken_s=8.0)


def test_one_that_was_stopped_keeps_its_name_and_what_it_does_afterwards_is_another_stint():
    noted = notes(*A_TAKES_AND_WORKS, (9.0, "a", WORKS, 0), (9.5, "a", WORKS, 0))
    history = history_of(noted, [STOPPED], end_s=10.0)
    assert stints(history) == [("a", 0, 1.0, 4.0), ("a", 0, 9.0, 9.5)]
    assert history.rests(STOPPED) == [Rest("a", 0, 4.0, 9.0, "a")]


def test_notes_of_several_workers_are_read_in_order_without_a_line_that_a_kill_has_cut(tmp_path):
    Notebook(tmp_path, "b").note(WORKS, {2, 1}, at_s=2.0)
    first = Notebook(tmp_path, "a")
    first.note(TAKES, [0], at_s=1.0)
    first.note(WORKS, [0], at_s=3.0)
    for path in tmp_path.glob("a-*"):
        path.write_text(path.read_text() + '[4.0, "a", "wor')
    assert read_notes(tmp_path) == notes(
        (1.0, "a", TAKES, 0), (2.0, "b", WORKS, 1), (2.0, "b", WORKS, 2), (3.0, "a", WORKS, 0)
    )
