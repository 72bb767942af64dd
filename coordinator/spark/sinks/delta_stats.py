"""Statistics of a staged file as a Delta table keeps them, so that readers can skip files.

From the footer that the writer made. Only what is exact or wider is told: a bound that is too
narrow would hide rows.
"""

from __future__ import annotations

import datetime as dt
import json
from contextlib import suppress
from typing import Any

from coordinator.sources.file_systems import StorePath

MOST_COLUMNS = 32
"""Columns with statistics, as Delta's own writers have by default."""
MOST_TEXT = 32
"""Characters of a bound of a text."""
_HIGHEST = "\U0010ffff"


def stats_of(path: StorePath) -> str:
    """Number of rows, bounds and counts of nulls of the columns that are not nested, as JSON.

    Raises:
        FileNotFoundError: the file is gone.
    """
    import pyarrow.parquet as pq

    with path.open() as file:
        footer = pq.read_metadata(file)
    flat = {field.name for field in footer.schema.to_arrow_schema() if not field.type.num_fields}
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for number in range(footer.num_columns):
        name = footer.schema.column(number).path
        groups = range(footer.num_row_groups)
        statistics = [footer.row_group(group).column(number).statistics for group in groups]
        if name not in flat or not all(
            statistic and statistic.has_null_count for statistic in statistics
        ):
            continue
        nulls[name] = sum(statistic.null_count for statistic in statistics)
        with_values = [statistic for statistic in statistics if statistic.num_values]
        if with_values and all(statistic.has_min_max for statistic in with_values):
            # Times beyond those that Python has are told by no bound.
            with suppress(ValueError, OverflowError):
                _put(least, name, min(statistic.min for statistic in with_values), is_upper=False)
                _put(most, name, max(statistic.max for statistic in with_values), is_upper=True)
        if len(nulls) == MOST_COLUMNS:
            break
    return json.dumps(
        {"numRecords": footer.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}
    )


# --- Inside ---


def _put(bounds: dict[str, Any], name: str, value: Any, *, is_upper: bool) -> None:
    text = _bound_of(value, is_upper=is_upper)
    if text is not None:
        bounds[name] = text


def _bound_of(value: Any, *, is_upper: bool) -> Any:
    """A bound as JSON; None: it is not told. Delta has times in milliseconds."""
    match value:
        case bool() | bytes():
            return None
        case float():
            return None if is_upper else value  # NaN is above all, and in no footer.
        case str():
            return value if len(value) <= MOST_TEXT else value[:MOST_TEXT] + _HIGHEST * is_upper
        case dt.datetime():
            if is_upper and value.microsecond % 1_000:
                value += dt.timedelta(milliseconds=1)
            zone = "" if value.tzinfo is None else "Z"
            return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + zone
        case dt.date():
            return value.isoformat()
        case int():
            return value
    return None  # Decimals: as numbers of JSON they are not exact.
