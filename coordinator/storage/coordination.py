"""Who is alive, who is the controller, who leads each shard: what a shared store keeps of it."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.ids import ShardId

NOBODY = -1


@dataclass(frozen=True, slots=True)
class ShardState:
    """A shard as the controller has decided it.

    `leader` is `NOBODY` while no replica is live. `epoch` grows with each leader, and is the
    one the leader fences the shard's log with. `version` is the store's, of this very state:
    the next one is written only over it.
    """

    shard: ShardId
    leader: int = NOBODY
    epoch: int = 0
    in_sync: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()
    version: int = 0
