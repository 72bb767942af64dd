"""Spark workers as members of a consumer group. Needs the extra `spark`.

Spark starts the workers; the group tells them what to work on. Their partitions are
handed out by the coordinator, so executors and plain processes share one group, and an
executor that dies is a rebalance for the others.
"""

from coordinator.spark.executor import consume, run_members

__all__ = ["consume", "run_members"]
