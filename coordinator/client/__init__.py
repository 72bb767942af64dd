"""Client library for group members: join a group, get partitions assigned, commit offsets.

    with BlockingMember("localhost:7400", "billing", {"invoices": 12}) as member:
        while True:
            for event in member.poll(timeout=1.0):
                ...                               # Granted, Revoking, Lost, Stopping
            for partition in member.assignment:
                ...                               # work
            member.commit({partition: next_offset})

A commit is for partitions that the last `poll` handed out, and is refused with StaleMember once
they were given back or lost. Handlers in other threads pass `member.holding(partition)`. A member
that does not poll for `max_poll_interval_ms` (default: five minutes) leaves the group.

`Member` is the same for asyncio, and both speak either protocol (`protocol="session"`). Names are
loaded when they are first asked for (PEP 562): a program that imports the package and makes no
member pays for nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coordinator.assignors import TopicPartition
    from coordinator.client.embedding import embedded
    from coordinator.client.embedding.nodes import Embedded
    from coordinator.client.errors import (
        CannotEmbed,
        CommitFailed,
        CoordinatorError,
        FatalError,
        FencedToken,
        NoNode,
        NotReachable,
        OffsetMismatch,
        RebalanceInProgress,
        StaleMember,
        Unavailable,
    )
    from coordinator.client.member.blocking import BlockingMember
    from coordinator.client.member.events import (
        Granted,
        Lost,
        MemberEvent,
        Resumed,
        Revoking,
        Stopping,
        Suspended,
        Warming,
    )
    from coordinator.client.member.face import Member
    from coordinator.client.member.ledger import Holding
    from coordinator.client.member.state import MemberState
    from coordinator.client.offsets import OffsetAndMetadata
    from coordinator.client.settings.typed import MemberSettings, PolicyWishes, WorkerSettings
    from coordinator.client.worker import (
        OFFSETS_TABLE,
        BlockingPartition,
        Partition,
        PartitionRevoked,
        Worker,
    )
    from coordinator.dial import CannotDial, Credentials

__all__ = [
    "OFFSETS_TABLE",
    "BlockingMember",
    "BlockingPartition",
    "CannotDial",
    "CannotEmbed",
    "CommitFailed",
    "CoordinatorError",
    "Credentials",
    "Embedded",
    "FatalError",
    "FencedToken",
    "Granted",
    "Holding",
    "Lost",
    "Member",
    "MemberEvent",
    "MemberSettings",
    "MemberState",
    "NoNode",
    "NotReachable",
    "OffsetAndMetadata",
    "OffsetMismatch",
    "Partition",
    "PartitionRevoked",
    "PolicyWishes",
    "RebalanceInProgress",
    "Resumed",
    "Revoking",
    "StaleMember",
    "Stopping",
    "Suspended",
    "TopicPartition",
    "Unavailable",
    "Warming",
    "Worker",
    "WorkerSettings",
    "embedded",
]

_NAMES = {
    "coordinator.assignors": "TopicPartition",
    "coordinator.client.embedding": "embedded",
    "coordinator.client.embedding.nodes": "Embedded",
    "coordinator.client.errors": "CannotEmbed CommitFailed CoordinatorError FatalError FencedToken "
    "NoNode NotReachable OffsetMismatch RebalanceInProgress StaleMember Unavailable",
    "coordinator.client.member.blocking": "BlockingMember",
    "coordinator.client.member.events": "Granted Lost MemberEvent Resumed Revoking Stopping "
    "Suspended Warming",
    "coordinator.client.member.face": "Member",
    "coordinator.client.member.ledger": "Holding",
    "coordinator.client.member.state": "MemberState",
    "coordinator.client.offsets": "OffsetAndMetadata",
    "coordinator.client.settings.typed": "MemberSettings PolicyWishes WorkerSettings",
    "coordinator.client.worker": "BlockingPartition OFFSETS_TABLE Partition "
    "PartitionRevoked Worker",
    "coordinator.dial": "CannotDial Credentials",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
"""Module of each name."""


if not TYPE_CHECKING:  # For type checkers, it would make every name of the package exist.

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
