"""Placement of replicas on nodes: even, and with as few moves as possible.

The first replica is the preferred leader. Every replica counts the same, for a standby
reads all that the leader writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

Placement = dict[int, tuple[int, ...]]
"""Shard to its replicas."""


def complete(
    current: Mapping[int, tuple[int, ...]], live: Collection[int], factor: int
) -> Placement:
    """Give new replicas to shards that lack live ones; leave the other shards alone.

    A replica on a dead node keeps its place until a live node is needed there. Shards without
    replicas get `factor` of them, dealt so that preferred leaders are even too.

    Args:
        factor: replicas of a shard, as far as there are live nodes.
    """
    placed = {shard: tuple(replicas) for shard, replicas in current.items()}
    wanted = min(factor, len(live))
    for shard in sorted(placed):
        alive = [node for node in placed[shard] if node in live]
        if len(alive) < wanted:
            loads, firsts = _loads(placed, live), _firsts(placed, live)
            new = sorted(
                (node for node in live if node not in alive),
                key=lambda node: (loads[node], firsts[node], node),
            )
            chosen = alive + new[: wanted - len(alive)]
            if not alive:
                chosen.sort(key=lambda node: (firsts[node], loads[node], node))
            # A node that may come back keeps a place behind the live ones, if there is room.
            gone = [node for node in placed[shard] if node not in live]
            placed[shard] = tuple((chosen + gone)[:factor])
    return placed


def level(current: Mapping[int, tuple[int, ...]], live: Collection[int]) -> Placement:
    """Move replicas and preferred leaders until no node has 2 more of them than another."""
    placed = dict(current)
    while (move := _replica_move(placed, live)) is not None:
        shard, source, target = move
        placed[shard] = tuple(target if node == source else node for node in placed[shard])
    while (swap := _leader_swap(placed, live)) is not None:
        shard, node = swap
        placed[shard] = (node, *(other for other in placed[shard] if other != node))
    return placed


def _replica_move(placed: Placement, live: Collection[int]) -> tuple[int, int, int] | None:
    """(shard, from, to): one move from the most to the least loaded node; None: they are even."""
    loads = _loads(placed, live)
    if not loads:
        return None
    source = max(sorted(live), key=lambda node: loads[node])
    target = min(sorted(live), key=lambda node: loads[node])
    if loads[source] - loads[target] < 2:
        return None
    firsts = _firsts(placed, live)
    # A standby rather than a preferred leader, unless it has too many of those too.
    shards = [s for s in sorted(placed) if source in placed[s] and target not in placed[s]]
    lead = firsts[source] - firsts[target] >= 2
    shards.sort(key=lambda shard: (placed[shard][0] == source) is not lead)
    return (shards[0], source, target) if shards else None


def _leader_swap(placed: Placement, live: Collection[int]) -> tuple[int, int] | None:
    """(shard, new preferred leader): a step of a chain from a node with more to one with fewer."""
    firsts = _firsts(placed, live)
    for source in sorted(live, key=lambda node: -firsts[node]):
        # Breadth first: the nodes that could take over, and the shard with which each could.
        came: dict[int, tuple[int, int] | None] = {source: None}
        queue = [source]
        for node in queue:
            for shard in sorted(placed):
                if placed[shard] and placed[shard][0] == node:
                    for other in placed[shard][1:]:
                        if other in live and other not in came:
                            came[other] = (node, shard)
                            queue.append(other)
        for target in queue:
            if firsts[source] - firsts[target] >= 2:
                step = came[target]
                # The last step of the chain first: each leaves its node a leader short or even.
                assert step is not None
                return step[1], target
    return None


def _loads(placed: Mapping[int, tuple[int, ...]], live: Collection[int]) -> Counter[int]:
    loads = Counter(dict.fromkeys(live, 0))
    loads.update(n for replicas in placed.values() for n in replicas if n in loads)
    return loads


def _firsts(placed: Mapping[int, tuple[int, ...]], live: Collection[int]) -> Counter[int]:
    firsts = Counter(dict.fromkeys(live, 0))
    firsts.update(r[0] for r in placed.values() if r and r[0] in firsts)
    return firsts
