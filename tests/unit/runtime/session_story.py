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


class Actor:
    """A member that answers every order at once: ready for what is warm, done with what drains."""

    def __init__(self, c: VirtualCoordinator, name: str, group_id: str = "g") -> None:
        self.c, self.name, self.group_id = c, name, group_id
        self.number = self.stream_number = self.heard = 0
        self.held: dict[tuple[str, int], int] = {}
        self.member_id = ""
        self.attach()

    def attach(self, **fields: Any) -> None:
        self.stream_number += 1
        self.heard = 0
        self.session: VirtualSession = self.c.open_session()
        held = [
            pb.HeldTopic(name=topic, partitions=[
                pb.PartitionRange(first=partition, last=partition, first_token=token)
            ])
            for (topic, partition), token in self.held.items()
        ]  # fmt: skip
        self.say(attach=pb.Attach(
            group_id=self.group_id, member_name=self.name, incarnation={"id": self.name.encode()},
            stream_number=self.stream_number, topics=[pb.Attach.Topic(name="t", partitions=12)],
            wishes=POLICY, held=held, **fields,
        ))  # fmt: skip

    def say(self, **message: Any) -> None:
        self.session.send(pb.SessionRequest(**message))
        self.answer()

    def beat(self, **fields: Any) -> None:
        self.number += 1
        self.say(heartbeat=pb.SessionHeartbeat(number=self.number, **fields))

    def answer(self) -> None:
        """Do what was ordered since the last look."""
        while self.heard < len(self.session.received):
            message = self.session.received[self.heard]
            self.heard += 1
            if message.HasField("attached"):
                self.member_id = message.attached.member_id or self.member_id
            orders = message.attached.orders if message.HasField("attached") else message.orders
            for topic in orders.topics:
                for each in topic.ranges:
                    self._follow(topic.name, each)

    def _follow(self, topic: str, each: pb.Orders.Range) -> None:
        kinds = {pb.Orders.DRAIN: pb.SessionAck.RELEASED, pb.Orders.LOST: pb.SessionAck.RELEASED,
                 pb.Orders.WARM: pb.SessionAck.READY}  # fmt: skip
        for n in range(each.partitions.last - each.partitions.first + 1):
            partition = each.partitions.first + n
            token = each.partitions.first_token + n if each.partitions.first_token else 0
            if each.order == pb.Orders.ACTIVE:
                self.held[topic, partition] = token
                continue
            if each.order != pb.Orders.WARM:
                token = self.held.pop((topic, partition), token)
            ack = pb.SessionAck.Partition(
                topic=topic, partition=partition, kind=kinds[each.order], token=token,
                handoff_id=each.handoff_id, position=7,
            )  # fmt: skip
            self.session.send(pb.SessionRequest(ack=pb.SessionAck(partitions=[ack])))


def play(c: Recorded) -> list[Actor]:
    """Members come, hand over, are cut off, come back and go; operators look and act."""
    actors = [Actor(c, "w-a"), Actor(c, "w-b")]
    _run(c, actors, 3)
    actors.append(Actor(c, "w-c"))
    _run(c, actors, 8)
    a, b, third = actors
    b.session.cut()
    _run(c, [a, third], 2)
    b.attach()
    _run(c, actors, 2)
    commit(c, a)
    c.send(group.PutDocumentsRequest(
        group_id="g", documents=[group.Document(name="a", content=b"1")]
    ))  # fmt: skip
    c.send(group.FetchDocumentsRequest(group_id="g"))
    third.say(leave=pb.SessionLeave(kind=pb.SessionLeave.DRAIN, within_ms=10_000))
    _run(c, actors, 4)
    b.say(leave=pb.SessionLeave(kind=pb.SessionLeave.RETURN, within_ms=2_000, reason="restart"))
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
        for (_, p), token in member.held.items()
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
                actor.beat()
    c.note_state()


def record(path: Path) -> Recorded:
    """Write the story as a recording, with the hash of its end."""
    c = Recorded(path)
    play(c)
    stepped(c.shard, Unload(), c.now_ms)
    return c


if __name__ == "__main__":
    record(Path(sys.argv[1]))
