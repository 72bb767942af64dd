"""Client library for group members: join a group, get partitions assigned, commit offsets.

    with BlockingMember("localhost:7400", "billing", {"invoices": 12}) as member:
        while True:
            for event in member.poll(timeout=1.0):
                ...                               # Assigned, Revoking, Lost, Stopping
            for partition in member.assignment:
                ...                               # work
            member.commit({partition: next_offset})

A commit is for partitions that the last `poll` handed out, and is refused with StaleMember once
they were given back or lost. Handlers in other threads pass `member.holding(partition)`. A member
that does not poll for `max_poll_interval_ms` (default: five minutes) leaves the group.

`GroupMember` is the same for asyncio. Needs grpcio and protobuf, nothing else.
"""

from coordinator.assignors import TopicPartition
from coordinator.client.config import MemberConfig
from coordinator.client.errors import (
    CommitFailed,
    CoordinatorError,
    FatalError,
    OffsetMismatch,
    RebalanceInProgress,
    StaleMember,
    Unavailable,
)
from coordinator.client.events import Assigned, Lost, RebalanceEvent, Revoking, Stopping
from coordinator.client.holdings import Holding
from coordinator.client.offsets import OffsetAndMetadata
from coordinator.client.session import GroupMember
from coordinator.client.settings import MemberSettings
from coordinator.client.state import MemberState
from coordinator.client.sync import BlockingMember
from coordinator.client.worker import (
    BlockingPartition,
    Partition,
    PartitionRevoked,
    Worker,
)
from coordinator.dial import CannotDial, Credentials

__all__ = [
    "Assigned",
    "BlockingMember",
    "BlockingPartition",
    "CannotDial",
    "CommitFailed",
    "CoordinatorError",
    "Credentials",
    "FatalError",
    "GroupMember",
    "Holding",
    "Lost",
    "MemberConfig",
    "MemberSettings",
    "MemberState",
    "OffsetAndMetadata",
    "OffsetMismatch",
    "Partition",
    "PartitionRevoked",
    "RebalanceEvent",
    "RebalanceInProgress",
    "Revoking",
    "StaleMember",
    "Stopping",
    "TopicPartition",
    "Unavailable",
    "Worker",
]
