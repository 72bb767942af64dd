"""Clients, a coordinator that dies, and a log that fails at any append; all of one seed.

The coordinator is the real shard on virtual time. What the clients are told goes into a
history, and the checkers of `tests/checkers` compare it with what the log holds in the end.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import random
from typing import Any

from coordinator.runtime import codec
from coordinator.testing import VirtualCoordinator
from coordinator.v1 import group_pb2 as pb
from coordinator.v1.errors_pb2 import ErrorCode
from tests.checkers.history import Line

GROUPS = ("g0", "g1")
CLIENTS_A_GROUP = 3
PARTITIONS = ("t-0", "t-1", "t-2", "t-3")
SESSION_MS = 600
STEPS = 200
FAILURES = ("ambiguous", "lost", "unavailable", "too_large", "fenced")
GONE = ("UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID")


class Client:
    """A member that does what the answers tell it; it may fall silent and come back."""

    def __init__(self, world: World, group: str, name: str) -> None:
        self.world, self.group, self.name = world, group, name
        self.member_id = ""
        self.generation = -1
        self.partitions: list[str] = []
        self.next = "join"
        self.call: Any = None
        self.began = 0.0
        self.sent: list[tuple[str, int]] = []  # The commit that is under way.

    def act(self) -> None:
        self.hear_what_is_answered()
        if self.call is None:
            getattr(self, self.next)()

    def hear_what_is_answered(self) -> None:
        if self.call is not None and self.call.done:
            call, self.call = self.call, None
            self.hear(call.response)

    def send(self, request: Any) -> None:
        self.began = self.world.now
        self.call = self.world.c.send(request)

    # --- What it asks ---

    def join(self) -> None:
        self.send(
            pb.JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                member_id=self.member_id,
                protocol_type="simulation",
                protocols=[{"name": "share"}],
                client_id=self.name,
            )
        )

    def sync(self) -> None:
        self.send(
            pb.SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                assignments=self.assignments,
            )
        )

    def work(self) -> None:
        if self.partitions and self.world.dice.random() < 0.4:
            self.commit()
        else:
            self.beat()

    def beat(self) -> None:
        self.send(
            pb.HeartbeatRequest(
                group_id=self.group, generation_id=self.generation, member_id=self.member_id
            )
        )

    def commit(self) -> None:
        partition = self.world.dice.choice(self.partitions)
        offset = self.world.next_offset(self.group, partition)
        self.sent = [(partition, offset)]
        topic, _, number = partition.partition("-")
        self.send(
            pb.OffsetCommitRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                topics=[
                    {
                        "name": topic,
                        "partitions": [
                            {"partition_index": int(number), "committed_offset": offset}
                        ],
                    }
                ],
            )
        )

    # --- What it hears ---

    def hear(self, response: Any) -> None:
        match response:
            case pb.JoinGroupResponse():
                self.hear_joined(response)
            case pb.SyncGroupResponse():
                self.hear_synced(response)
            case pb.HeartbeatResponse():
                self.obey(ErrorCode.Name(response.error_code))
            case pb.OffsetCommitResponse():
                self.hear_committed(response)

    def hear_joined(self, response: pb.JoinGroupResponse) -> None:
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif response.error_code == ErrorCode.NONE:
            self.member_id, self.generation = response.member_id, response.generation_id
            self.tell("joined", generation=self.generation, leader=response.leader)
            members = [m.member_id for m in response.members]
            self.assignments = [
                {
                    "member_id": member,
                    "assignment": json.dumps(list(PARTITIONS[n :: len(members)])).encode(),
                }
                for n, member in enumerate(members)
            ]
            self.next = "sync"
        elif ErrorCode.Name(response.error_code) in GONE:
            self.member_id = ""

    def hear_synced(self, response: pb.SyncGroupResponse) -> None:
        if response.error_code != ErrorCode.NONE:
            self.obey(ErrorCode.Name(response.error_code))
            return
        self.partitions = json.loads(response.assignment or b"[]")
        self.tell("assigned", generation=self.generation, partitions=self.partitions)
        self.next = "work"

    def hear_committed(self, response: pb.OffsetCommitResponse) -> None:
        answer = ErrorCode.Name(response.topics[0].partitions[0].error_code)
        self.told_of_commit(answer)
        self.obey(answer)

    def told_of_commit(self, answer: str) -> None:
        for partition, offset in self.sent:
            self.tell("committed", partition=partition, offset=offset, answer=answer)
        self.sent = []

    def obey(self, answer: str) -> None:
        if answer in GONE:
            self.member_id = ""
        if answer in (*GONE, "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"):
            self.partitions = []
            self.next = "join"

    def lose_connection(self) -> None:
        """The coordinator has died: what was not answered never will be."""
        self.hear_what_is_answered()
        self.told_of_commit("none")
        self.call = None

    def tell(self, op: str, **more: Any) -> None:
        ended = self.world.tick()
        place = {"group": self.group, "member": self.member_id}
        self.world.history.append({"op": op, "began": self.began, "ended": ended, **place, **more})


class World:
    """Everything that happens comes from the seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.history: list[Line] = []
        self.c = VirtualCoordinator(
            group_initial_rebalance_delay_ms=30,
            group_min_session_timeout_ms=10,
            offset_commit_timeout_ms=400,
        )
        self.clients = [
            Client(self, group, f"c{n}") for group in GROUPS for n in range(CLIENTS_A_GROUP)
        ]
        self.now = 0.0
        self._offsets: dict[tuple[str, str], int] = {}

    def tick(self) -> float:
        """A time of its own for each thing that happens."""
        self.now += 0.001
        return self.now

    def next_offset(self, group: str, partition: str) -> int:
        offset = self._offsets.get((group, partition), 0) + 1
        self._offsets[group, partition] = offset
        return offset

    def run(self) -> tuple[list[Line], list[Line]]:
        """The history, and the dump of the log it left behind."""
        for _ in range(STEPS):
            self.tick()
            self._something_happens()
        self.c.log.forget_failures()
        self.restart()
        self._read_back()
        return self.history, self.dump()

    def _something_happens(self) -> None:
        what = self.dice.random()
        if what < 0.75:
            self.dice.choice(self.clients).act()
        elif what < 0.87:
            self.c.advance(self.dice.choice((1, 10, 30, 100, 300)))
        elif what < 0.90:
            self.c.fail_next_append(self.dice.choice(FAILURES))
        elif what < 0.92:
            self.c.hold_appends()
        elif what < 0.96:
            self.c.release_appends()
        elif what < 0.99:
            self.c.take_snapshot()
        else:
            self.restart()
        if not self.c.is_loaded:
            self.restart()  # The log has refused the shard: it is loaded again.

    def restart(self) -> None:
        for client in self.clients:
            client.lose_connection()
        self.c.restart()

    def _read_back(self) -> None:
        for group in GROUPS:
            began = self.tick()
            response = self.c.send(pb.OffsetFetchRequest(group_id=group)).response
            for topic in response.topics:
                for p in topic.partitions:
                    self.history.append(
                        {
                            "op": "fetched", "began": began, "ended": self.tick(), "group": group,
                            "partition": f"{topic.name}-{p.partition_index}",
                            "offset": p.committed_offset,
                        }
                    )  # fmt: skip

    def dump(self) -> list[Line]:
        """As `coordinator log dump` writes it."""
        loaded = self.c.stored()
        lines = [
            {"shard": 0, "snapshot": loaded.snapshot.sequence, **_fields(codec.decode(data))}
            for data in (loaded.snapshot.records if loaded.snapshot else ())
        ]
        for entry in loaded.entries:
            for index, data in enumerate(entry.records):
                place = {
                    "shard": 0, "sequence": entry.sequence, "epoch": entry.epoch,
                    "log_offset": entry.base_offset + index,
                }  # fmt: skip
                lines.append({**place, **_fields(codec.decode(data))})
        return lines


def _fields(record: Any) -> Line:
    fields = {"record": type(record).__name__, **dataclasses.asdict(record)}
    for member in fields.get("members", ()):
        member["assignment"] = base64.b64encode(member["assignment"]).decode()
    return fields
