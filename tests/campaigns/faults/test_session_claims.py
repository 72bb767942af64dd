"""The checker of session groups finds what it is there to find, in made-up histories."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.campaigns.faults.session_claims import (
    longest_idle_s,
    moves,
    overlaps_in_time,
    problems,
    refused,
)
from tests.campaigns.faults.session_worker import CheckingSink

OLD, NEW = 1, 2
"""Processes."""
DONE = [(0, 5, position, OLD) for position in range(1, 9)]
"""Effects of one holder, up to 8."""


def note(op, at=0.0, p=0, pid=OLD, **more):
    return {"op": op, "p": p, "pid": pid, "at": at, **more}


def test_a_history_in_order_has_no_problem():
    notes = [
        note("granted", token=5, offset=-1),
        note("committed", token=5, offset=8),
        note("granted", token=6, offset=8, pid=NEW),
    ]
    assert list(problems(notes, [*DONE, (0, 6, 9, NEW)], {0: 8})) == []


@pytest.mark.parametrize(
    ("effects", "words"),
    [
        ([(0, 6, 9, NEW), (0, 5, 1, OLD)], "wrote under 5 after"),
        ([(0, 6, 9, NEW), (0, 6, 1, OLD)], "under the same token 6"),
    ],
)
def test_an_effect_of_a_former_holder_is_found(effects, words):
    (complaint,) = problems([], effects, {})
    assert words in complaint


def test_a_token_that_is_granted_twice_is_found():
    notes = [note("granted", token=5, offset=-1), note("granted", token=5, offset=-1, pid=NEW)]
    assert list(problems(notes, [], {})) == ["partition 0: token 5 was granted twice"]


def test_a_commit_that_the_next_holder_does_not_see_is_found():
    notes = [
        note("granted", token=5, offset=-1),
        note("committed", token=5, offset=8),
        note("granted", token=6, offset=4, pid=NEW),
    ]
    complaints = list(problems(notes, DONE, {0: 8}))
    assert [text.endswith("and 8 was acknowledged before") for text in complaints] == [True]


def test_a_commit_that_is_not_left_at_the_end_is_found():
    notes = [note("committed", token=5, offset=8)]
    complaints = list(problems(notes, DONE, {0: 4}))
    assert complaints == ["partition 0: 8 was acknowledged, and 4 is left"]


def test_what_is_committed_and_was_never_done_is_found():
    complaints = list(problems([], [effect for effect in DONE if effect[2] != 3], {0: 8}))
    assert complaints == ["partition 0: 8 is committed, and 3 was never done"]


def test_a_commit_of_a_former_holder_is_found():
    notes = [note("refused", token=5), note("committed", token=5, offset=8)]
    complaints = list(problems(notes, DONE, {0: 8}))
    assert complaints == ["partition 0: a commit under 5 came after a later grant"]
    assert list(problems(notes[::-1], DONE, {0: 8})) == []


def test_effects_that_come_too_late_are_counted():
    notes = [
        note("tried", 1.0, token=5),
        note("tried", 2.0, token=6, pid=NEW),
        note("tried", 3.0, token=5),
        note("refused", 3.1, token=5),
    ]
    assert (overlaps_in_time(notes), refused(notes)) == (1, 1)
    assert overlaps_in_time(notes, {OLD}) == 0
    assert overlaps_in_time(notes, {NEW}) == 1


def test_grants_after_the_first_are_moves():
    notes = [note("granted", p=p, token=token, offset=-1) for p, token in ((0, 1), (1, 2), (0, 3))]
    assert moves(notes) == 1


def test_all_partitions_have_to_be_worked_on_again():
    notes = [note("taken", 1.0, p=0), note("taken", 2.0, p=0), note("taken", 2.5, p=1)]
    assert longest_idle_s(notes, 1.5, 2) == 1.0
    assert longest_idle_s(notes, 2.2, 2) is None


def test_a_partition_that_rests_later_than_others_is_found():
    notes = [note("taken", at, p=p) for p, at in ((0, 1.0), (1, 1.5), (1, 2.0), (0, 5.0))]
    assert longest_idle_s(notes, 0.5, 2) == 4.0


def test_the_sink_takes_nothing_of_a_former_holder(tmp_path):
    sink = CheckingSink(str(tmp_path))
    assert sink.put(0, 5, 1)
    assert sink.put(0, 6, 2)
    assert not sink.put(0, 5, 3)
    assert sink.put(1, 5, 1)
    assert [effect[:3] for effect in sink.effects()] == [(0, 5, 1), (0, 6, 2), (1, 5, 1)]


def test_effects_are_read_in_the_order_of_taking(tmp_path):
    """Ordered by tokens, no history would have an overlap."""
    sink = CheckingSink(str(tmp_path))
    written = [(1, 6, 9, NEW), (0, 6, 9, NEW), (0, 5, 1, OLD), (1, 7, 2, OLD)]
    with closing(sqlite3.connect(tmp_path / "sink.db", isolation_level=None)) as table:
        for effect in written:
            table.execute(
                "INSERT INTO effects (partition, token, position, pid) VALUES (?, ?, ?, ?)", effect
            )
    assert sink.effects() == written
