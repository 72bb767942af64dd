"""The verdict of a run can be that it is wrong, for each of its reasons."""

import pytest

pytest.importorskip("pyspark", reason="the flights need the extra `demo`")

import pandas as pd

from flights.dataset import read, read_tables
from flights.history import History
from flights.judge import check_rows, counted, enriched, exit_status, tell
from flights.notes import REFUSED, Note
from flights.upgrade import judged

FLIGHTS_CHECKED = 3_000


@pytest.fixture(scope="module")
def true():
    return enriched(read()[:FLIGHTS_CHECKED], read_tables())


@pytest.fixture
def committed(true):
    """Rows as the queries write them: the first half by version 1, which lacks a column."""
    rows = true.assign(version=[1 + (n >= len(true) // 2) for n in range(len(true))])
    rows["made_up"] = rows["made_up"].where(rows["version"] == 2)
    return rows.sample(frac=1, random_state=7)


def test_what_is_known_of_a_flight_is_joined_by_hand_here():
    flights = pd.DataFrame(
        {
            "carrier": ["AA", "UA"], "dest": "IAH", "tailnum": ["N1", None], "origin": "EWR",
            "time_hour": ["2013-01-01T05:00:00Z", "2013-01-01T06:00:00Z"],
            "dep_delay": [16.0, None], "arr_delay": [11.0, None],
        }
    )  # fmt: skip
    tables = {
        "airlines": {"carrier": ["AA", "UA"], "carrier_name": ["American", "United"]},
        "airports": {"dest": ["IAH"], "dest_name": ["Houston"]},
        "planes": {"tailnum": ["N1"], "plane_built": [2009]},
        "weather": {"origin": ["EWR"], "time_hour": ["2013-01-01T05:00:00Z"], "temp": [40.0]},
    }
    rows = enriched(flights, {name: pd.DataFrame(table) for name, table in tables.items()})
    assert rows["carrier_name"].tolist() == ["American", "United"]
    assert rows["plane_age"].fillna(-1).tolist() == [4, -1]
    assert rows["temp"].fillna(-1).tolist() == [40, -1]
    assert rows["made_up"].fillna(-1).tolist() == [5, -1]


def test_every_row_and_column_is_compared(true, committed):
    (text, holds), wrong = check_rows(committed, true)
    assert (holds, wrong) == (True, [])
    assert text.startswith("3,000 rows of 3,000: 0 missing, 0 twice, 0 never fed; all 25 columns")


def test_a_row_that_is_missing_twice_or_was_never_fed_is_counted(true, committed):
    doubled = pd.concat([committed[1:], committed[5:6]])
    doubled.iloc[7, doubled.columns.get_loc("flight")] += 10_000
    (text, holds), _ = check_rows(doubled, true)
    assert not holds
    assert "2 missing, 1 twice, 1 never fed" in text


@pytest.mark.parametrize("column", ["dep_delay", "wind_speed", "carrier_name", "made_up"])
def test_a_value_that_is_off_is_named_in_every_kind_of_column(column, true, committed):
    known = committed.index[committed[column].notna()]
    committed.loc[known[0], column] = committed.loc[known[1:], column].mode()[0]
    committed.loc[known[1], column] = None
    changed = committed.loc[known[:2], column]
    (_, holds), wrong = check_rows(committed, true)
    assert not holds, changed
    assert [line.partition(":")[0] for line in wrong] == [column]


def test_version_1_does_not_write_what_version_2_adds(true, committed):
    early = committed.index[committed["version"] == 1]
    committed.loc[early[0], "made_up"] = 5
    assert not check_rows(committed, true)[0][1]


def test_both_versions_must_have_worked_and_a_frozen_batch_must_have_been_refused(true, committed):
    refused = History((), (), (Note(9.0, "v1", REFUSED, 3),))
    checks, wrong = judged(committed, true, refused)
    assert ([holds for _, holds in checks], wrong) == ([True] * 3, [])
    assert checks[1][0] == "version 1 wrote 1,500 of them, version 2 1,500"
    checks, _ = judged(committed[committed["version"] == 2], true, History((), (), ()))
    assert [holds for _, holds in checks] == [False] * 3


def test_every_flight_is_counted_directly():
    found = counted()
    assert sum(flights for flights, _ in found.values()) == 336_776
    assert found["AS", 2] == (56, 16)


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
