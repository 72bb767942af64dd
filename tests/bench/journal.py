"""Benchmark of the rebalance journal: the same rebalances with and without it, in turn."""

from __future__ import annotations

import itertools

from coordinator.assignors import TopicPartition
from coordinator.assignors.consumer_protocol import Assignment, encode_assignment
from coordinator.core.config import GroupConfig
from coordinator.core.ids import CallId
from coordinator.core.replies import JoinReply, Reply, SyncReply
from coordinator.core.requests import JoinGroup, SyncGroup
from coordinator.operator.admin import GroupAdmin
from coordinator.runtime.clock import RandomIds
from coordinator.runtime.payloads import PAYLOADS
from coordinator.shard.driver import Patience
from coordinator.shard.effects import Start
from coordinator.shard.shard import Shard
from coordinator.storage.memory import MemoryLog
from coordinator.testing.immediate import ImmediateHost
from tests.bench.figures import Figures, Goal, best_of
from tests.bench.servers import Usage, with_server
from timer.clock import VirtualClock

MEMBERS, PARTITIONS_EACH = 50, 10
REBALANCES = 20
CALLS = 2_000


def bench_journal() -> Figures:
    """A group of 50 members whose first one changes its metadata, again and again."""
    worlds = {"with": _World(journal=True), "without": _World(journal=False)}
    times = best_of(
        {name: world.rebalance_often for name, world in worlds.items()}, each=REBALANCES, rounds=9
    )
    more_us = (times["with"] - times["without"]) / 1_000
    call_us = with_server(_call_us)
    whole_us = times["without"] / 1_000 + 2 * MEMBERS * call_us
    return {
        "members": MEMBERS,
        "rebalance without the journal, decisions and records only, us": times["without"] / 1_000,
        "the journal on top, us": more_us,
        "server CPU of a call beside that, us": call_us,
        "the journal's share of a rebalance, %": Goal(100 * more_us / whole_us, at_most=2),
    }


class _World:
    """A shard with one group, whose log takes everything at once."""

    def __init__(self, *, journal: bool) -> None:
        config = GroupConfig(group_rebalance_journal=journal, group_initial_rebalance_delay_ms=0)
        self._clock = VirtualClock()
        self._host = ImmediateHost(
            MemoryLog(),
            self._clock,
            lambda: Shard(config, RandomIds(), PAYLOADS, now_ms=self._clock.now_ms()),
            lambda effects: self._replies.update(effects.replies),
            Patience(),
        )
        self._calls = itertools.count(1)
        self._replies: dict[CallId, Reply] = {}
        self._version = 0
        self._ids: list[str] = []
        self._host.handle(Start())
        self._join_all([""] * MEMBERS)

    def rebalance_often(self) -> None:
        for _ in range(REBALANCES):
            self._version += 1
            self._join_all(self._ids)

    def _join_all(self, ids: list[str]) -> None:
        self._clock.advance(10, self._host)
        joins = [self._step(self._join(member_id)) for member_id in ids]
        while not self._ids and not self._replies:
            self._clock.advance(1, self._host)  # Until the initial delay is over.
        replies = [self._reply(call_id) for call_id in joins]
        self._ids = [reply.member_id for reply in replies]
        shares = tuple((member_id, _share(number)) for number, member_id in enumerate(self._ids))
        for reply in replies:
            is_leader = reply.member_id == reply.leader
            self._step(self._sync(reply.member_id, reply.generation, shares if is_leader else ()))
        assert len(self._replies) == MEMBERS
        assert all(isinstance(reply, SyncReply) for reply in self._replies.values())
        self._replies.clear()

    def _join(self, member_id: str) -> JoinGroup:
        return JoinGroup(
            call_id=CallId(next(self._calls)),
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=(("range", self._version.to_bytes(8)),),
            client_id="worker",
            client_host="/127.0.0.1",
            require_known_member_id=False,
        )

    def _sync(
        self, member_id: str, generation: int, shares: tuple[tuple[str, bytes], ...]
    ) -> SyncGroup:
        return SyncGroup(
            call_id=CallId(next(self._calls)),
            group_id="g",
            generation=generation,
            member_id=member_id,
            assignments=shares,
        )

    def _step(self, command: JoinGroup | SyncGroup) -> CallId:
        self._host.handle(command)
        return command.call_id

    def _reply(self, call_id: CallId) -> JoinReply:
        reply = self._replies.pop(call_id)
        assert isinstance(reply, JoinReply)
        return reply


def _share(number: int) -> bytes:
    first = number * PARTITIONS_EACH
    partitions = (TopicPartition("t", first + n) for n in range(PARTITIONS_EACH))
    return encode_assignment(Assignment(tuple(partitions)))


def _call_us(address: str, pid: int) -> float:
    """Server CPU of a unary call that does next to nothing."""
    with GroupAdmin(address, remember=True) as admin:
        admin.describe_group("nobody")
        usage = Usage(pid)
        for _ in range(CALLS):
            admin.describe_group("nobody")
        return usage.us_each(CALLS)
