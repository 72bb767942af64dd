"""Clients, a coordinator that dies, and a log that fails at any append; all of one seed.

The coordinator is the real shard on virtual time. What the clients are told goes into a
history, and the checkers of `tests/checkers` compare it with what the log holds in the end.
"""

from __future__ import annotations

import base64
import dataclasses
import random
from typing import Any

from coordinator.core.records import GroupMetadata
from coordinator.runtime import codec
from coordinator.testing import VirtualCoordinator
from coordinator.v1 import group_pb2 as pb
from tests.checkers.history import Line
from tests.workload.member import Group, Member

GROUPS, CLIENTS_A_GROUP, PARTITIONS = 2, 3, 4
SESSION_MS = 600
STEPS = 200
FAILURES = ("ambiguous", "lost", "unavailable", "full", "too_large", "fenced")


class Client:
    """A member, and the call it has sent."""

    def __init__(self, world: World, group: Group, name: str) -> None:
        self.world = world
        self.member = Member(group, name, world.dice, world.history.append)
        self.call: Any = None
        self.began = 0.0

    def act(self) -> None:
        self.hear_what_is_answered()
        if self.call is None:
            self.began = self.world.now
            self.call = self.world.c.send(self.member.next_request())

    def hear_what_is_answered(self) -> None:
        if self.call is not None and self.call.done:
            call, self.call = self.call, None
            self.member.hear(call.response, self.began, self.world.tick())

    def lose_connection(self) -> None:
        """The coordinator has died: what was not answered never will be."""
        self.hear_what_is_answered()
        if self.call is not None:
            self.member.no_answer(self.began, self.world.tick())
            self.call = None


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
        self.groups = [Group(f"g{n}", PARTITIONS, SESSION_MS) for n in range(GROUPS)]
        self.clients = [
            Client(self, group, f"c{n}") for group in self.groups for n in range(CLIENTS_A_GROUP)
        ]
        self.now = 0.0

    def tick(self) -> float:
        """A time of its own for each thing that happens."""
        self.now += 0.001
        return self.now

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
        for group in self.groups:
            began = self.tick()
            response = self.c.send(pb.OffsetFetchRequest(group_id=group.name)).response
            for topic in response.topics:
                for p in topic.partitions:
                    self.history.append(
                        {
                            "op": "fetched", "began": began, "ended": self.tick(),
                            "group": group.name,
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
    for member in fields["members"] if isinstance(record, GroupMetadata) else ():
        member["assignment"] = base64.b64encode(member["assignment"]).decode()
    return fields
