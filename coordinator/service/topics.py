"""Topics of the whole cluster: every node tells the topics of the shards that it leads.

A node asks the others once a second while something follows the topics (the Kafka listener), and
whenever an operator asks. What was heard of a shard stays until the shard's next leader tells it
anew, so a topic does not vanish while a node restarts or a shard moves.

Scans take a limited share of the event loop: after one that took long, the next waits longer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from coordinator.core.topics import ReportedTopics, has_legal_name, log_end, reported_topics
from coordinator.core.values.ids import ShardId
from coordinator.runtime.node import Node
from coordinator.runtime.payloads import PAYLOADS
from coordinator.runtime.slices import PART, Work, in_slices
from coordinator.runtime.standby import LeaderUnreachable
from coordinator.storage.coordination import NodeInfo

REFRESH_S = 1.0
IDLE_SHARE = 50
"""Times the duration of a scan that pass before the next one: at most 2 % of the event loop."""
TOPICS_MAX = 10_000
"""Most topics whose counts operators may set."""
ALL_PARTITIONS_MAX = 100_000
"""Most partitions of all topics together: a Kafka client that lists topics gets them in one
answer."""

Partitions = Mapping[str, Collection[int]]
"""Partitions by topic."""
LogEnds = dict[str, dict[int, tuple[int, int]]]
"""Reported end and largest committed offset, by topic and partition; -1: unknown."""


@dataclass(frozen=True, slots=True)
class TopicCounts:
    """Partitions of a topic, set by an operator and reported by members; number of groups."""

    set: int = 0
    reported: int = 0
    groups: int = 0

    @property
    def partitions(self) -> int:
        return self.set or self.reported

    def __add__(self, other: TopicCounts) -> TopicCounts:
        """Sum of what two shards know of one topic."""
        return TopicCounts(
            max(self.set, other.set), max(self.reported, other.reported), self.groups + other.groups
        )


ShardTopics = Mapping[str, TopicCounts]


@dataclass(frozen=True, slots=True)
class TopicView:
    """Topics by name, sorted. `is_complete`: every shard was heard of."""

    topics: dict[str, TopicCounts] = field(default_factory=dict)
    is_complete: bool = False
    left_out: int = 0
    """Topics that only groups tell, beyond `ALL_PARTITIONS_MAX`."""

    def partitions(self, topic: str) -> int:
        """Count in force; 0: there is no such topic."""
        counts = self.topics.get(topic)
        return 0 if counts is None else counts.partitions


class TopicPeers(Protocol):
    """Questions to other nodes. Each raises `LeaderUnreachable`."""

    async def fetch_topics(self, node: NodeInfo) -> dict[ShardId, ShardTopics]:
        """Topics of the shards that a node leads and has loaded."""
        ...

    async def fetch_log_ends(self, node: NodeInfo, wanted: Partitions) -> LogEnds:
        """Log ends of these partitions, as far as the groups of a node know them."""
        ...


class Topics:
    """Topics as one node knows them.

    Args:
        peers: None: other nodes are not asked.
    """

    def __init__(self, node: Node, peers: TopicPeers | None = None) -> None:
        self.view = TopicView()
        """Topics as of the last refresh."""
        self._node = node
        self._peers = peers
        self._here: dict[ShardId, ReportedTopics] = {}
        self._counts_here: dict[ShardId, ShardTopics] = {}
        self._by_shard: dict[ShardId, ShardTopics] = {}
        self._clock = asyncio.get_running_loop().time
        self._scanning, self._refreshing = asyncio.Lock(), asyncio.Lock()
        self._scan_at_s = self._refreshed_s = float("-inf")
        self._begun = self._ended = 0  # Refreshes, counted.
        self._problems: frozenset[str] = frozenset()
        self._following: asyncio.Task[None] | None = None

    # --- The whole cluster ---

    async def refresh(self, max_age_s: float = 0.0) -> TopicView:
        """Return the topics of all nodes.

        Args:
            max_age_s: a view that is not older is returned as it is.
        """
        if self._clock() - self._refreshed_s < max_age_s:
            return self.view
        begun = self._begun
        async with self._refreshing:
            # One that began after the question answers it, whoever it was begun for.
            if self._ended <= begun:
                self._begun += 1
                await self._refresh()
                self._ended = self._begun
        return self.view

    def follow(self) -> None:
        """Keep `view` up to date from now on."""
        if self._following is None:
            self._following = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """End `follow`."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def log_ends(self, wanted: Partitions) -> LogEnds:
        """Log ends of these partitions, of which there are as many as one call may name."""
        log_ends = await self.log_ends_here(wanted)
        peers = self._node.peers() if self._peers is not None else []
        for ends_there in await asyncio.gather(*(self._ends_at(peer, wanted) for peer in peers)):
            for topic, ends in ends_there.items():
                mine = log_ends[topic]
                for partition, (end, committed) in ends.items():
                    known = mine[partition]
                    mine[partition] = max(known[0], end), max(known[1], committed)
        return log_ends

    # --- This node ---

    async def here(self) -> dict[ShardId, ShardTopics]:
        """Topics of the shards that this node leads and has loaded."""
        await self._scan()
        return self._counts_here

    async def log_ends_here(self, wanted: Partitions) -> LogEnds:
        """Log ends that the groups of this node know, as of the last scan."""
        if not self._here:
            await self._scan()
        return await in_slices(self._log_ends_of(wanted))

    def note_change(self) -> None:
        """Look anew when topics are asked for next: a count has been set or deleted."""
        self._scan_at_s = self._refreshed_s = float("-inf")

    # --- Inside ---

    async def _follow(self) -> None:
        while True:
            began_s = self._clock()
            try:
                await self.refresh()
            except Exception as error:  # noqa: BLE001  # A bug here must not end the following.
                self._node.report(f"the topics cannot be gathered: {error!r}")
            await asyncio.sleep(max(REFRESH_S, self._clock() - began_s))

    async def _refresh(self) -> None:
        began_s = self._clock()
        by_shard = dict(await self.here())
        problems: list[str] = []
        if self._peers is not None:
            peers = self._node.peers()
            asked = (self._peers.fetch_topics(peer) for peer in peers)
            answers = await asyncio.gather(*asked, return_exceptions=True)
            for peer, answer in zip(peers, answers, strict=True):
                if isinstance(answer, LeaderUnreachable):
                    problems.append(f"node {peer.node_id} does not tell its topics: {answer}")
                elif isinstance(answer, BaseException):
                    raise answer
                else:
                    by_shard |= answer
        self._by_shard |= by_shard
        self.view = await in_slices(_view(self._by_shard, self._node.settings.storage.shards))
        self._refreshed_s = began_s
        if self.view.left_out:
            problems.append(
                f"{self.view.left_out} topics that groups tell are left out: there are more than "
                f"{ALL_PARTITIONS_MAX} partitions"
            )
        for failure in set(problems) - self._problems:
            self._node.report(failure)
        self._problems = frozenset(problems)

    async def _scan(self) -> None:
        async with self._scanning:
            began_s = self._clock()
            if began_s < self._scan_at_s:
                return
            self._scan_at_s = began_s
            by_shard: dict[ShardId, ReportedTopics] = {}
            for shard, one_shard in self._node.loaded_shards().items():
                before = self._here.get(shard, ReportedTopics())
                groups = list(one_shard.machine.groups.values())
                by_shard[shard] = await in_slices(
                    reported_topics(groups, PAYLOADS.partitions, before)
                )
            counts = await in_slices(_counts(by_shard))
            self._here, self._counts_here = by_shard, counts
            if self._scan_at_s == began_s:  # Nothing was changed meanwhile.
                self._scan_at_s += IDLE_SHARE * (self._clock() - began_s)

    def _log_ends_of(self, wanted: Partitions) -> Work[LogEnds]:
        log_ends: LogEnds = {}
        for topic, partitions in wanted.items():
            yield
            groups = [
                group
                for reported in self._here.values()
                for group in reported.groups.get(topic, ())
            ]
            ends = log_ends[topic] = {}
            for number, partition in enumerate(partitions, start=1):
                ends[partition] = log_end(groups, (topic, partition))
                if len(groups) > PART or not number % PART:
                    yield
        return log_ends

    async def _ends_at(self, peer: NodeInfo, wanted: Partitions) -> LogEnds:
        assert self._peers is not None
        with contextlib.suppress(LeaderUnreachable):  # The refresh reports it.
            return await self._peers.fetch_log_ends(peer, wanted)
        return {}


