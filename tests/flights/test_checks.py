"""The verdict of a run can be that it is wrong, for each of its reasons."""

import json

import pytest

pytest.importorskip("pyspark", reason="the flights need the extra `demo`")

from flights import dataset
from flights.delays.checks import check_flights, check_kill, check_statistics
from flights.delays.statistics import SUMMARY
from flights.delays.tables import read_flights, read_tables
from flights.delays.truth import compute_directly
from flights.verdict import exit_status, tell
from flights.watching import Happening, Member, View


@pytest.mark.parametrize(
    ("rows", "different", "holds"), [(0, 0, True), (-1, -1, False), (0, -1, False)]
)
def test_a_flight_may_neither_be_missing_nor_be_there_twice(rows, different, holds, tmp_path):
    summary = {
        "flights": dataset.FLIGHTS + rows,
        "different_flights": dataset.FLIGHTS + different,
    }
    (tmp_path / SUMMARY).write_text(json.dumps(summary))
    assert check_flights(tmp_path)[1] is holds


def test_one_number_that_is_off_is_found_and_named():
    flights = read_flights()[:5_000]
    tables = compute_directly(flights, read_tables())
    assert check_statistics(tables, flights)[0][1]
    tables["hour"].loc[0, "cancelled"] += 1
    (_, holds), wrong = check_statistics(tables, flights)
    assert not holds
    assert len(wrong) == 1
    assert wrong[0].startswith("hour: ")


def test_the_one_that_was_killed_must_have_been_removed_and_own_partitions_afterwards():
    removed = Happening(5.0, "spark-2 removed: session expired", "evicted", "spark-2")

    def views(*owned):
        return [View(at_s, "Stable", 1, {}, {0: Member(owner, owner)}, {}) for at_s, owner in owned]

    back = views((1.0, "spark-2"), (9.0, "spark-2"))
    assert check_kill("spark-2", 0.2, back, [removed])[1]
    assert not check_kill("spark-2", 1.0, back, [removed])[1]
    assert not check_kill("spark-2", 0.2, back, [])[1]
    assert not check_kill("spark-2", 0.2, views((1.0, "spark-2"), (9.0, "spark-1")), [removed])[1]


def test_the_exit_status_is_0_only_if_all_holds(capsys):
    assert tell([("this", True), ("that", True)]) == 0
    assert tell([("this", True), ("that", False)], ["why"]) == 1
    assert capsys.readouterr().out.endswith("NOT  that\n     why\n\nVerdict: WRONG.\n")


def test_ctrl_c_ends_the_demo_with_a_line_and_a_status(capsys):
    def interrupted():
        raise KeyboardInterrupt

    assert exit_status(interrupted) == 130
    assert capsys.readouterr().out == "\nStopped by Ctrl-C.\n"
    assert exit_status(lambda: 1) == 1
