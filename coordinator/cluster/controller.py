"""The controller's decisions: an event goes in, the shard states that follow from it come out.

It waits for nothing and writes nothing. Its runner feeds events one after the other, and writes
each state over the version it was made from, under the controller's own epoch. If a write fails,
another node is the controller: the runner drops this one, and the next one starts from the states
in the store.

Source: Kafka `KafkaController`: `onBrokerFailure`, `onBrokerStartup`, `doControlledShutdown`,
`checkAndTriggerAutoLeaderRebalance`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from coordinator.cluster import elections, placement
from coordinator.cluster.elections import Elected
from coordinator.core.values.ids import ShardId
from coordinator.storage.coordination import NOBODY, ShardState


@dataclass(frozen=True, slots=True)
class NodesChanged:
    """The set of live nodes has changed."""

    live: frozenset[int]


@dataclass(frozen=True, slots=True)
class ShutdownRequested:
    """A node wants to stop: its shards are to be led elsewhere. It stays live until it leaves."""

    node: int


@dataclass(frozen=True, slots=True)
class ShutdownCancelled:
    """A node no longer wants to stop, and may lead again."""

    node: int


@dataclass(frozen=True, slots=True)
class InSyncChanged:
    """A leader reports the nodes in sync with it. A report of an older leader epoch is ignored."""

    shard: ShardId
    leader_epoch: int
    in_sync: frozenset[int]


@dataclass(frozen=True, slots=True)
class MoveRequested:
    """An operator wants other replicas for a shard, the first of them preferred."""

    shard: ShardId
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ElectRequested:
    """An operator wants the preferred leader of a shard to lead it."""

    shard: ShardId


@dataclass(frozen=True, slots=True)
class BalanceTick:
    """It is time to compare leaders with preferred leaders."""


Event = (
    NodesChanged
    | ShutdownRequested
    | ShutdownCancelled
    | InSyncChanged
    | MoveRequested
    | ElectRequested
    | BalanceTick
)


class Controller:
    """All shards of a cluster.

    Args:
        states: of every shard, as the store holds them; shards that never had a leader have a
            state without replicas.
        factor: replicas of a shard, as far as there are live nodes.
        imbalance: fraction of the shards, 0 to 1, that may be led by nodes other than their
            preferred leaders before `BalanceTick` moves them.
        moves_at_once: greatest number of shards that change leaders at one tick.
        standbys: True if replicas follow their leaders, so that some are in sync; False: every
            live node is as good as another.
    """

    def __init__(
        self,
        states: Iterable[ShardState],
        *,
        factor: int = 2,
        imbalance: float = 0.1,
        moves_at_once: int = 4,
        standbys: bool = True,
    ) -> None:
        self.shards = {state.shard: state for state in states}
        self.live: frozenset[int] = frozenset()
        self.stopping: frozenset[int] = frozenset()
        self._factor = factor
        self._imbalance = imbalance
        self._moves_at_once = moves_at_once
        self._standbys = standbys

    def step(self, event: Event) -> list[ShardState]:
        """The states that change, in the order of their shards."""
        before = dict(self.shards)
        match event:
            case NodesChanged():
                self._nodes_changed(event.live)
            case ShutdownRequested():
                self._shutdown_requested(event.node)
            case ShutdownCancelled():
                self.stopping -= {event.node}
                self._place()
            case InSyncChanged():
                self._in_sync_changed(event)
            case MoveRequested():
                self._move_requested(event)
            case ElectRequested():
                self._elect(event.shard, elections.preferred)
            case BalanceTick():
                self._balance()
        return [self.shards[s] for s in sorted(before) if self.shards[s] != before[s]]

    def written(self, state: ShardState) -> None:
        """The store has taken a state; `state.version` is the one it has now."""
        self.shards[state.shard] = state

    def led_by(self, node: int) -> list[ShardId]:
        return [s for s, state in sorted(self.shards.items()) if state.leader == node]

    @property
    def is_astray(self) -> bool:
        """True if more shards than are tolerated are led by others than their preferred leaders."""
        return len(self._astray()) > self._imbalance * len(self.shards)

    # --- Events ---

    def _nodes_changed(self, live: frozenset[int]) -> None:
        self.live = live
        self.stopping &= live
        self._place()
        for shard in sorted(self.shards):
            state = self.shards[shard]
            staying = tuple(node for node in state.in_sync if node in live)
            if staying and staying != state.in_sync:
                self.shards[shard] = state = replace(state, in_sync=staying)
            if state.leader not in live:
                self._elect(shard, elections.offline)

    def _shutdown_requested(self, node: int) -> None:
        self.stopping |= {node}
        self._place()
        staying = self.live - self.stopping
        for shard in self.led_by(node):
            state = self.shards[shard]
            elected = elections.controlled_shutdown(
                state.replicas, state.in_sync, self.live, self.stopping
            )
            # With nobody in sync, a live replica loads while this node still serves.
            self._lead(shard, elected or elections.offline(state.replicas, (), staying))

    def _in_sync_changed(self, event: InSyncChanged) -> None:
        state = self.shards[event.shard]
        if event.leader_epoch != state.leader_epoch:
            return
        # In the order of the replicas; a leader that is none of them any more comes last.
        order = (*state.replicas, state.leader)
        in_sync = tuple(
            dict.fromkeys(
                node
                for node in order
                if node == state.leader or (node in event.in_sync and node in self.live)
            )
        )
        self.shards[event.shard] = replace(state, in_sync=in_sync)
        if state.leader not in state.replicas:
            self._elect(event.shard, elections.reassignment)

    def _move_requested(self, event: MoveRequested) -> None:
        self.shards[event.shard] = replace(self.shards[event.shard], replicas=event.replicas)
        if self.shards[event.shard].leader not in event.replicas:
            # If none of the new ones is in sync yet, the leader stays until one is.
            self._elect(event.shard, elections.reassignment)

    def _balance(self) -> None:
        self._level()
        if not self.is_astray:
            return
        moved = 0
        for shard in self._astray():
            if moved < self._moves_at_once:
                moved += self._elect(shard, elections.preferred)

    # --- Inside ---

    def _astray(self) -> list[ShardId]:
        return [
            shard
            for shard, state in sorted(self.shards.items())
            if state.replicas
            and state.leader != state.replicas[0]
            and state.replicas[0] in self.live - self.stopping
        ]

    def _level(self) -> None:
        """Move replicas to nodes that have fewer than others, a few shards at a time."""
        current = {int(s): state.replicas for s, state in self.shards.items()}
        placed = placement.level(current, self.live - self.stopping)
        moved = 0
        for shard in sorted(self.shards):
            state = self.shards[shard]
            if placed[shard] != state.replicas and moved < self._moves_at_once:
                moved += 1
                self._move_requested(MoveRequested(shard, placed[shard]))

    def _place(self) -> None:
        """Give replicas to shards that lack live ones."""
        current = {int(s): state.replicas for s, state in self.shards.items()}
        staying = self.live - self.stopping
        placed = placement.complete(current, staying, self._factor)
        if not any(current.values()):
            placed = placement.level(placed, staying)
        for shard, state in self.shards.items():
            if placed[shard] != state.replicas:
                self.shards[shard] = replace(state, replicas=placed[shard])

    def _elect(self, shard: ShardId, strategy: Callable[..., Elected | None]) -> bool:
        state = self.shards[shard]
        in_sync = state.in_sync if self._standbys else tuple(self.live)
        elected = strategy(state.replicas, in_sync, self.live - self.stopping)
        if elected is None and strategy is elections.offline:
            # A node that is about to stop is better than none.
            elected = strategy(state.replicas, state.in_sync, self.live)
            if elected is None and state.leader != NOBODY:
                # The in-sync replicas are kept: one of them may come back first.
                self.shards[shard] = replace(
                    state, leader=NOBODY, leader_epoch=state.leader_epoch + 1
                )
        return self._lead(shard, elected)

    def _lead(self, shard: ShardId, elected: Elected | None) -> bool:
        state = self.shards[shard]
        if elected is None or elected.leader == state.leader:
            return False
        in_sync = elected.in_sync if self._standbys else (elected.leader,)
        self.shards[shard] = replace(
            state, leader=elected.leader, in_sync=in_sync, leader_epoch=state.leader_epoch + 1
        )
        return True
