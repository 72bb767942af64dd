"""A member with kafka-python."""

from __future__ import annotations

import sys

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import CommitFailedError, RebalanceInProgressError, RetriableError
from kafka.structs import OffsetAndMetadata
from member_lines import Orders, Ownership, option, options

ASSIGNORS = {
    each.name: each
    for each in (RangePartitionAssignor, RoundRobinPartitionAssignor, CooperativeStickyAssignor)
}


class Listener(ConsumerRebalanceListener):
    """Tells of every change."""

    def __init__(self, owned: Ownership) -> None:
        self._owned = owned

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._owned.remove((p.topic, p.partition) for p in revoked)

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._owned.add((p.topic, p.partition) for p in assigned)

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self.on_partitions_revoked(lost)


def main() -> None:
    """Poll until told to leave."""
    owned, orders = Ownership(), Orders()
    consumer = KafkaConsumer(
        bootstrap_servers=option("bootstrap"),
        group_id=option("group"),
        client_id=option("client_id"),
        group_instance_id=option("instance"),
        session_timeout_ms=option("session_ms"),
        max_poll_interval_ms=option("rebalance_ms"),
        heartbeat_interval_ms=300,
        partition_assignment_strategy=[ASSIGNORS[name] for name in option("assignor").split(",")],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        metadata_max_age_ms=2_000,
        **options().get("more", {}),
    )
    consumer.subscribe(option("topics"), listener=Listener(owned))
    while (order := orders.next()) != "leave":
        try:
            consumer.poll(timeout_ms=100)
            if order == "commit":
                offsets = {
                    TopicPartition(*partition): OffsetAndMetadata(offset, "", -1)
                    for partition, offset in owned.offsets()
                }
                consumer.commit(offsets)
                owned.committed()
        except (RebalanceInProgressError, CommitFailedError, RetriableError) as error:
            # It raises what can be retried, from poll() too while nobody listens.
            print(error, file=sys.stderr, flush=True)
            if order == "commit":
                orders.again(order)
    consumer.close()


if __name__ == "__main__":
    main()
