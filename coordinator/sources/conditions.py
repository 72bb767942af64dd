"""Conditions that rows have to meet to be read.

NaN is greater than every number, as in Spark, and a comparison with null is never met. Statistics
of a row group have it skipped only if they exclude every row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

EQUAL, LESS, LESS_OR_EQUAL, GREATER, GREATER_OR_EQUAL = "=", "<", "<=", ">", ">="
IS_NULL, IS_NOT_NULL = "is null", "is not null"
COMPARISONS = {
    EQUAL: "equal",
    LESS: "less",
    LESS_OR_EQUAL: "less_equal",
    GREATER: "greater",
    GREATER_OR_EQUAL: "greater_equal",
}
"""Operators and the names of pyarrow's functions."""
MOST_VALUES = 64
"""Values of a list above which comparing each costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of a column with values: true if it is so with any of them.

    Args:
        values: Python's, of the type `kind`; none for the two about null.
        kind: the column's pyarrow.DataType in the rows that are asked for.
    """

    column: str
    operator: str
    values: tuple[Any, ...]
    kind: Any

    def mask(self, column: Any) -> Any:
        """Whether each value of a pyarrow.Array meets the condition; null: it does not."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.operator == IS_NULL:
            return pc.is_null(column)
        if self.operator == IS_NOT_NULL:
            return pc.is_valid(column)
        found = None
        for value in self._scalars():
            one = getattr(pc, COMPARISONS[self.operator])(column, value)
            found = one if found is None else pc.or_kleene(found, one)
        if found is None:
            return pa.array([False] * len(column))
        if self.operator in (GREATER, GREATER_OR_EQUAL) and pa.types.is_floating(column.type):
            found = pc.or_kleene(found, pc.is_nan(column))
        return found

    def may_hold(self, statistics: Any, kind: Any, rows: int) -> bool:
        """Whether a row group may have a row that meets the condition.

        Args:
            statistics: of the column, as pyarrow.parquet.Statistics.
            kind: the column's type in the file.
            rows: their number.
        """
        import pyarrow as pa

        nulls = statistics.null_count if statistics.has_null_count else None
        if self.operator == IS_NULL:
            return nulls != 0
        if nulls == rows:
            return False
        # Statistics of floating point numbers leave NaN out.
        is_ordered = kind == self.kind and not pa.types.is_floating(kind)
        if self.operator == IS_NOT_NULL or not is_ordered or not statistics.has_min_max:
            return True
        try:
            least, most = pa.scalar(statistics.min, kind), pa.scalar(statistics.max, kind)
            return any(self._is_within(value, least, most) for value in self._scalars())
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            return True  # Statistics of a type that pyarrow does not read.

    def _is_within(self, value: Any, least: Any, most: Any) -> bool:
        import pyarrow.compute as pc

        if self.operator == EQUAL:
            within = pc.and_(pc.less_equal(least, value), pc.greater_equal(most, value))
            return bool(within.as_py())
        bound = least if self.operator in (LESS, LESS_OR_EQUAL) else most
        return bool(getattr(pc, COMPARISONS[self.operator])(bound, value).as_py())

    def _scalars(self) -> list[Any]:
        import pyarrow as pa

        return [pa.scalar(value, self.kind) for value in self.values]


Conditions = Sequence[Condition]


def condition(column: str, operator: str, values: Sequence[Any], kind: Any) -> Condition | None:
    """A condition; None: it cannot be told in Arrow as Spark would mean it.

    Args:
        values: Python's; those that are None are never met.
    """
    import pyarrow as pa

    values = tuple(value for value in values if value is not None)
    if len(values) > MOST_VALUES or pa.types.is_nested(kind):
        return None
    if any(isinstance(value, float) and math.isnan(value) for value in values):
        return None
    made = Condition(column, operator, values, kind)
    try:
        empty = pa.array([], kind)
        # A value that changes when it takes the column's type would be another condition.
        if any(s.as_py() != v for s, v in zip(made._scalars(), values, strict=True)):
            return None
        made.mask(empty)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None
    return made


def matching(batch: Any, conditions: Conditions) -> Any:
    """The rows of a pyarrow.RecordBatch that meet all conditions."""
    for each in conditions:
        if not batch.num_rows:
            break
        mask = each.mask(batch.column(each.column))
        if mask.null_count or mask.true_count < len(mask):
            batch = batch.filter(mask)
    return batch
