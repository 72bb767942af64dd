"""Steps of a shard without a driver: each with a bag of its own."""

from __future__ import annotations

from coordinator.shard.inputs import Input, ShardEffects
from coordinator.shard.shard import Shard


def stepped(shard: Shard, event: Input, now_ms: int) -> ShardEffects:
    effects = ShardEffects()
    shard.step(event, now_ms, effects)
    return effects


def restored(
    shard: Shard, now_ms: int, *, sequence: int, next_offset: int, raised: int = 0
) -> ShardEffects:
    effects = ShardEffects()
    shard.restore(now_ms, effects, sequence=sequence, next_offset=next_offset, raised=raised)
    return effects
