"""Counts of topics: set by operators, told by groups, asked of other nodes, kept by restarts."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from coordinator.core import topics as core_topics
from coordinator.core.values import requests as c
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.ids import TOPICS_GROUP, ShardId
from coordinator.runtime.payloads import PAYLOADS
from coordinator.runtime.slices import PART, at_once
from coordinator.runtime.standby import LeaderUnreachable
from coordinator.service import calls as kinds
from coordinator.service import topics as service_topics
from coordinator.service.grpc import replica_service, topic_service
from coordinator.service.refusals import Malformed
from coordinator.service.topic_changes import delete_topic, set_topic
from coordinator.service.topics import TopicCounts, Topics, TopicView, offered
from coordinator.storage.memory import MemoryLog
from tests.kit import commands
from tests.kit.nodes import PipelineNode
from tests.kit.requests import assignment

pytestmark = pytest.mark.virtual_time
NONE = ErrorCode.NONE


class Peers:
    """The other nodes, asked without a network."""

    def __init__(self) -> None:
        self.topics: dict[int, Topics] = {}
        self.silent: set[int] = set()

    async def fetch_topics(self, node):
        return await self._of(node).here()

    async def fetch_log_ends(self, node, wanted):
        return await self._of(node).log_ends_here(wanted)

    def _of(self, node) -> Topics:
        if node.node_id in self.silent or node.node_id not in self.topics:
            raise LeaderUnreachable("nothing listens there")
        return self.topics[node.node_id]


class NodeOfMachine(PipelineNode):
    """A node of a machine with its topics; everything through its pipeline."""

    def __init__(
        self, peers: Peers, log: MemoryLog | None = None, share: str = "", **settings
    ) -> None:
        super().__init__(shards=4, share=share, log=log, **settings)
        self.topics = Topics(self.node, peers)
        peers.topics[self.node.node_id] = self.topics

    async def set(self, topic: str, partitions: int, *, may_shrink: bool = False):
        ask = self._asker(kinds.SET_TOPIC)
        return await set_topic(self.topics, ask, topic, partitions, may_shrink=may_shrink)

    async def delete(self, topic: str):
        return await delete_topic(self.topics, self._asker(kinds.DELETE_TOPIC), topic)

    def _asker(self, kind):
        async def ask(command):
            (reply,) = await self.ask(command(self.new()), kind=kind)
            return reply

        return ask

    async def commit(self, group: str, *partitions: tuple[str, int], offset: int = 1) -> None:
        await self.ask(commands.commit(self.new(), offset, group, partitions))

    async def consumer(self, group: str, topic: str, count: int) -> str:
        """A consumer alone that has all partitions of a topic; returns its id."""
        return await self.member(group, assignment(topic, range(count)))

    async def counts(self) -> dict[str, int]:
        view = await self.topics.refresh()
        return {name: topic.partitions for name, topic in view.topics.items()}


@contextlib.asynccontextmanager
async def machine(nodes: int = 1, logs=None, **settings):
    peers = Peers()
    logs = logs or [MemoryLog() for _ in range(nodes)]
    started = [
        NodeOfMachine(peers, log, f"{n}/{nodes}" if nodes > 1 else "", **settings)
        for n, log in enumerate(logs, 1)
    ]
    for node in started:
        await node.node.start("127.0.0.1", 7400)
    try:
        yield started
    finally:
        for node in started:
            await node.node.stop()
            assert not [what for what, _ in node.failures if "does not tell" not in what]


async def test_a_count_is_set_raised_and_lowered_only_when_that_is_allowed():
    async with machine() as [node]:
        assert (await node.set("orders", 12)).counts == TopicCounts()
        assert (await node.set("orders", 16)).counts == TopicCounts(set=12)
        refused = await node.set("orders", 15)
        assert refused.error is ErrorCode.INVALID_PARTITIONS
        assert "has 16 partitions" in refused.message
        assert "--shrink" in refused.message
        assert await node.counts() == {"orders": 16}
        assert (await node.set("orders", 6, may_shrink=True)).error is NONE
        assert await node.counts() == {"orders": 6}
        assert (await node.delete("orders")).error is NONE
        assert await node.counts() == {}
        assert (await node.delete("orders")).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("topic", "partitions", "error"),
    [
        ("", 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (".", 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a b", 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a\n", 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("ä", 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a" * 250, 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a" * 249, 1, NONE),
        ("a.b_c-1", 10_000, NONE),
        ("a", 0, ErrorCode.INVALID_PARTITIONS),
        ("a", -1, ErrorCode.INVALID_PARTITIONS),
        ("a", 10_001, ErrorCode.INVALID_PARTITIONS),
    ],
)
async def test_names_and_numbers_are_those_that_a_topic_can_have(topic, partitions, error):
    async with machine() as [node]:
        assert (await node.set(topic, partitions)).error is error


async def test_topics_have_a_limit_in_number_and_in_partitions(monkeypatch):
    monkeypatch.setattr("coordinator.service.topic_changes.TOPICS_MAX", 2)
    monkeypatch.setattr("coordinator.service.topic_changes.ALL_PARTITIONS_MAX", 10)
    async with machine() as [node]:
        await node.set("a", 4)
        assert (await node.set("b", 7)).error is ErrorCode.INVALID_PARTITIONS
        assert (await node.set("b", 6)).error is NONE
        assert (await node.set("c", 1)).error is ErrorCode.INVALID_REQUEST
        await node.set("b", 1, may_shrink=True)
        assert (await node.set("a", 9)).error is NONE, "what it had before is not counted twice"


async def test_groups_fetch_topics_by_offsets_log_ends_and_assignments():
    async with machine() as [node]:
        await node.commit("g1", ("by_offset", 4), ("not legal", 0))
        member = await node.consumer("g2", "by_assignment", 3)
        await node.ask(
            c.ReportLogEnds(
                call_id=node.node.new_call_id(), group_id="g2", generation=1,
                member_id=member, ends=(("by_end", 6, 100),),
            )
        )  # fmt: skip
        told = {"by_offset": 5, "by_assignment": 3, "by_end": 7, "not legal": 1}
        assert await node.counts() == told
        assert "not legal" not in at_once(offered(node.topics.view))
        await node.commit("g3", ("by_assignment", 5))
        assert (await node.topics.refresh()).topics["by_assignment"] == TopicCounts(0, 6, 2)
        await node.set("by_offset", 8)
        assert (await node.counts())["by_offset"] == 8
        assert (await node.delete("by_offset")).counts.reported == 5
        await node.ask(c.DeleteGroup(call_id=node.node.new_call_id(), group_id="g1"))
        node.topics.note_change()
        assert "by_offset" not in await node.counts(), "no group knows it any more"


async def test_a_group_cannot_tell_enormous_counts(monkeypatch):
    async with machine() as [node]:
        await node.commit("g", ("t", 2**31 - 1), ("t", 10_000), ("t", 9_999), ("u", 1))
        assert await node.counts() == {"t": 10_000, "u": 2}
        monkeypatch.setattr(service_topics, "ALL_PARTITIONS_MAX", 9_999)
        await node.set("set", 5)
        assert await node.counts() == {"set": 5, "u": 2}
        assert node.topics.view.left_out == 1
        assert len(node.failures) == 1
        assert "1 topics" in node.failures.pop()[0]


async def test_the_reserved_group_is_neither_seen_nor_used_by_clients():
    async with machine() as [node]:
        await node.set("t", 3)
        new = node.node.new_call_id
        (listed,) = await node.ask(c.ListGroups(call_id=new()))
        assert (listed.groups, listed.matching) == ((), 0)
        assert node.node.group_stats(lambda _: True) == [], "nor are there series of it"
        assert [stat.groups for stat in node.node.stats() if stat.groups] == [], "nor is it counted"
        with pytest.raises(Malformed, match="reserved"):
            await node.commit(TOPICS_GROUP, ("t", 0))
        for kind in (c.FetchOffsets, c.DescribeGroup, c.DeleteGroup, c.ListRebalances):
            with pytest.raises(Malformed, match="reserved"):
                await node.ask(kind(call_id=new(), group_id=TOPICS_GROUP))
        with pytest.raises(Malformed, match="reserved"):
            await node.consumer(TOPICS_GROUP, "t", 1)
        assert await node.counts() == {"t": 3}


async def test_counts_that_are_set_outlive_restarts_and_the_retention_of_offsets():
    log = MemoryLog()
    short = {"offsets_retention_minutes": 1, "offsets_retention_check_interval_ms": 10_000}
    async with machine(logs=[log], **short) as [node]:
        await node.set("t", 3)
        await node.commit("g", ("u", 0))
        assert await node.counts() == {"t": 3, "u": 1}
        await asyncio.sleep(90)
        assert await node.counts() == {"t": 3}
    async with machine(logs=[log]) as [node]:
        assert await node.counts() == {"t": 3}


async def test_nodes_tell_each_other_their_topics():
    async with machine(nodes=2) as nodes:
        leader = next(one_node for one_node in nodes if one_node.node.is_loaded(TOPICS_GROUP))
        other = next(one_node for one_node in nodes if one_node is not leader)
        assert (await other.set("t", 3)).error is ErrorCode.NOT_COORDINATOR
        assert (await leader.set("t", 3)).error is NONE
        group = next(f"g{n}" for n in range(99) if other.node.is_loaded(f"g{n}"))
        await other.commit(group, ("u", 1))
        for node in nodes:
            view = await node.topics.refresh()
            assert (view.is_complete, view.partitions("t"), view.partitions("u")) == (True, 3, 2)


async def test_what_a_node_told_stays_while_it_cannot_be_asked():
    async with machine(nodes=2) as nodes:
        leader = next(node for node in nodes if node.node.is_loaded(TOPICS_GROUP))
        other = next(node for node in nodes if node is not leader)
        peers = other.topics._peers
        peers.silent = {leader.node.node_id}
        await leader.set("t", 3)
        assert not (await other.topics.refresh()).is_complete
        peers.silent = set()
        assert (await other.topics.refresh()).is_complete
        peers.silent = {leader.node.node_id}
        view = await other.topics.refresh()
        assert (view.is_complete, view.partitions("t")) == (True, 3)
        assert len(other.failures) == 2, "once each time that it falls silent"


async def test_a_view_that_is_young_enough_is_not_made_again():
    async with machine() as [node]:
        assert await node.counts() == {}
        await node.set("t", 3)
        await node.topics.refresh()
        await node.commit("g", ("u", 0))
        await asyncio.sleep(0.1)
        assert list((await node.topics.refresh(max_age_s=0.2)).topics) == ["t"]
        await asyncio.sleep(0.2)
        assert list((await node.topics.refresh(max_age_s=0.2)).topics) == ["t", "u"]


async def test_a_node_that_follows_topics_looks_once_a_second():
    async with machine(nodes=2) as nodes:
        leader = next(node for node in nodes if node.node.is_loaded(TOPICS_GROUP))
        other = next(node for node in nodes if node is not leader)
        other.topics.follow()
        other.topics.follow()
        await asyncio.sleep(0.5)
        await leader.set("t", 3)
        assert other.topics.view.topics == {}
        await asyncio.sleep(1.0)
        assert other.topics.view.partitions("t") == 3
        await other.topics.close()


async def test_two_operators_cannot_overwrite_each_other_unseen():
    async with machine() as [node]:
        first, second = await asyncio.gather(node.set("t", 12), node.set("t", 6))
        assert {first.error, second.error} == {NONE, ErrorCode.INVALID_PARTITIONS}
        assert await node.counts() == {"t": 12}


async def test_log_ends_are_the_largest_that_groups_know():
    async with machine(nodes=2) as nodes:
        for number, node in enumerate(nodes):
            group = next(f"g{n}" for n in range(99) if node.node.is_loaded(f"g{n}"))
            member = await node.consumer(group, "t", 3)
            ends = (("t", 0, 100 + number),)
            await node.ask(
                c.ReportLogEnds(
                    call_id=node.node.new_call_id(), group_id=group, generation=1,
                    member_id=member, ends=ends,
                )
            )  # fmt: skip
        plain = next(f"h{n}" for n in range(99) if nodes[0].node.is_loaded(f"h{n}"))
        await nodes[0].commit(plain, ("t", 1), offset=70)
        for node in nodes:
            await node.topics.refresh()
            found = await node.topics.log_ends({"t": [0, 1, 2], "nix": [5]})
            assert found == {
                "t": {0: (101, -1), 1: (-1, 70), 2: (-1, -1)}, "nix": {5: (-1, -1)},
            }  # fmt: skip


def parts(work) -> int:
    """Number of parts in which work is done."""
    return sum(1 for _ in work)


def test_many_topics_are_counted_merged_and_told_in_slices():
    names = [f"t{n}" for n in range(1_000)]
    told = {ShardId(0): core_topics.ReportedTopics(counts=dict.fromkeys(names, 3))}
    by_shard = {ShardId(0): dict.fromkeys(names, TopicCounts(reported=3))}
    assert parts(service_topics._counts(told)) >= 1_000 / PART
    assert parts(service_topics._view(by_shard, 1)) >= 2 * 1_000 / PART
    assert parts(topic_service._listed(TopicView(by_shard[ShardId(0)]))) >= 1_000 / PART
    assert parts(topic_service._reported(by_shard)) >= 1_000 / PART
    assert parts(offered(TopicView(by_shard[ShardId(0)]))) >= 1_000 / PART
    answer = at_once(topic_service._reported(by_shard))
    assert parts(replica_service._topics(answer)) >= 1_000 / PART
    assert at_once(replica_service._topics(answer)) == by_shard


async def test_log_ends_of_unknown_topics_are_looked_for_in_slices():
    async with machine() as [node]:
        wanted = {f"nix{n}": [0] for n in range(1_000)}
        assert parts(node.topics._log_ends_of(wanted)) >= 1_000 / PART


async def test_only_log_ends_that_are_wanted_are_looked_for(monkeypatch):
    looked = []
    monkeypatch.setattr(
        service_topics, "log_end", lambda _, partition: looked.append(partition) or (-1, -1)
    )
    async with machine(nodes=2) as nodes:
        await nodes[0].topics.log_ends({"t": [9_999]})
    assert looked == [("t", 9_999)] * 2


async def test_assignments_are_read_again_only_when_they_have_changed():
    reads = []

    def read(data: bytes):
        reads.append(data)
        return PAYLOADS.partitions(data)

    async with machine() as [node]:
        await node.consumer("g", "t", 3)
        groups = [
            group
            for shard in node.node.loaded_shards().values()
            for group in shard.machine.groups.values()
        ]
        reported = at_once(core_topics.reported_topics(groups, read, core_topics.ReportedTopics()))
        again = at_once(core_topics.reported_topics(groups, read, reported))
        assert (reported.counts, again.counts, len(reads)) == ({"t": 3}, {"t": 3}, 1)
