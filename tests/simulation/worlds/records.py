"""The history of a world as its checkers read it: what clients were told, what the log holds."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable, Container, Iterator
from dataclasses import asdict
from typing import Any

from coordinator.assignors.consumer_protocol import decode_assignment
from coordinator.core.values.ids import ShardId
from coordinator.core.values.records import GroupMetadata, Record
from coordinator.runtime import codec
from coordinator.storage.log import Loaded
from coordinator.testing.engine.story import Story
from coordinator.v1 import group_pb2 as pb
from coordinator.v1.errors_pb2 import ErrorCode
from tests.simulation.worlds.checkers.history import Line


class Recorder:
    """Writes a line for every answer, and for every commit that never had one.

    A member is named by its instance id if it has one, for its member id is replaced.

    Args:
        now: seconds of the world.
        is_plain: True if a group's members are those of `plain_member`.
        instances: the instance ids of the world. Member ids begin with them.
    """

    def __init__(
        self,
        now: Callable[[], float],
        story: Story,
        is_plain: Callable[[str], bool],
        instances: Container[str],
    ) -> None:
        self.lines: list[Line] = []
        self._now = now
        self._story = story
        self._is_plain = is_plain
        self._instances = instances
        self._open: dict[int, tuple[float, Any]] = {}
        self._numbers = itertools.count(1)

    def tell(self, line: Line) -> None:
        """Add a line."""
        self.lines.append(line)

    def name(self, member_id: str) -> str:
        """Name of a member in the lines."""
        head = member_id.partition("-")[0]
        return head if head in self._instances else member_id

    def partitions(self, group: str, assignment: bytes) -> list[str]:
        """The partitions of an assignment."""
        if not assignment:
            return []
        if self._is_plain(group):
            found: list[str] = json.loads(assignment)
            return found
        return [
            f"{p.topic}-{p.partition}" for p in sorted(decode_assignment(assignment).partitions)
        ]

    # --- As an observer of calls ---

    def began(self, request: Any) -> int:
        number = next(self._numbers)
        self._open[number] = (self._now(), request)
        return number

    def ended(self, number: int, response: Any) -> None:
        began, request = self._open.pop(number)
        self._note(request, response, began, self._now())

    def close(self) -> None:
        """Record the open calls as never answered."""
        for number in list(self._open):
            self.ended(number, None)

    def _note(self, request: Any, response: Any, began: float, ended: float) -> None:
        times = {"began": began, "ended": ended}
        match request:
            case pb.JoinGroupRequest() if response is not None:
                if response.error_code == ErrorCode.NONE:
                    self.tell(
                        {"op": "joined", **times, "group": request.group_id,
                         "member": self.name(response.member_id),
                         "generation": response.generation_id,
                         "leader": self.name(response.leader),
                         "restarted": bool(request.group_instance_id and not request.member_id)}
                    )  # fmt: skip
            case pb.SyncGroupRequest() if response is not None:
                if response.error_code == ErrorCode.NONE:
                    self.tell(
                        {"op": "assigned", **times, "group": request.group_id,
                         "member": self.name(request.member_id),
                         "generation": request.generation_id,
                         "partitions": self.partitions(request.group_id, response.assignment)}
                    )  # fmt: skip
            case pb.HeartbeatRequest():
                self._note_beat(request, response, times)
            case pb.HeartbeatBatchRequest():
                answers = response.heartbeats if response is not None else itertools.repeat(None)
                for beat, answer in zip(request.heartbeats, answers, strict=False):
                    self._note_beat(beat, answer, times)
            case pb.OffsetCommitRequest():
                self._note_commit(request, response, times)
            case pb.OffsetFetchRequest() if response is not None and not response.error_code:
                for topic in response.topics:
                    for partition in topic.partitions:
                        self.tell(
                            {"op": "fetched", **times, "group": request.group_id,
                             "partition": f"{topic.name}-{partition.partition_index}",
                             "offset": partition.committed_offset}
                        )  # fmt: skip
            case _:
                pass

    def _note_beat(self, request: Any, response: Any, times: Line) -> None:
        answer = "none" if response is None else ErrorCode.Name(response.error_code)
        self._story.count(f"heartbeat answered {answer}")
        self.tell(
            {"op": "beaten", **times, "group": request.group_id,
             "member": self.name(request.member_id),
             "generation": request.generation_id, "answer": answer}
        )  # fmt: skip

    def _note_commit(self, request: Any, response: Any, times: Line) -> None:
        answers = {}
        for topic in response.topics if response is not None else ():
            for p in topic.partitions:
                answers[topic.name, p.partition_index] = ErrorCode.Name(p.error_code)
        for topic in request.topics:
            for p in topic.partitions:
                answer = answers.get((topic.name, p.partition_index), "none")
                self._story.count(f"commit answered {answer}")
                self.tell(
                    {"op": "committed", **times, "group": request.group_id,
                     "partition": f"{topic.name}-{p.partition_index}",
                     "offset": p.committed_offset, "generation": request.generation_id,
                     "member": self.name(request.member_id), "answer": answer}
                )  # fmt: skip

    # --- The log ---

    def dump(self, shard: ShardId, loaded: Loaded) -> Iterator[Line]:
        """A shard's log as `coordinator log dump` writes it, but for the assignments: they are
        lists of partitions in JSON, in place of the members' own bytes."""
        for where, record in codec.located(shard, loaded):
            yield {**where, **self._fields(record)}

    def _fields(self, record: Record) -> Line:
        fields = {"record": type(record).__name__, **asdict(record)}
        if isinstance(record, GroupMetadata):
            for member in fields["members"]:
                shares = self.partitions(record.group_id, member["assignment"])
                member["assignment"] = base64.b64encode(json.dumps(shares).encode()).decode()
                member["member_id"] = self.name(member["member_id"])
        return fields
