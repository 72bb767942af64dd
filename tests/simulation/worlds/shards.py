"""Shards under observation: counts of what they do, bugs on demand, who was stepped unloaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator.core.values.commands import Command
from coordinator.shard.inputs import AppendFailed, Input, ShardEffects
from coordinator.shard.shard import Shard
from coordinator.testing.engine.story import Story
from tests.simulation.worlds.checkers.history import Line
from tests.simulation.worlds.stores import InjectedBug

INVARIANTS_EVERY = 8
"""Steps between two checks of all groups of a shard."""
WAITS = {
    "join": "DelayedJoin",
    "sync": "DelayedSync",
    "produce": "DelayedProduce",
    "fetch": "DelayedFetch",
}


class Watch:
    """Observer of the shards of one node, and the bugs to inject into them.

    Args:
        tell: takes a line of the history.
        node: its host's name.
    """

    def __init__(self, story: Story, tell: Callable[[Line], None], node: str) -> None:
        self.story = story
        self.tell = tell
        self.node = node
        self.bugs: set[str] = set()
        """Places of injected bugs: restore, append_failed, step, append, load. Each occurs once."""
        self.shards: list[WatchedShard] = []

    def is_broken(self, step: str) -> bool:
        """True, once, if a bug was put there."""
        if step not in self.bugs:
            return False
        self.bugs.discard(step)
        self.story.count(f"bug struck: {step}")
        self.story.tell(self.node, f"*** the bug in {step} strikes")
        return True

    def count_waits(self) -> None:
        """Add what the shards' purgatories have counted."""
        for shard in self.shards:
            for name, stats in shard.stats().waits.items():
                self.story.count(WAITS[name], sum(stats.counts))
                self.story.count(f"{WAITS[name]} ran out of time", stats.expired)
        self.shards.clear()


class WatchedShard(Shard):
    """A shard that may serve only between a whole `restore` and its first bug."""

    def __init__(self, watch: Watch, *args: Any, **options: Any) -> None:
        super().__init__(*args, wheel_size=20, **options)
        self._watch = watch
        self._serves = self._is_told = False
        self._steps = 0
        watch.shards.append(self)
        handle = self.machine.handle

        def counted(command: Command, now_ms: int, out: Any) -> None:
            watch.story.counts[type(command).__name__] += 1
            handle(command, now_ms, out)

        self.machine.handle = counted  # type: ignore[method-assign]

    def restore(
        self, now_ms: int, out: ShardEffects, *, sequence: int, next_offset: int, raised: int = 0
    ) -> None:
        if self._watch.is_broken("restore"):
            raise InjectedBug("restore is broken")
        super().restore(now_ms, out, sequence=sequence, next_offset=next_offset, raised=raised)
        self._serves = True

    def step(self, event: Input, now_ms: int, out: ShardEffects) -> None:
        self._note()
        try:
            if isinstance(event, AppendFailed) and self._watch.is_broken("append_failed"):
                raise InjectedBug("the handling of AppendFailed is broken")
            super().step(event, now_ms, out)
            if self._watch.is_broken("step"):
                raise InjectedBug("a step is broken")
            self._steps += 1
            if self._steps % INVARIANTS_EVERY == 0:
                self.check()
        except BaseException:
            self._serves = self._is_told = False
            raise

    def beat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> bool:
        self._note()
        is_taken = super().beat(group_id, member_id, instance_id, generation, now_ms)
        if is_taken:
            self._watch.story.counts["Shard.beat"] += 1
        return is_taken

    def _note(self) -> None:
        if not self._serves or not self._is_told:
            self._is_told = True
            self._watch.tell({"op": "stepped", "node": self._watch.node, "loaded": self._serves})
