"""A story of session members on virtual time, as a recording: run it to write one.

python -m tests.unit.runtime.session_story FILE
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from coordinator.core.values.ids import ShardId
from coordinator.runtime.payloads import PAYLOADS
from coordinator.runtime.recording import RecordingShard
from coordinator.shard.followers import AckPolicy
from coordinator.shard.inputs import Unload
from coordinator.testing.virtual import VirtualCoordinator
from coordinator.testing.virtual_session import VirtualSession
from coordinator.v1 import admin_pb2 as admin
from coordinator.v1 import group_pb2 as group
from coordinator.v1 import session_pb2 as pb
from tests.kit.session_member import ScriptedMember
from tests.kit.steps import stepped

POLICY = pb.GroupPolicy(lease_ms=4_000, join_quiet_ms=0, initial_delay_ms=0, mode="WARM")
HEARTBEAT_MS = 1_000


class Recorded(VirtualCoordinator):
    """A coordinator that writes a recording."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self._path = path
        super().__init__(**settings)

    def _new_shard(self) -> RecordingShard:
        return RecordingShard(
            self._path, ShardId(0), self.settings.groups, self._ids, PAYLOADS,
            now_ms=self.now_ms, acks=AckPolicy(),
        )  # fmt: skip

    def note_state(self) -> None:
        """Write the hash of the state as it is now."""
        assert isinstance(self.shard, RecordingShard)
        self.shard._write_hash()


class Actor(ScriptedMember):
    """A member that answers every order at once: ready for what is warm, done with what drains."""

    def __init__(self, c: VirtualCoordinator, name: str) -> None:
        super().__init__(name, partitions=12, wishes=POLICY)
        self.releases = self.readies = True
        self._c, self._heard = c, 0
        self.open()

    def open(self) -> None:
        """Attach on a new stream."""
        self.session: VirtualSession = self._c.open_session()
        self._heard = 0
        self.say(self.attach())

    def say(self, request: pb.SessionRequest) -> None:
        self.session.send(request)
        self.answer()

    def answer(self) -> None:
        """Do what was ordered since the last look."""
        while self._heard < len(self.session.received):
            message = self.session.received[self._heard]
            self._heard += 1
            for ack in self.hear(message):
                self.session.send(ack)


def play(c: Recorded) -> list[Actor]:
    """Members come, hand over, are cut off, come back and go; operators look and act."""
    actors = [Actor(c, "w-a"), Actor(c, "w-b")]
    _run(c, actors, 3)
    actors.append(Actor(c, "w-c"))
    _run(c, actors, 8)
    a, b, third = actors
    b.session.cut()
    _run(c, [a, third], 2)
    b.open()
    _run(c, actors, 2)
    commit(c, a)
    c.send(group.PutDocumentsRequest(
        group_id="g", documents=[group.Document(name="a", content=b"1")]
    ))  # fmt: skip
    c.send(group.FetchDocumentsRequest(group_id="g"))
    third.say(third.leave("DRAIN", 10_000))
    _run(c, actors, 4)
    b.say(b.leave("RETURN", 2_000, "restart"))
    _run(c, [a], 4)
    c.send(admin.SetGroupPolicyRequest(group_id="g", policy=pb.GroupPolicy(mode="SIMPLE")))
    c.send(admin.DescribeSessionGroupRequest(group_id="g"))
    c.send(admin.EvictMemberRequest(group_id="g", member_name="w-a", gone=True))
    _run(c, [], 6)
    return actors


def commit(c: VirtualCoordinator, member: Actor) -> None:
    """Commit what a member holds, under its tokens."""
    partitions = [
        group.OffsetCommitRequest.Partition(partition_index=p, committed_offset=70, token=token)
        for p, token in member.held.items()
    ]
    c.send(group.OffsetCommitRequest(
        group_id="g", member_id=member.member_id,
        topics=[group.OffsetCommitRequest.Topic(name="t", partitions=partitions)],
    ))  # fmt: skip


def _run(c: Recorded, actors: list[Actor], beats: int) -> None:
    for _ in range(beats):
        c.advance(HEARTBEAT_MS)
        for actor in actors:
            actor.answer()
            if not actor.session.has_ended:
                actor.say(actor.beat())
    c.note_state()


def record(path: Path) -> Recorded:
    """Write the story as a recording, with the hash of its end."""
    c = Recorded(path)
    play(c)
    stepped(c.shard, Unload(), c.now_ms)
    return c


if __name__ == "__main__":
    record(Path(sys.argv[1]))