def _counts(reported_topics: Mapping[ShardId, ReportedTopics]) -> Work[dict[ShardId, ShardTopics]]:
    by_shard: dict[ShardId, ShardTopics] = {}
    for shard, reported in reported_topics.items():
        counts = by_shard[shard] = {}
        for number, name in enumerate(reported.set.keys() | reported.counts.keys()):
            groups = len(reported.groups.get(name, ()))
            counts[name] = TopicCounts(
                reported.set.get(name, 0), reported.counts.get(name, 0), groups
            )
            if not number % PART:
                yield
    return by_shard


def _view(by_shard: Mapping[ShardId, ShardTopics], shards: int) -> Work[TopicView]:
    merged: dict[str, TopicCounts] = {}
    for topics in by_shard.values():
        for number, (name, counts) in enumerate(topics.items()):
            known = merged.get(name)
            merged[name] = counts if known is None else known + counts
            if not number % PART:
                yield
    kept, partitions = {}, sum(topic_counts.set for topic_counts in merged.values())
    for number, name in enumerate(sorted(merged)):
        if not number % PART:
            yield
        counts = merged[name]
        if not counts.set:
            if partitions + counts.reported > ALL_PARTITIONS_MAX:
                continue
            partitions += counts.reported
        kept[name] = counts
    return TopicView(kept, len(by_shard) >= shards, len(merged) - len(kept))


def offered(view: TopicView) -> Work[list[str]]:
    """Names of the topics that Kafka's clients may be shown: those that Kafka allows."""
    names: list[str] = []
    for number, name in enumerate(view.topics):
        if has_legal_name(name):
            names.append(name)
        if not number % PART:
            yield
    return names
