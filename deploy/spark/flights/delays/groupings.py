"""Which statistics there are: by what flights are grouped, and what is said of each group."""

from __future__ import annotations

from flights.delays.bands import PLANE_AGE, PRECIPITATION, VISIBILITY, WIND

GROUPINGS: dict[str, list[str]] = {
    "carrier": ["carrier", "carrier_name"],
    "carrier_month": ["carrier", "carrier_name", "month"],
    "hour": ["hour"],
    "wind": [WIND.name],
    "visibility": [VISIBILITY.name],
    "precipitation": [PRECIPITATION.name],
    "plane_age": [PLANE_AGE.name],
}
"""Each is a table; its key columns."""

COUNTS = ["flights", "cancelled"]
PERCENTILES = {"p50_delay": 0.5, "p90_delay": 0.9, "p99_delay": 0.99}
MEASURES = ["mean_delay", *PERCENTILES, "late_share"]
"""Delays at departure in minutes, of the flights that left; nothing if none did."""

LATE_MINUTES = 15
"""A flight is late that leaves more than so many minutes behind its time."""
