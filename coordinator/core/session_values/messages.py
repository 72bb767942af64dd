"""Messages to members of session groups, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from coordinator.core.ids import NO_OFFSET, NO_TOKEN, TopicPartition


class Order(Enum):
    """Order about a partition. The values are codes."""

    ACTIVE = "active"
    WARM = "warm"
    DRAIN = "drain"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class OrderedPartition:
    """One partition. `remaining_ms`: time that a phase has left; 0: no limit.

    `offset`: committed; `position`: where the copy begins. -1: none.
    """

    topic: str
    partition: int
    order: Order
    token: int = NO_TOKEN
    handoff_id: int = 0
    remaining_ms: int = 0
    offset: int = NO_OFFSET
    position: int = NO_OFFSET


@dataclass(frozen=True, slots=True)
class Orders:
    """A member's orders. `based_on`: the version before, of which it is the difference; -1: whole.

    `answers`: number of the heartbeat that asked for the whole; -1: none did. `why`: why there
    are none. `is_part`: more partitions of the same version follow.
    """

    version: int
    based_on: int
    partitions: tuple[OrderedPartition, ...]
    answers: int = -1
    why: str = ""
    is_part: bool = False


@dataclass(frozen=True, slots=True)
class HeartbeatAck:
    """The newest heartbeat that was taken in, and partitions that it does not renew."""

    number: int
    expiring: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class ToMember:
    """Everything there is to say to a member now. `attached`: it waited, and is a member now."""

    ack: HeartbeatAck | None
    orders: Orders | None
    attached: bool = False
