"""Definitions of the statistics: groupings of flights, and measures of each group."""

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
"""Key columns of each table, by its name."""

COUNTS = ["flights", "cancelled"]
PERCENTILES = {"p50_delay": 0.5, "p90_delay": 0.9, "p99_delay": 0.99}
MEASURES = ["mean_delay", *PERCENTILES, "late_share"]
"""Delays at departure in minutes, of the flights that left; null if none did."""

LATE_MINUTES = 15
"""Minutes of delay above which a flight counts as late."""
