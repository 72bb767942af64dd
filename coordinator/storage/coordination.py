"""The seam to what nodes agree on: live nodes, the controller, and the leader of each shard.

A node joins with a session and is live until the session ends. One of the nodes is the controller;
controllers are numbered by their epochs, and a shard's state is written only under the newest
controller epoch and only over the version it was made from. Sessions decide when a node takes over;
the two comparisons decide whose writes count.

A controller epoch belongs to the session that campaigned for it, not to the node: a node that
joins again has lost it. A store may go on naming the old session for a while, or for ever. Such a
key counts as no controller, and a campaign replaces exactly the key that was read.

Methods raise `Unavailable` and `Ambiguous` as a log does, and the errors below.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Protocol, TypeVar

from coordinator.core.values.ids import ShardId
from coordinator.storage.log import Damaged
from coordinator.typed_json import parse_dataclass

T = TypeVar("T")
NOBODY = -1


class Deposed(Exception):
    """Another node is the controller now: stop deciding."""


class Conflict(Exception):
    """The shard's state has another version than expected: read again."""


class NodeIdTaken(Exception):
    """Another process has a living session under this node's id. Neither acts for the other."""

    def __init__(self, node_id: int, other: str) -> None:
        super().__init__(
            f"node id {node_id} is taken by another process{other}, which keeps its session; stop "
            "one of the two, or give it another node_id"
        )


def _read(kind: type[T], data: bytes, fields: Mapping[str, str] = MappingProxyType({})) -> T:
    try:
        content = json.loads(data)
        if isinstance(content, dict):
            content = {fields.get(name, name): value for name, value in content.items()}
        return parse_dataclass(kind, content)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"the store does not hold a {kind.__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node and its address. `incarnation` differs between its starts.

    `kafka` is HOST:PORT for Kafka's clients; empty: the node does not serve them. `stopping` asks
    the controller to lead the node's shards elsewhere. `in_sync` holds (shard, leader epoch, nodes
    in sync) for shards that the node leads.
    """

    node_id: int
    host: str
    port: int
    incarnation: str
    stopping: bool = False
    in_sync: tuple[tuple[int, int, tuple[int, ...]], ...] = ()
    kafka: str = ""

    def to_bytes(self) -> bytes:
        """Encode as JSON, for a store. Nodes of versions without `kafka` read it if it is empty."""
        values = asdict(self)
        if not self.kafka:
            del values["kafka"]
        return json.dumps(values).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> NodeInfo:
        """Decode the result of `to_bytes`.

        Raises:
            Damaged: the bytes are something else.
        """
        return _read(cls, data)


@dataclass(frozen=True, slots=True)
class ShardState:
    """A shard as the controller has decided it.

    `leader` is `NOBODY` while no replica is live. `leader_epoch` grows with each leader, which
    fences the shard's log with it. `version` is the store's version of this state: the next state
    is written only over it; 0: the state was never written.
    """

    shard: ShardId
    leader: int = NOBODY
    leader_epoch: int = 0
    in_sync: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()
    version: int = 0

    def to_bytes(self) -> bytes:
        """Encode as JSON, for a store; without the version, which is the store's own."""
        kept = {"epoch" if name == "leader_epoch" else name: v for name, v in asdict(self).items()}
        del kept["version"]
        return json.dumps(kept).encode()

    @classmethod
    def from_bytes(cls, data: bytes, version: int) -> ShardState:
        """Decode the result of `to_bytes`.

        Raises:
            Damaged: the bytes are something else.
        """
        return replace(_read(cls, data, {"epoch": "leader_epoch"}), version=version)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Nodes, controller and shards, as of one moment.

    `controller` is `NOBODY` while there is none, or the store names a session that has ended.
    `lineage` identifies the store's history: another one, and commits that were acknowledged may
    be lost. 0 in stores that lose none. `lineage_number` counts its histories from 1.
    """

    nodes: dict[int, NodeInfo] = field(default_factory=dict)
    controller: int = NOBODY
    controller_epoch: int = 0
    shards: dict[ShardId, ShardState] = field(default_factory=dict)
    lineage: int = 0
    lineage_number: int = 0

    def leader_of(self, shard: ShardId) -> NodeInfo | None:
        """Leader of a shard; None: it has none."""
        state = self.shards.get(shard)
        return None if state is None else self.nodes.get(state.leader)


def loop_time_s() -> float:
    """Seconds of the running loop's monotonic clock, which is virtual in simulations."""
    return asyncio.get_running_loop().time()


async def signals(changed: asyncio.Event, end: Callable[[], object]) -> AsyncIterator[None]:
    """Yield once at the beginning, and again each time `changed` has been set.

    Args:
        end: called when the generator is closed.
    """
    changed.set()
    try:
        while True:
            await changed.wait()
            changed.clear()
            yield
    finally:
        end()


@dataclass(eq=False)
class Session:
    """The session of a node, during which the others see it as live.

    `lost` is set when the session may have ended. `renewed_at` is the time, by `loop_time_s`, at
    which the last successful renewal was *sent*: other nodes wait for a whole `timeout_s` after
    that before they take anything over.
    """

    node: NodeInfo
    timeout_s: float
    """Session timeout that the store has granted, in seconds."""
    renewed_at: float = field(default_factory=loop_time_s)
    lost: asyncio.Event = field(default_factory=asyncio.Event)


class Coordination(Protocol):
    """Services of a shared store for the nodes of one cluster."""

    async def join(self, node: NodeInfo) -> Session:
        """Begin a session. An earlier session of the same process ends at once, and its controller
        epoch with it; one of another process under the same node id is waited for.

        In memory nobody renews a session, so that of another process ends at once, too.

        Raises:
            NodeIdTaken: the other process renews its session.
        """
        ...

    async def announce(self, session: Session, node: NodeInfo) -> None:
        """Replace a session's `NodeInfo`. If another session has taken its place, it is lost."""
        ...

    async def campaign(self, session: Session) -> int | None:
        """Become the controller, if no living session is.

        Returns:
            The new controller epoch, one more than the last; the current one if this session is
            the controller already, since the answer to an earlier campaign may have been lost.
            None: another session is the controller, or was faster, or this session has ended.
        """
        ...

    async def resign(self, session: Session) -> None:
        """Give up being the controller, if this session is."""
        ...

    async def read(self) -> ClusterView:
        """Read everything; linearizable."""
        ...

    async def write(self, controller_epoch: int, *states: ShardState) -> list[ShardState]:
        """Write shards' states, each over its `version`, and return them with their new versions.

        Raises:
            Deposed: the controller epoch is not the newest. Conflict: a version has changed. After
                either some of the states may have been written, but none over another's.
        """
        ...

    def changes(self) -> AsyncIterator[None]:
        """Yield whenever something may have changed, and once at the beginning.

        No change is missed; changes that come close together yield once.
        """
        ...

    async def leave(self, session: Session) -> None:
        """End a session now."""
        ...

    async def close(self) -> None:
        """Close the connection. Sessions end by timeout."""
        ...
