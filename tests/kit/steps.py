"""Steps of a shard without a driver, and of rules without a shard: each with a bag of its own."""

from __future__ import annotations

from coordinator.core.config import GroupConfig
from coordinator.core.step import ShardContext, Step
from coordinator.core.values.effects import Effects
from coordinator.runtime.payloads import PAYLOADS
from coordinator.shard.inputs import Input, ShardEffects
from coordinator.shard.shard import Shard
from coordinator.testing.virtual import CountingIds


def stepped(shard: Shard, event: Input, now_ms: int) -> ShardEffects:
    effects = ShardEffects()
    shard.step(event, now_ms, effects)
    return effects


def a_step(now_ms: int = 0, config: GroupConfig = GroupConfig()) -> Step:  # noqa: B008  # Frozen.
    return Step(now_ms, Effects(), ShardContext(config, CountingIds(), PAYLOADS))


def restored(
    shard: Shard, now_ms: int, *, sequence: int, next_offset: int, raised: int = 0
) -> ShardEffects:
    effects = ShardEffects()
    shard.restore(now_ms, effects, sequence=sequence, next_offset=next_offset, raised=raised)
    return effects
