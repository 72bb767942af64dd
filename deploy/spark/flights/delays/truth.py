"""Reference statistics, computed from the raw tables in pandas, and comparison with them.

Definitions (bands, groupings) are shared with the queries, computation is not.
"""

from __future__ import annotations

import pandas as pd

from flights.delays.bands import BANDS, in_pandas
from flights.delays.groupings import COUNTS, GROUPINGS, LATE_MINUTES, MEASURES, PERCENTILES
from flights.delays.tables import Tables

TOLERANCE = 1e-9
"""Tolerance of means, percentiles and shares: only rounding differs, for minutes are whole."""


def enriched_flights(flights: pd.DataFrame, tables: Tables) -> pd.DataFrame:
    """Enrich flights as the queries do, by joins in pandas."""
    rows = (
        flights.merge(tables.airlines, on="carrier", how="left")
        .merge(tables.airports, on="dest", how="left")
        .merge(tables.planes, on="tailnum", how="left")
        .merge(tables.weather, on=["origin", "time_hour"], how="left")
    )
    assert len(rows) == len(flights), "a join has lost or doubled flights"
    rows["plane_age"] = 2013 - rows["plane_built"]
    return rows


def enrich_directly(flights: pd.DataFrame, tables: Tables) -> pd.DataFrame:
    """Enriched flights with the bands that statistics group by."""
    rows = enriched_flights(flights, tables)
    return rows.assign(**{band.name: in_pandas(band, rows[band.column]) for band in BANDS})


def compute_directly(flights: pd.DataFrame, tables: Tables) -> dict[str, pd.DataFrame]:
    """Compute all statistics, by name."""
    rows = enrich_directly(flights, tables)
    return {name: _summarise(rows, keys) for name, keys in GROUPINGS.items()}


def _summarise(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    delays = rows.assign(
        cancelled=rows["dep_delay"].isna(),
        late=(rows["dep_delay"] > LATE_MINUTES).where(rows["dep_delay"].notna()).astype(float),
    ).groupby(keys)
    columns = {
        "flights": delays.size(),
        "cancelled": delays["cancelled"].sum(),
        "mean_delay": delays["dep_delay"].mean(),
        **{name: delays["dep_delay"].quantile(share) for name, share in PERCENTILES.items()},
        "late_share": delays["late"].mean(),
    }
    return pd.DataFrame(columns).reset_index()


def differences(found: pd.DataFrame, truth: pd.DataFrame, keys: list[str]) -> list[str]:
    """Differences of groups, of counts, and of measures beyond the tolerance, a line each."""
    pairs = truth.merge(found, on=keys, how="outer", suffixes=("", "_found"), indicator="side")
    wrong = []
    for _, pair in pairs.iterrows():
        group = ", ".join(str(pair[key]) for key in keys)
        if pair["side"] != "both":
            wrong.append(f"{group}: {'missing' if pair['side'] == 'left_only' else 'invented'}")
            continue
        for column in (*COUNTS, *MEASURES):
            true, other = pair[column], pair[f"{column}_found"]
            tolerance = TOLERANCE if column in MEASURES else 0
            both_nothing = pd.isna(true) and pd.isna(other)
            # Negated, since comparisons with NaN are false: a missing measure is a difference.
            if not both_nothing and not abs(true - other) <= tolerance:
                wrong.append(f"{group}: {column} is {other}, and should be {true}")
    return wrong
