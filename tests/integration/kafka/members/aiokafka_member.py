"""A member with aiokafka."""

from __future__ import annotations

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError
from member_lines import Orders, Ownership, option, options

ASSIGNORS = {each.name: each for each in (RangePartitionAssignor, RoundRobinPartitionAssignor)}


class Listener(ConsumerRebalanceListener):
    """Tells of every change."""

    def __init__(self, owned: Ownership) -> None:
        self._owned = owned

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._owned.remove((p.topic, p.partition) for p in revoked)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._owned.replace((p.topic, p.partition) for p in assigned)


async def main() -> None:
    """Poll until told to leave."""
    owned, orders = Ownership(), Orders()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=option("bootstrap"),
        group_id=option("group"),
        client_id=option("client_id"),
        group_instance_id=option("instance"),
        session_timeout_ms=option("session_ms"),
        rebalance_timeout_ms=option("rebalance_ms"),
        max_poll_interval_ms=option("rebalance_ms"),
        heartbeat_interval_ms=300,
        partition_assignment_strategy=[ASSIGNORS[name] for name in option("assignor").split(",")],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        metadata_max_age_ms=2_000,
        **options().get("more", {}),
    )
    consumer.subscribe(option("topics"), listener=Listener(owned))
    await consumer.start()
    while (order := orders.next()) != "leave":
        if order == "commit":
            offsets = {TopicPartition(*partition): offset for partition, offset in owned.offsets()}
            try:
                await consumer.commit(offsets)
                owned.committed()
            except KafkaError as error:
                print(repr(error), file=sys.stderr, flush=True)
                orders.again(order)
        await consumer.getmany(timeout_ms=100)
    await consumer.stop()


if __name__ == "__main__":
    asyncio.run(main())
