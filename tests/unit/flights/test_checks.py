"""The verdict of a run can be that it is wrong, for each of its reasons."""

import pytest

pytest.importorskip("pyspark", reason="the flights need the extra `demo`")

import pandas as pd

from flights.delays.checks import (
    check_kill,
    check_rows,
    check_statistics,
    check_upgrade,
    check_versions,
    check_zombie,
)
from flights.delays.tables import read_flights, read_tables
from flights.delays.truth import compute_directly, enriched_flights
from flights.notes import REFUSED, WORKS, Note
from flights.verdict import exit_status, tell
from flights.watching import Happening, Member, View

FLIGHTS_CHECKED = 3_000


@pytest.fixture(scope="module")
def fed():
    return read_flights()[:FLIGHTS_CHECKED], read_tables()


@pytest.fixture
def committed(fed):
    """Rows as the queries write them: the first half by version 1, which lacks a column."""
    rows = enriched_flights(*fed)
    rows["time_hour"] = pd.to_datetime(rows["time_hour"], utc=True)
    rows["version"] = [1 + (number >= len(rows) // 2) for number in range(len(rows))]
    rows["made_up"] = (rows["dep_delay"] - rows["arr_delay"]).where(rows["version"] == 2)
    return rows.sample(frac=1, random_state=7)


def test_every_row_and_column_is_compared(fed, committed):
    (text, holds), wrong = check_rows(committed, *fed)
    assert (holds, wrong) == (True, [])
    assert text.startswith("3,000 rows of 3,000: 0 missing, 0 twice, 0 never fed; all 25 columns")
    assert check_versions(committed) == (
        "version 1 wrote 1,500 of the rows, and version 2 1,500", True
    )  # fmt: skip
    assert not check_versions(committed[committed["version"] == 2])[1]


def test_a_row_that_is_missing_twice_or_was_never_fed_is_counted(fed, committed):
    doubled = pd.concat([committed[1:], committed[5:6]])
    doubled.iloc[7, doubled.columns.get_loc("flight")] += 10_000
    (text, holds), _ = check_rows(doubled, *fed)
    assert not holds
    assert "2 missing, 1 twice, 1 never fed" in text


@pytest.mark.parametrize("column", ["dep_delay", "wind_speed", "carrier_name", "made_up"])
def test_a_value_that_is_off_is_named_in_every_kind_of_column(column, fed, committed):
    known = committed.index[committed[column].notna()]
    committed.loc[known[0], column] = committed.loc[known[1:], column].mode()[0]
    committed.loc[known[1], column] = None
    changed = committed.loc[known[:2], column]
    (_, holds), wrong = check_rows(committed, *fed)
    assert not holds, changed
    assert [line.partition(":")[0] for line in wrong] == [column]


def test_version_1_does_not_write_what_version_2_adds(fed, committed):
    early = committed.index[committed["version"] == 1]
    committed.loc[early[0], "made_up"] = 5
    assert not check_rows(committed, *fed)[0][1]


def test_a_zombie_must_have_been_refused_before_it_did_anything_else():
    def noted(*kinds):
        return [Note(10.0 + n, "old", kind, 0) for n, kind in enumerate(kinds)]

    assert check_zombie("old", 10.0, noted(REFUSED, WORKS))[1]
    assert not check_zombie("old", 10.0, noted(WORKS, REFUSED))[1]
    assert not check_zombie("old", 10.5, noted(REFUSED))[1]
    assert not check_zombie("old", 10.0, [Note(10.0, "new", REFUSED, 0)])[1]


def test_an_upgrade_is_done_when_the_rest_was_done_without_version_1():
    new, old = Note(12.0, "new", WORKS, 0), Note(12.0, "old", WORKS, 0)
    assert check_upgrade("old", 11.0, 0, [Note(10.0, "old", WORKS, 0), new])[1]
    assert not check_upgrade("old", 11.0, 0, [new, old])[1]
    assert not check_upgrade("old", 11.0, -9, [new])[1]
    assert not check_upgrade("old", 11.0, 0, [])[1]


def test_one_number_that_is_off_is_found_and_named():
    flights = read_flights()[:5_000]
    tables = compute_directly(flights, read_tables())
    assert check_statistics(tables, flights, read_tables())[0][1]
    tables["hour"].loc[0, "cancelled"] += 1
    (_, holds), wrong = check_statistics(tables, flights, read_tables())
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
