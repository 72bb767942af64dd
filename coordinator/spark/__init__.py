"""Spark workers as members of a consumer group. Needs the extra `spark`.

Spark starts the workers; the coordinator assigns their partitions. So executors and plain
processes can share one group, and an executor that dies causes a rebalance.
"""

from coordinator.spark.executor import consume, run_members

__all__ = ["consume", "run_members"]
