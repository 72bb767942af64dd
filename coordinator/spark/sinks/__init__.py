"""Sinks of exactly-once queries: Parquet with manifests, Delta, Iceberg, SQL; and how to write one.

`ExactlyOnce` (`coordinator.spark.exactly_once`) drives a `Sink` through their protocol.
"""

from coordinator.spark.sinks.protocol import Decision, Sink, SinkRefused

__all__ = ["Decision", "Sink", "SinkRefused"]
