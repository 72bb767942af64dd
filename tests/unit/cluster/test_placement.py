"""Replicas are even, complete, and moved no more than that takes."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from coordinator.cluster.placement import complete, level

NODES = st.sets(st.integers(0, 7), min_size=1, max_size=6)
SHARDS = st.integers(1, 24)
FACTORS = st.integers(1, 3)


def fresh(shards: int) -> dict:
    return dict.fromkeys(range(shards), ())


def spread(counts: Counter, live) -> int:
    values = [counts[node] for node in live]
    return max(values) - min(values)


def replicas(placed, live) -> Counter:
    return Counter(n for r in placed.values() for n in r if n in live)


def firsts(placed) -> Counter:
    return Counter(r[0] for r in placed.values())


@given(SHARDS, NODES, FACTORS)
def test_a_new_store_is_placed_evenly(shards, live, factor):
    placed = level(complete(fresh(shards), live, factor), live)
    for chosen in placed.values():
        assert len(chosen) == len(set(chosen)) == min(factor, len(live))
        assert set(chosen) <= live
    assert spread(replicas(placed, live), live) <= 1
    assert spread(firsts(placed), live) <= 1


@given(SHARDS, NODES, NODES, FACTORS)
def test_only_what_lacks_somebody_is_completed(shards, before, now, factor):
    old = complete(fresh(shards), before, factor)
    placed = complete(old, now, factor)
    wanted = min(factor, len(now))
    for shard, chosen in placed.items():
        alive = [node for node in old[shard] if node in now]
        if len(alive) >= wanted:
            assert chosen == old[shard]
        else:
            assert list(chosen[: len(alive)]) == alive
            assert len([node for node in chosen if node in now]) == wanted
        assert len(chosen) <= factor
        assert len(set(chosen)) == len(chosen)


@given(SHARDS, NODES, NODES, FACTORS)
def test_levelled_is_even_and_loses_nobody(shards, before, now, factor):
    old = complete(complete(fresh(shards), before, factor), now, factor)
    placed = level(old, now)
    assert spread(replicas(placed, now), now) <= 1
    for shard, chosen in placed.items():
        assert len(chosen) == len(set(chosen)) == len(old[shard])
    assert level(placed, now) == placed


def test_a_node_that_comes_gets_its_share_and_no_more_moves_than_that():
    old = complete(fresh(16), {0, 1, 2}, 2)
    placed = level(old, {0, 1, 2, 3})
    assert replicas(placed, {0, 1, 2, 3}) == {0: 8, 1: 8, 2: 8, 3: 8}
    moved = sum(len(set(placed[s]) - set(old[s])) for s in placed)
    assert moved == 8
    assert spread(firsts(placed), {0, 1, 2, 3}) <= 1
