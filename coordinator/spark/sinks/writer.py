"""Batches of a group, written exactly once: staged, decided, followed by the table. No Spark."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

from coordinator.assignors import TopicPartition
from coordinator.dial import Credentials
from coordinator.spark.ranges import BatchRanges
from coordinator.spark.sinks.deciding import Decider, Proposal
from coordinator.spark.sinks.protocol import Decision, Sink


class BatchWriter:
    """Writes batches of one group's topic into one sink. Not for several threads at once.

    Args:
        sink: where the rows go.
        coordinator: its address. group, topic: whose offsets a batch moves.
        credentials: TLS and token; None: from environment variables.
        at: called at each of `deciding.STEPS`.
    """

    def __init__(
        self,
        sink: Sink,
        coordinator: str,
        group: str,
        topic: str,
        *,
        credentials: Credentials | None = None,
        at: Callable[[str], None] = lambda step: None,
    ) -> None:
        self.sink, self.topic = sink, topic
        self.decider = Decider(sink, coordinator, group, credentials=credentials, at=at)

    def write(self, rows: Any, batch: BatchRanges) -> bool:
        """Write the rows of a batch and commit it; False if another query has done it.

        Args:
            rows: a pyspark DataFrame, or a pyarrow Table.
        Raises:
            SinkRefused: trying again does not help.
            grpc.RpcError: the coordinator refused, or did not answer for a minute, so the outcome
                is unknown. When Spark runs the batch again, it is looked up.
        """
        token = self.sink.stage(rows, f"{int(time.time()):012}-{uuid.uuid4().hex}")
        if not batch.ranges:
            return True  # It had no rows: the sink has looked at its table, and is warm.
        self.decider.at("staged")
        commits = batch.commits(self.topic)
        return self.decider.decide(
            token,
            Proposal(
                {TopicPartition(self.topic, p): r.stored for p, r in batch.ranges.items()},
                {key: commit.offset for key, commit in commits.items()},
                {key: commit.metadata for key, commit in commits.items()},
            ),
        )

    def recover(self) -> Decision:
        """Have the table follow the newest decision, which a query that was killed may have left.

        The next batch does so by itself. Returns the decision.
        """
        return self.decider.recover()
