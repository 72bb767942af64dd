"""Groups in every state on a real node, of members that are nothing but calls: no threads."""

from __future__ import annotations

import queue
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import grpc

from coordinator.assignors import TopicPartition
from coordinator.assignors.consumer_protocol import Assignment, encode_assignment
from coordinator.operator.admin import GroupAdmin
from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import group_pb2_grpc
from tests.kit import requests
from tests.kit.patience import HANG_S

Offsets = Mapping[TopicPartition, int]

SESSION_MS = 1_800_000
"""Largest session timeout that a node admits: these members are not heard of again."""


class Groups:
    """Makes groups on a node. A context manager: calls that wait end with it."""

    def __init__(self, address: str) -> None:
        self._stack = ExitStack()
        channel = self._stack.enter_context(grpc.insecure_channel(address))
        self._stub = group_pb2_grpc.GroupCoordinatorStub(channel)
        self._generations: dict[str, int] = {}
        self.admin = self._stack.enter_context(GroupAdmin(address))

    def __enter__(self) -> Groups:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def join(self, group: str, client: str, member_id: str = "", protocol: str = "range") -> Any:
        """A JoinGroup on its way: it waits for the other members."""
        request = requests.join(
            group,
            client_id=client,
            member_id=member_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            protocols=[{"name": protocol, "metadata": b""}],
        )
        call = self._stub.JoinGroup.future(request)
        self._stack.callback(call.cancel)
        return call

    def rebalance(
        self,
        group: str,
        members: Mapping[str, str],
        *,
        partitions: int,
        topic: str = "",
        protocol: str = "range",
    ) -> dict[str, str]:
        """A rebalance in which all members join and share the partitions; member ids by client id.

        Args:
            members: member id by client id; empty: a new one.
        """
        ids = dict(members)
        before = self._generations.get(group, 0)
        answers: dict[str, pb.JoinGroupResponse] = {}
        done: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

        def join(client: str) -> None:
            call = self.join(group, client, ids[client], protocol)
            call.add_done_callback(lambda done_call: done.put((client, done_call)))

        for client in ids:
            join(client)
        while len(answers) < len(ids):
            client, call = done.get(timeout=HANG_S)
            if call.result().generation_id <= before:
                join(client)  # Its join came before the one that started the rebalance.
                continue
            answers[client] = call.result()
            ids[client] = answers[client].member_id
            leader = next((a for a in answers.values() if a.leader == a.member_id), None)
            if leader is not None and len(leader.members) < len(ids):
                # The join phase was over before all had come: those in its generation join again.
                before = leader.generation_id
                early, answers = answers, {}
                for handoff in early:
                    join(handoff)
        leader = next(a for a in answers.values() if a.leader == a.member_id)
        self._generations[group] = leader.generation_id
        shares = shared(topic or group, partitions, list(ids.values()))
        syncs = [
            self._stub.SyncGroup.future(
                pb.SyncGroupRequest(
                    group_id=group,
                    generation_id=leader.generation_id,
                    member_id=member_id,
                    assignments=shares if member_id == leader.member_id else [],
                ),
                timeout=HANG_S,
            )
            for member_id in ids.values()
        ]
        for sync in syncs:
            sync.result()
        return ids

    def leave(self, group: str, member_id: str) -> None:
        """A member leaves."""
        self._stub.LeaveGroup(
            pb.LeaveGroupRequest(group_id=group, members=[{"member_id": member_id}])
        )

    def progress(self, group: str, member_id: str, offsets: Offsets, ends: Offsets) -> None:
        """Commit and report ends of logs, as a member."""
        who = {
            "group_id": group,
            "generation_id": self._generations[group],
            "member_id": member_id,
        }
        topics = by_topic(offsets, "committed_offset")
        committed = self._stub.OffsetCommit(pb.OffsetCommitRequest(**who, topics=topics))
        assert {p.error_code for t in committed.topics for p in t.partitions} == {0}
        topics = by_topic(ends, "log_end_offset")
        assert not self._stub.ReportLogEnds(
            pb.ReportLogEndsRequest(**who, topics=topics)
        ).error_code

    def empty(self, names: Sequence[str]) -> None:
        """Groups without members, with an offset each."""
        topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
        calls = [
            self._stub.OffsetCommit.future(
                pb.OffsetCommitRequest(group_id=name, generation_id=-1, topics=topics),
                timeout=HANG_S,
            )
            for name in names
        ]
        for call in calls:
            call.result()


def by_topic(offsets: Offsets, field: str) -> list[dict[str, Any]]:
    """Offsets as a request has them."""
    topics: dict[str, list[dict[str, int]]] = {}
    for key, offset in offsets.items():
        topics.setdefault(key.topic, []).append({"partition_index": key.partition, field: offset})
    return [{"name": name, "partitions": topic} for name, topic in topics.items()]


def shared(topic: str, partitions: int, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Assignments in which the members take turns."""
    return [
        {
            "member_id": member_id,
            "assignment": encode_assignment(
                Assignment(tuple(TopicPartition(topic, p) for p in range(n, partitions, len(ids))))
            ),
        }
        for n, member_id in enumerate(ids)
    ]
