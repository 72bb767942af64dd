"""Entries about nodes and shards in a shared store. The first byte chooses the kind."""

from coordinator.core.ids import ShardId
from coordinator.storage.coordination import NodeInfo, ShardState
from coordinator.storage.log import CannotOpen, Damaged
from coordinator.storage.meta import new_meta, shards_of


def target(data: bytes) -> None:
    kind, rest = data[:1], data[1:]
    try:
        if kind == b"m":
            assert shards_of(rest, None) > 0
        elif kind == b"n":
            node = NodeInfo.from_bytes(rest)
            assert NodeInfo.from_bytes(node.to_bytes()) == node
        else:
            state = ShardState.from_bytes(rest, 3)
            assert ShardState.from_bytes(state.to_bytes(), 3) == state
    except (CannotOpen, Damaged):
        return


def seeds():
    yield b"m" + new_meta(16)
    yield b"n" + NodeInfo(1, "host", 7400, "x", True, ((3, 4, (1, 2)),)).to_bytes()
    yield b"n" + NodeInfo(2, "", 0, "").to_bytes()
    yield b"s" + ShardState(ShardId(3), 1, 7, (1, 2), (2, 1)).to_bytes()
    yield b"s" + ShardState(ShardId(0)).to_bytes()
