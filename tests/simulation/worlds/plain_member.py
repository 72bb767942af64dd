"""A member that does what the answers tell it, and writes down what it was told.

It waits for nothing: `next_request` says what to send, `hear` takes the answer in, and
`no_answer` that there was none. So it lives in a simulation and among real sockets.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from coordinator.v1 import group_pb2 as pb
from coordinator.v1.errors_pb2 import ErrorCode
from tests.kit import requests
from tests.simulation.worlds.checkers.history import Line

GONE = ("UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID")


class Group:
    """A group as its members know it: its partitions, and the next offsets."""

    def __init__(self, name: str, partitions: int, session_ms: int) -> None:
        self.name = name
        self.session_ms = session_ms
        self.offsets = {f"t-{n}": 0 for n in range(partitions)}

    def next_offset(self, partition: str) -> int:
        """Next offset to commit; ascending, so that an offset that goes back is noticed."""
        self.offsets[partition] += 1
        return self.offsets[partition]


class Member:
    """One client of one group.

    Args:
        tell: takes a line of the history.
        commits, leaves: how often, of all its requests while it has an assignment.
        shuffles: as the leader it hands partitions out in another order each time it is asked.
    """

    def __init__(
        self,
        group: Group,
        name: str,
        dice: random.Random,
        tell: Callable[[Line], None],
        *,
        commits: float = 0.4,
        leaves: float = 0.0,
        shuffles: bool = False,
    ) -> None:
        self.group, self.name, self.dice, self._tell = group, name, dice, tell
        self._commits, self._leaves, self._shuffles = commits, leaves, shuffles
        self.member_id = ""
        self.generation = -1
        self.partitions: list[str] = []
        self._next = self._join
        self._listed: list[str] = []
        self._sent: tuple[str, int] | None = None  # The commit that is under way.

    @property
    def is_assigned(self) -> bool:
        """True if it has its assignment."""
        return self._next == self._work

    def next_request(self) -> Any:
        return self._next()

    def receive(self, response: Any, began: float, ended: float) -> str:
        """Take an answer in; the name of its error code."""
        code = getattr(response, "error_code", ErrorCode.NONE)
        match response:
            case pb.JoinGroupResponse():
                self._hear_joined(response, began, ended)
            case pb.SyncGroupResponse():
                self._hear_synced(response, began, ended)
            case pb.HeartbeatResponse():
                self._hear_beaten(response, began, ended)
            case pb.OffsetCommitResponse():
                code = response.topics[0].partitions[0].error_code
                answer = ErrorCode.Name(code)
                self._end_commit(answer, began, ended)
                self._obey(answer)
            case pb.LeaveGroupResponse():
                self._forget()
        return ErrorCode.Name(code)

    def no_answer(self, began: float, ended: float) -> None:
        """The coordinator has died, or the way to it is broken."""
        self._end_commit("none", began, ended)

    # --- What it asks ---

    def _join(self) -> Any:
        return requests.join(
            self.group.name,
            session_timeout_ms=self.group.session_ms,
            rebalance_timeout_ms=self.group.session_ms,
            member_id=self.member_id,
            protocol_type="workload",
            protocols=[{"name": "share"}],
            client_id=self.name,
            require_known_member_id=True,
        )

    def _sync(self) -> Any:
        return pb.SyncGroupRequest(
            group_id=self.group.name,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=self._shares(self._listed),
        )

    def _work(self) -> Any:
        what = self.dice.random()
        if what < self._leaves:
            return pb.LeaveGroupRequest(
                group_id=self.group.name,
                members=[pb.LeaveGroupRequest.MemberIdentity(member_id=self.member_id)],
            )
        if self.partitions and what < self._leaves + self._commits:
            return self._commit()
        return pb.HeartbeatRequest(
            group_id=self.group.name, generation_id=self.generation, member_id=self.member_id
        )

    def _commit(self) -> Any:
        partition = self.dice.choice(self.partitions)
        offset = self.group.next_offset(partition)
        self._sent = (partition, offset)
        topic, _, number = partition.partition("-")
        commit = pb.OffsetCommitRequest.Partition(
            partition_index=int(number), committed_offset=offset
        )
        return pb.OffsetCommitRequest(
            group_id=self.group.name,
            generation_id=self.generation,
            member_id=self.member_id,
            topics=[pb.OffsetCommitRequest.Topic(name=topic, partitions=[commit])],
        )

    # --- What it hears ---

    def _hear_joined(self, response: pb.JoinGroupResponse, began: float, ended: float) -> None:
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif response.error_code == ErrorCode.NONE:
            self.member_id, self.generation = response.member_id, response.generation_id
            self._note("joined", began, ended, generation=self.generation, leader=response.leader)
            self._listed = [m.member_id for m in response.members]
            self._next = self._sync
        elif ErrorCode.Name(response.error_code) in GONE:
            self._forget()

    def _shares(self, members: list[str]) -> list[Any]:
        partitions = list(self.group.offsets)
        if self._shuffles:
            self.dice.shuffle(partitions)
        return [
            {
                "member_id": member,
                "assignment": json.dumps(partitions[n :: len(members)]).encode(),
            }
            for n, member in enumerate(members)
        ]

    def _hear_synced(self, response: pb.SyncGroupResponse, began: float, ended: float) -> None:
        if response.error_code != ErrorCode.NONE:
            self._obey(ErrorCode.Name(response.error_code))
            return
        self.partitions = json.loads(response.assignment or b"[]")
        self._note("assigned", began, ended, generation=self.generation, partitions=self.partitions)
        self._next = self._work

    def _hear_beaten(self, response: pb.HeartbeatResponse, began: float, ended: float) -> None:
        answer = ErrorCode.Name(response.error_code)
        self._note("beaten", began, ended, generation=self.generation, answer=answer)
        self._obey(answer)

    def _end_commit(self, answer: str, began: float, ended: float) -> None:
        if self._sent is not None:
            partition, offset = self._sent
            self._note("committed", began, ended, partition=partition, offset=offset, answer=answer)
            self._sent = None

    def _obey(self, answer: str) -> None:
        if answer in GONE:
            self._forget()
        elif answer in ("ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"):
            self.partitions = []
            self._next = self._join

    def _forget(self) -> None:
        self.member_id = ""
        self.partitions = []
        self._next = self._join

    def _note(self, op: str, began: float, ended: float, **more: Any) -> None:
        context = {"group": self.group.name, "member": self.member_id}
        self._tell({"op": op, "began": began, "ended": ended, **context, **more})
