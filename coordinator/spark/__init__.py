"""Spark workers as members of a consumer group. Needs the extra `spark`.

Spark starts the workers; the group tells them what to work on. Their partitions are
handed out by the coordinator, so executors and plain processes share one group, and an
executor that dies is a rebalance for the others.
"""

from coordinator.spark.executor import consume, run_members
from coordinator.spark.source import ArrowLog, write_arrow_log

__all__ = ["ArrowLog", "consume", "run_members", "write_arrow_log"]
