"""Queries with state under an exactly-once sink are refused: Spark keeps state of its own.

A batch that the group gives back, or that another query has done, is read again from the group's
offsets; the state of an aggregation, a join of streams or a deduplication would have its rows
already.
"""

from __future__ import annotations

from typing import Any

from coordinator.spark.progress import shares_of
from coordinator.spark.sinks.protocol import SinkRefused

REASON = (
    "the query keeps state (an aggregation, a deduplication, a limit or a join of streams), of "
    "which Spark's checkpoint and the group would each have their own idea: write its input with "
    "ExactlyOnce, and aggregate what is written"
)


def check_stateless(rows: Any, group: str) -> bool:  # Any: a pyspark DataFrame.
    """Whether it is known that a query keeps no state.

    Of a query of Spark Connect it is known once a batch is through, by its progress.

    Raises:
        SinkRefused: it does.
    """
    if hasattr(rows, "_jdf"):
        is_known, has_state = True, "StateStore" in _lineage(rows)
    else:
        progress = [query.lastProgress for query in rows.sparkSession.streams.active]
        ours = [
            operator
            for operator in progress
            if operator and any(s.group == group for s in shares_of(operator))
        ]
        is_known, has_state = bool(ours), any(operator.stateOperators for operator in ours)
    if has_state:
        raise SinkRefused(REASON)
    return is_known


def _lineage(rows: Any) -> str:
    """Inputs of the batch that Spark has handed out; nothing is run for it."""
    leaves = rows._jdf.queryExecution().analyzed().collectLeaves()
    plans = [leaves.apply(number) for number in range(leaves.size())]
    batches = [leaf for leaf in plans if leaf.getClass().getSimpleName() == "LogicalRDD"]
    return "\n".join(batch.rdd().toDebugString() for batch in batches)
