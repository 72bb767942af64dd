"""Recordings of a shard's inputs, run again."""

import itertools
import tempfile
from pathlib import Path

from coordinator.core import commands as c
from coordinator.core import requests as q
from coordinator.core.config import GroupConfig
from coordinator.core.errors import ErrorCode
from coordinator.core.ids import ShardId
from coordinator.core.records import GenerationFloor, OffsetCommitted
from coordinator.runtime import codec
from coordinator.runtime.payloads import PAYLOADS
from coordinator.runtime.recording import RecordingShard
from coordinator.runtime.replaying import NoRecording, replay
from coordinator.shard.driver import Patience
from coordinator.shard.effects import Start, Stop
from coordinator.shard.followers import AckPolicy, FetchEntries, FollowersChanged
from coordinator.shard.outbox import Activate
from coordinator.storage.log import Entry
from coordinator.storage.memory import MemoryLog
from coordinator.testing.immediate import ImmediateHost
from timer.clock import VirtualClock

SHARD = ShardId(0)


def target(data: bytes) -> None:
    try:
        found = replay(data.decode(errors="replace").splitlines())
    except (NoRecording, AssertionError):  # The second: no shard ever had such a life.
        return
    assert found.inputs >= len(found.differences) - 1


class NumberedIds:
    """Member ids one after the other."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{next(self._numbers)}"

    def new_session_id(self) -> str:
        return self.new_member_id("session")


def seeds():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording"
        clock = VirtualClock(1_000)
        host = ImmediateHost(
            _log(), clock, lambda: _recorded(path, clock), lambda effects: None, Patience()
        )
        host.handle(Start())
        for event in _life():
            clock.advance(10, host)
            host.handle(event)
        text = path.read_bytes()
    yield text
    lines = text.splitlines(keepends=True)
    yield b"".join(lines[:1])
    yield b"".join(lines[: len(lines) // 2])


def _log() -> MemoryLog:
    log = MemoryLog()
    fence = log.fence_now(SHARD)
    records = (GenerationFloor("g", 3), OffsetCommitted("g", "t", 0, 5, -1, "", 1, None))
    log.append_now(fence, Entry(1, fence.fence_epoch, 0, tuple(map(codec.encode, records))))
    return log


def _recorded(path: Path, clock: VirtualClock) -> RecordingShard:
    config = GroupConfig(group_initial_rebalance_delay_ms=10)
    now_ms = clock.now_ms()
    return RecordingShard(
        path, SHARD, config, NumberedIds(), PAYLOADS, now_ms=now_ms, acks=AckPolicy()
    )


def _life():
    """A member from the first join to the last commit."""
    join = {
        "group_id": "g",
        "session_timeout_ms": 6_000,
        "rebalance_timeout_ms": 6_000,
        "protocol_type": "consumer",
        "protocols": (("range", b""),),
    }
    me = {"group_id": "g", "member_id": "c-1"}
    yield q.JoinGroup(call_id=1, member_id="", client_id="c", **join)
    yield q.JoinGroup(call_id=2, member_id="c-1", client_id="c", **join)
    yield Activate()
    yield Activate()
    yield q.SyncGroup(call_id=3, generation=5, assignments=(("c-1", b"all"),), **me)
    yield q.Heartbeat(call_id=4, generation=5, **me)
    partitions = (q.PartitionCommit("t", 0, 7, expected=5),)
    yield q.CommitOffsets(call_id=5, generation=5, partitions=partitions, atomic=True, **me)
    yield FetchEntries(call_id=6, follower=2, offset=0, min_bytes=1, max_wait_ms=5)
    yield FollowersChanged((2, 3))
    yield q.JoinGroup(call_id=8, member_id="", client_id="d", require_known_member_id=False, **join)
    yield c.CallCancelled(8)
    leaving = (q.LeavingMember("c-1", None, "over"),)
    yield q.LeaveGroup(call_id=7, group_id="g", members=leaving)
    yield Stop(ErrorCode.NOT_COORDINATOR)
