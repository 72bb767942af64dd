"""Recordings of a shard's inputs, run again."""

import itertools
import tempfile
from pathlib import Path

from coordinator.core import commands as c
from coordinator.core.config import GroupConfig
from coordinator.core.ids import ShardId
from coordinator.core.records import GenerationFloor, OffsetCommitted
from coordinator.runtime import codec
from coordinator.runtime.payloads import PAYLOADS
from coordinator.runtime.recording import RecordingShard
from coordinator.runtime.replaying import NoRecording, replay
from coordinator.shard.outbox import Appended, Tick, Unload
from coordinator.shard.replicas import AckPolicy, FetchEntries, FollowersChanged


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


def seeds():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording"
        shard = RecordingShard(
            path,
            ShardId(0),
            GroupConfig(group_initial_rebalance_delay_ms=10),
            NumberedIds(),
            PAYLOADS,
            now_ms=1_000,
            acks=AckPolicy(),
        )
        shard.replay(
            [GenerationFloor("g", 3), OffsetCommitted("g", "t", 0, 5, -1, "", 1, None)], 1_000
        )
        shard.restore(1_000, sequence=1, next_offset=2)
        now_ms, sequence = 1_000, 1
        for event in _life():
            now_ms += 10
            outbox = shard.step(event, now_ms)
            while outbox.append is not None:
                sequence = outbox.append.sequence
                encoded = tuple(map(codec.encode, outbox.append.records))
                outbox = shard.step(Appended(sequence, encoded), now_ms)
        text = path.read_bytes()
    yield text
    lines = text.splitlines(keepends=True)
    yield b"".join(lines[:1])
    yield b"".join(lines[: len(lines) // 2])


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
    yield c.JoinGroup(call_id=1, member_id="", client_id="c", **join)
    yield c.JoinGroup(call_id=2, member_id="c-1", client_id="c", **join)
    yield Tick()
    yield Tick()
    yield c.SyncGroup(call_id=3, generation=5, assignments=(("c-1", b"all"),), **me)
    yield c.Heartbeat(call_id=4, generation=5, **me)
    partitions = (c.PartitionCommit("t", 0, 7, expected=5),)
    yield c.CommitOffsets(call_id=5, generation=5, partitions=partitions, atomic=True, **me)
    yield FetchEntries(call_id=6, follower=2, offset=0, min_bytes=1, max_wait_ms=5)
    yield FollowersChanged((2, 3))
    yield c.CallCancelled(6)
    leaving = (c.LeavingMember("c-1", None, "over"),)
    yield c.LeaveGroup(call_id=7, group_id="g", members=leaving)
    yield Unload()
