"""History of a group, from workers' notes: stints, signals and the idle times between owners."""

import pytest

from flights.history import SIGKILL, SIGSTOP, IdleSpan, Strike, history_of, label
from flights.notes import REFUSED, STAGED, TAKES, WORKS, Note, Notebook, read_notes

A_TAKES_AND_WORKS = [(1.0, "a", TAKES, 0), (2.0, "a", WORKS, 0), (3.0, "a", WORKS, 0)]
KILLED, STOPPED = Strike("a", 4.0, SIGKILL), Strike("a", 4.0, SIGSTOP)


def notes(*lines):
    return [Note(at_s, member, kind, partition) for at_s, member, kind, partition in lines]


def made(noted, *strikes):
    """Stints as tuples, and idle times."""
    history = history_of(notes(*sorted(noted)), strikes)
    return [(s.owner, s.partition, s.begin_s, s.end_s) for s in history.stints], history.idle_spans


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        ([], []),
        ([(1.0, "a", TAKES, 0)], []),  # It had nothing to do.
        (A_TAKES_AND_WORKS, [("a", 0, 1.0, 3.0)]),
        # A streaming query notes the begin and the end of its batches, and takes nothing.
        ([(1.0, "a", WORKS, 0), (2.0, "a", WORKS, 0)], [("a", 0, 1.0, 2.0)]),
        # One that is given back and taken again is worked on twice.
        (
            [*A_TAKES_AND_WORKS, (5.0, "a", TAKES, 0), (6.0, "a", WORKS, 0)],
            [("a", 0, 1.0, 3.0), ("a", 0, 5.0, 6.0)],
        ),
        # A batch that is not decided is no work.
        ([*A_TAKES_AND_WORKS, (5.0, "a", STAGED, 0)], [("a", 0, 1.0, 3.0)]),
    ],
)
def test_a_stint_lasts_from_the_first_to_the_last_note_of_an_owner(noted, expected):
    assert made(noted) == (expected, ())


def test_a_partition_rests_between_the_last_note_of_one_and_the_first_of_the_next():
    noted = [*A_TAKES_AND_WORKS, (5.0, "b", TAKES, 0), (6.0, "b", WORKS, 0)]
    stints, idle_spans = made(noted)
    assert stints == [("a", 0, 1.0, 3.0), ("b", 0, 5.0, 6.0)]
    assert idle_spans == (IdleSpan(0, "a", "b", 3.0, 5.0, None),)
    assert idle_spans[0].length_s == 2.0


def test_whoever_is_killed_had_its_partitions_until_then():
    noted = [*A_TAKES_AND_WORKS, (7.0, "b", WORKS, 0), (8.0, "b", WORKS, 0)]
    others = [(1.0, "b", WORKS, 1), (9.0, "b", WORKS, 1)]
    assert made([*noted, *others], KILLED)[1] == (IdleSpan(0, "a", "b", 4.0, 7.0, KILLED),)


def test_a_partition_that_was_given_away_before_the_kill_does_not_rest_for_it():
    noted = [*A_TAKES_AND_WORKS, (3.5, "b", TAKES, 0), (6.0, "b", WORKS, 0)]
    assert made(noted, KILLED)[1] == (IdleSpan(0, "a", "b", 3.0, 3.5, None),)


def test_the_successor_of_one_that_was_killed_is_another_owner():
    stints, idle_spans = made(
        [*A_TAKES_AND_WORKS, (6.0, "a", TAKES, 0), (7.0, "a", WORKS, 0)], KILLED
    )
    assert stints == [("a", 0, 1.0, 3.0), ("a (restarted)", 0, 6.0, 7.0)]
    assert idle_spans == (IdleSpan(0, "a", "a (restarted)", 4.0, 6.0, KILLED),)
    assert label("a", 2) == "a (restarted 2 times)"


def test_one_that_was_stopped_keeps_its_name_and_what_is_refused_is_kept():
    noted = [*A_TAKES_AND_WORKS, (6.0, "b", WORKS, 0), (7.0, "b", WORKS, 0), (8.0, "a", REFUSED, 0)]
    history = history_of(notes(*noted), [STOPPED])
    assert history.owners == ["a", "b"]
    assert history.latest() == {0: "b"}
    assert [span.strike for span in history.idle_spans] == [STOPPED]
    assert history.refusals == (Note(8.0, "a", REFUSED, 0),)


def test_notes_of_several_workers_are_read_in_order_without_a_line_that_a_kill_has_cut(tmp_path):
    Notebook(tmp_path, "b").note(WORKS, {2, 1}, at_s=2.0)
    first = Notebook(tmp_path, "a")
    first.note(TAKES, [0], at_s=1.0)
    first.note(WORKS, [0], at_s=3.0)
    for path in tmp_path.glob("a-*"):
        path.write_text(path.read_text() + '[4.0, "a", "wor')
    assert read_notes(tmp_path, 1.0) == notes(
        (0.0, "a", TAKES, 0), (1.0, "b", WORKS, 1), (1.0, "b", WORKS, 2), (2.0, "a", WORKS, 0)
    )
