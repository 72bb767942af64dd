"""Bands, the truth, and the comparison, which must be able to object."""

import pytest

pytest.importorskip("pyspark", reason="the flights need the extra `demo`")

import pandas as pd

from flights.delays.bands import BANDS, PLANE_AGE, UNKNOWN, in_pandas
from flights.delays.groupings import GROUPINGS
from flights.delays.tables import Tables
from flights.delays.truth import compute_directly, differences


@pytest.fixture
def tables():
    airlines = {"carrier": ["AA", "UA"], "carrier_name": ["American", "United"]}
    weather = {
        "origin": ["EWR"],
        "time_hour": ["t1"],
        "temp": [40.0],
        "wind_speed": [12.0],
        "precipitation": [0.02],
        "visibility": [10.0],
    }
    planes = {"tailnum": ["N1"], "plane_built": [2009], "manufacturer": ["X"], "seats": [100]}
    airports = {"dest": ["IAH"], "dest_name": ["Houston"]}
    return Tables(*map(pd.DataFrame, (airlines, airports, planes, weather)))


@pytest.fixture
def flights():
    """Four of American: on time, 16 minutes late, 15 minutes late, cancelled; one of United."""
    return pd.DataFrame(
        {
            "carrier": ["AA", "AA", "AA", "AA", "UA"],
            "month": 1,
            "hour": [6, 6, 7, 7, 7],
            "time_hour": ["t1", "t1", "t2", "t2", "t2"],
            "origin": "EWR",
            "dest": "IAH",
            "tailnum": ["N1", "N2", "N1", None, "N1"],
            "dep_delay": [0.0, 16.0, 15.0, None, None],
        }
    )


@pytest.mark.parametrize("band", BANDS, ids=lambda band: band.name)
def test_a_class_begins_at_its_edge_and_ends_before_the_next(band):
    below = [band.edges[0] - 1, *[edge - 0.001 for edge in band.edges[1:]]]
    assert in_pandas(band, pd.Series(band.edges)).tolist() == list(band.labels)
    assert in_pandas(band, pd.Series(below)).tolist() == [UNKNOWN, *band.labels[:-1]]
    assert in_pandas(band, pd.Series([1e9, None])).tolist() == [band.labels[-1], UNKNOWN]


def test_statistics_are_those_worked_out_by_hand(flights, tables):
    carriers = compute_directly(flights, tables)["carrier"].set_index("carrier")
    american = carriers.loc["AA"]
    assert (american["flights"], american["cancelled"]) == (4, 1)
    assert american["mean_delay"] == pytest.approx(31 / 3)
    assert american["p50_delay"] == 15
    assert american["p90_delay"] == pytest.approx(15.8)
    assert american["late_share"] == pytest.approx(1 / 3), "15 minutes are not late"
    assert carriers.loc["UA", "cancelled"] == 1
    assert pd.isna(carriers.loc["UA", "mean_delay"])


def test_what_is_not_known_has_a_class_of_its_own_and_no_flight_is_lost(flights, tables):
    found = compute_directly(flights, tables)
    assert found.keys() == GROUPINGS.keys()
    assert {table["flights"].sum() for table in found.values()} == {len(flights)}
    ages = found["plane_age"].set_index(PLANE_AGE.name)["flights"].to_dict()
    assert ages == {"0–4": 3, UNKNOWN: 2}


def test_the_comparison_accepts_the_same_and_objects_to_anything_else(flights, tables):
    truth = compute_directly(flights, tables)["carrier_month"]
    keys = GROUPINGS["carrier_month"]

    def objections(**changes):
        found = truth.copy()
        for column, value in changes.items():
            found.loc[0, column] = value
        return differences(found, truth, keys)

    assert objections() == []
    assert objections(mean_delay=truth["mean_delay"][0] + 1e-12) == []
    assert objections(flights=5) == ["AA, American, 1: flights is 5, and should be 4"]
    assert len(objections(mean_delay=truth["mean_delay"][0] + 1e-6)) == 1
    assert len(objections(p99_delay=None)) == 1
    assert len(objections(late_share=float("nan"), cancelled=0)) == 2
    assert objections(month=2) == ["AA, American, 1: missing", "AA, American, 2: invented"]
    assert differences(truth[1:], truth, keys) == ["AA, American, 1: missing"]
    doubled = pd.concat([truth, truth[:1].assign(flights=9)])
    assert len(differences(doubled, truth, keys)) == 1
