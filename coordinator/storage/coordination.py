"""The seam to what nodes agree on: who is alive, who is the controller, who leads each shard.

A node joins with a session and is seen by the others until the session ends. One of the nodes is
the controller; controllers are numbered by their epochs, and a shard's state is written only under
the newest controller epoch and only over the version it was made from. Sessions decide when
somebody tries; the two comparisons decide who is right.

A controller epoch belongs to the session that campaigned for it, not to the node: a node that
joins again has lost it. A store may go on naming the old session for a while, or for ever. Such a
key names nobody, and whoever campaigns replaces exactly the key that was read.

It fails as a log does: `Unavailable` and `Ambiguous`, and with what is below.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Protocol, TypeVar

from coordinator.core.ids import ShardId
from coordinator.storage.log import Damaged
from coordinator.typed_json import parse_dataclass

T = TypeVar("T")
NOBODY = -1


class Deposed(Exception):
    """Somebody else is the controller now: stop deciding."""


class Conflict(Exception):
    """The shard's state is not the one that was thought: read again."""


def _read(kind: type[T], data: bytes, fields: Mapping[str, str] = MappingProxyType({})) -> T:
    try:
        found = json.loads(data)
        if isinstance(found, dict):
            found = {fields.get(name, name): value for name, value in found.items()}
        return parse_dataclass(kind, found)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"the store does not hold a {kind.__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node and where it is reached. `incarnation` differs between its starts.

    `stopping` asks the controller to lead the node's shards elsewhere. `in_sync` says of shards
    that the node leads, by shard and epoch, which nodes keep up with it.
    """

    node_id: int
    host: str
    port: int
    incarnation: str
    stopping: bool = False
    in_sync: tuple[tuple[int, int, tuple[int, ...]], ...] = ()

    def to_bytes(self) -> bytes:
        """As stores keep it."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> NodeInfo:
        """What `to_bytes` made.

        Raises:
            Damaged: it is not that.
        """
        return _read(cls, data)


@dataclass(frozen=True, slots=True)
class ShardState:
    """A shard as the controller has decided it.

    `leader` is `NOBODY` while no replica is live. `leader_epoch` grows with each leader, who
    fences the shard's log with it. `version` is the store's, of this very state: the
    next one is written only over it; 0: it was never written.
    """

    shard: ShardId
    leader: int = NOBODY
    leader_epoch: int = 0
    in_sync: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()
    version: int = 0

    def to_bytes(self) -> bytes:
        """As stores keep it; the version is the store's own."""
        kept = {"epoch" if name == "leader_epoch" else name: v for name, v in asdict(self).items()}
        del kept["version"]
        return json.dumps(kept).encode()

    @classmethod
    def from_bytes(cls, data: bytes, version: int) -> ShardState:
        """What `to_bytes` made.

        Raises:
            Damaged: it is not that.
        """
        return replace(_read(cls, data, {"epoch": "leader_epoch"}), version=version)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """All of it, as of one moment at which it was true.

    `controller` is `NOBODY` too while the store names a session that has ended.
    """

    nodes: dict[int, NodeInfo] = field(default_factory=dict)
    controller: int = NOBODY
    controller_epoch: int = 0
    shards: dict[ShardId, ShardState] = field(default_factory=dict)

    def leader_of(self, shard: ShardId) -> NodeInfo | None:
        """Where a shard is led; None: nowhere."""
        state = self.shards.get(shard)
        return None if state is None else self.nodes.get(state.leader)


def loop_time_s() -> float:
    """The monotonic clock of the running event loop, which is virtual in simulations."""
    return asyncio.get_running_loop().time()


async def signals(changed: asyncio.Event, end: Callable[[], object]) -> AsyncIterator[None]:
    """Yield once at the beginning, and again each time `changed` was set meanwhile.

    Args:
        end: called when nobody listens any more.
    """
    changed.set()
    try:
        while True:
            await changed.wait()
            changed.clear()
            yield
    finally:
        end()


class Session:
    """A node's being seen.

    `lost` is set when it may have ended. `renewed_at` is when the last renewal that succeeded
    was *sent*, by `loop_time_s`: others wait for a whole `timeout_s` after that before they take
    anything over.
    """

    def __init__(self, node: NodeInfo, timeout_s: float, renewed_at: float | None = None) -> None:
        self.node = node
        self.timeout_s = timeout_s
        """As the store has granted it."""
        self.renewed_at = loop_time_s() if renewed_at is None else renewed_at
        self.lost = asyncio.Event()


class Coordination(Protocol):
    """What a shared store does for the nodes of one cluster."""

    async def join(self, node: NodeInfo) -> Session:
        """Be seen. An earlier session of the same node ends at once, and its controller epoch
        with it."""
        ...

    async def announce(self, session: Session, node: NodeInfo) -> None:
        """Say something else of a session's node. If its place was taken, the session is lost."""
        ...

    async def campaign(self, session: Session) -> int | None:
        """Become the controller if no living session is: the new controller epoch, one more than
        the last.

        A session that is the controller already is told its epoch: the answer to an earlier
        campaign may have been lost. None: somebody else is the controller, or was faster, or
        this session has ended. The epoch ends with the session.
        """
        ...

    async def resign(self, session: Session) -> None:
        """Be the controller no longer, if this session is."""
        ...

    async def read(self) -> ClusterView:
        """Linearizable."""
        ...

    async def write(self, controller_epoch: int, state: ShardState) -> ShardState:
        """Write a shard's state over `state.version`; the state with its new version.

        Raises:
            Deposed: the controller epoch is not the newest. Conflict: the version is another one.
        """
        ...

    def changes(self) -> AsyncIterator[None]:
        """Something may have changed: read again. Once at the beginning; never one too few.

        Changes that come close together are told once.
        """
        ...

    async def leave(self, session: Session) -> None:
        """End a session now."""
        ...

    async def close(self) -> None:
        """Hang up. Sessions end by themselves."""
        ...
