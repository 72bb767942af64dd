"""A short language for scenarios, over `VirtualCoordinator`.

After every step the invariants of all groups are checked. Unless a scenario says
otherwise: initial delay 50 ms, session bounds 10 to 600000 ms, at most 4 members,
session and rebalance time-out 500 ms, no journal, protocol type `consumer`, protocols `[range]`.
Joins are of the kind that needs no member id first, unless `two_phase` is asked for.
"""

from __future__ import annotations

from collections import Counter

from coordinator.core.classic import invariants
from coordinator.testing import VirtualCoordinator
from coordinator.v1 import admin_pb2 as admin
from coordinator.v1 import group_pb2 as pb
from coordinator.v1.errors_pb2 import ErrorCode

COORDINATOR = VirtualCoordinator
"""Class of the scenarios' coordinator; conftest.py replaces it by the one over Kafka's wire."""
GROUP = "g"
SUPERSET = ("range", "roundrobin")


def code(response) -> str:
    """The name of a response's error code."""
    return ErrorCode.Name(response.error_code)


class ClassicScenario:
    def __init__(self, **settings) -> None:
        self.c = COORDINATOR(
            **{
                "group_initial_rebalance_delay_ms": 50,
                "group_min_session_timeout_ms": 10,
                "group_max_session_timeout_ms": 600_000,
                "group_max_size": 4,
                "group_rebalance_journal": False,
                **settings,
            }
        )
        self._generations: dict[str, int] = {}

    # --- Steps ---

    def send(self, request, host: str = "/127.0.0.1"):
        call = self.c.send(request, client_host=host)
        self._check()
        return call

    def advance(self, ms: int) -> None:
        self.c.advance(ms)
        self._check()

    def until(self, at_ms: int) -> None:
        """Let time pass until the clock reads `at_ms`."""
        self.advance(at_ms - self.c.now_ms)

    def restart(self) -> None:
        self.c.restart()
        self._generations.clear()
        self._check()

    # --- Requests ---

    def join(
        self,
        member_id: str = "",
        *,
        group: str = GROUP,
        protocols=("range",),
        metadata: bytes = b"",
        protocol_type: str = "consumer",
        srt: int = 500,
        rt: int = 500,
        instance: str | None = None,
        two_phase: bool = False,
        client_id: str = "client",
        **more,
    ):
        return self.send(
            pb.JoinGroupRequest(
                group_id=group,
                session_timeout_ms=srt,
                rebalance_timeout_ms=rt,
                member_id=member_id,
                group_instance_id=instance,
                protocol_type=protocol_type,
                protocols=[{"name": name, "metadata": metadata} for name in protocols],
                require_known_member_id=two_phase,
                client_id=client_id,
                **more,
            )
        )

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = GROUP,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ):
        return self.send(
            pb.SyncGroupRequest(
                group_id=group,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                assignments=[
                    {"member_id": m, "assignment": a} for m, a in (assignments or {}).items()
                ],
            )
        )

    def beat(self, member_id: str, generation: int, *, group=GROUP, instance=None) -> str:
        """A heartbeat; the name of its error code."""
        call = self.send(
            pb.HeartbeatRequest(
                group_id=group,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance,
            )
        )
        return code(call.response)

    def leave(self, *members, group: str = GROUP):
        """Members are member ids, or (member id, instance id)."""
        identities = []
        for member in members:
            member_id, instance = member if isinstance(member, tuple) else (member, None)
            identities.append({"member_id": member_id, "group_instance_id": instance})
        call = self.send(pb.LeaveGroupRequest(group_id=group, members=identities))
        return call.response

    def leave_codes(self, *members, group: str = GROUP) -> list[str]:
        return [code(m) for m in self.leave(*members, group=group).members]

    def commit(
        self,
        offsets: dict,
        *,
        member_id: str = "",
        generation: int = -1,
        instance=None,
        group: str = GROUP,
        metadata: str = "",
        expected: dict | None = None,
        atomic: bool = False,
        manifest: bytes = b"",
        epoch: int = -1,
        requires_empty: bool = False,
    ):
        """Offsets by (topic, partition)."""
        topics: dict[str, list] = {}
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, []).append(
                {
                    "partition_index": partition,
                    "committed_offset": offset,
                    "committed_leader_epoch": epoch,
                    "committed_metadata": metadata,
                    "expected_committed_offset": (expected or {}).get((topic, partition)),
                }
            )
        return self.send(
            pb.OffsetCommitRequest(
                group_id=group,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance,
                topics=[{"name": t, "partitions": p} for t, p in topics.items()],
                atomic=atomic,
                manifest=manifest,
                requires_empty_group=requires_empty,
            )
        )

    def commit_codes(self, offsets: dict, **more) -> list[str]:
        return partition_codes(self.commit(offsets, **more).response)

    def fetch(self, *partitions, group: str = GROUP, require_stable: bool = False):
        """Fetch offsets; without partitions all that are stored."""
        topics: dict[str, list] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        return self.send(
            pb.OffsetFetchRequest(
                group_id=group,
                topics=[{"name": t, "partition_indexes": p} for t, p in topics.items()],
                require_stable=require_stable,
            )
        )

    def stored(self, *partitions, group: str = GROUP) -> dict:
        response = self.fetch(*partitions, group=group).response
        return {
            (t.name, p.partition_index): p.committed_offset
            for t in response.topics
            for p in t.partitions
        }

    def describe(self, group: str = GROUP, **more):
        call = self.send(admin.DescribeGroupsRequest(groups=[group], **more))
        return call.response.groups[0]

    # --- What is ---

    @property
    def state(self) -> str | None:
        state = self.c.state(GROUP)
        return None if state is None else state.value

    @property
    def generation(self) -> int:
        return self.c.generation(GROUP)

    def group(self, group: str = GROUP):
        """The group itself, for what no request shows."""
        return self.c.shard.machine.groups[group]

    def members(self, group: str = GROUP) -> list[str]:
        return list(self.group(group).members)

    def deadline(self, member_id: str, group: str = GROUP) -> int:
        """Return the end of the member's session, in virtual milliseconds."""
        member = self.group(group).members[member_id]
        return member.session_began_ms + member.session_timeout_ms

    def _check(self) -> None:
        machine = self.c.shard.machine
        groups = machine.groups.values()
        members_by_host = Counter(m.client_host for group in groups for m in group.members.values())
        assert machine.members_by_host == members_by_host
        for group_id, group in machine.groups.items():
            invariants.check(group, self._generations.get(group_id, 0))
            self._generations[group_id] = group.generation

    # --- Groups to start from ---

    def f1(self, **join) -> str:
        """Member A alone, generation 1, Stable with assignment a0."""
        call = self.join(**join)
        self.advance(50)
        a = call.response.member_id
        self.sync(a, 1, {a: b"a0"})
        assert (self.state, self.generation) == ("Stable", 1)
        return a

    def f2(self, **join) -> tuple[str, str]:
        """A (leader) and B, generation 2, Stable with a0 and b0."""
        a = self.f1(**join)
        b_call = self.join(**join)
        a_call = self.join(a, **join)
        b = b_call.response.member_id
        assert a_call.response.leader == a
        self.sync(a, 2, {a: b"a0", b: b"b0"})
        assert self.sync(b, 2).response.assignment == b"b0"
        assert (self.state, self.generation) == ("Stable", 2)
        return a, b

    def s2(self, *, srt: int = 500, rt: int = 500, protocols=SUPERSET) -> tuple[str, str]:
        """Static L (leader) and F, generation 1, Stable with l0 and f0."""
        leader_call = self.join(instance="L", srt=srt, rt=rt, protocols=protocols)
        follower_call = self.join(instance="F", srt=srt, rt=rt, protocols=protocols)
        # The follower's coming extends the initial delay once.
        self.advance(100)
        leader = leader_call.response.member_id
        follower = follower_call.response.member_id
        assert leader_call.response.leader == leader
        self.sync(leader, 1, {leader: b"l0", follower: b"f0"})
        assert self.sync(follower, 1).response.assignment == b"f0"
        assert (self.state, self.generation) == ("Stable", 1)
        return leader, follower

    def p3(self):
        """A and B parked in PreparingRebalance (from generation 2), P pending for 100 ms.

        Returns (A, B, P, A's call, B's call).
        """
        a, b = self.f2()
        p = self.join(two_phase=True, srt=100).response.member_id
        a_call = self.join(a)
        b_call = self.join(b)
        assert self.state == "PreparingRebalance"
        return a, b, p, a_call, b_call

    def n3(self) -> tuple[list[str], int]:
        """Three two-phase members in CompletingRebalance, generation 1, nobody synced.

        Returns (member ids, leader first; when the phase ended).
        """
        ids = [self.join(two_phase=True).response.member_id for _ in range(3)]
        calls = [self.join(member_id, two_phase=True) for member_id in ids]
        while not calls[0].done:
            self.advance(1)
        assert all(call.done for call in calls)
        assert (self.state, self.generation) == ("CompletingRebalance", 1)
        leader = calls[0].response.leader
        return [leader, *(m for m in ids if m != leader)], self.c.now_ms


def partition_codes(response) -> list[str]:
    """Error codes of all partitions, in the order of the response."""
    return [code(p) for t in response.topics for p in t.partitions]
