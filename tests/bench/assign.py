"""Benchmark of the assignors by group size: from nothing, and after one member has left."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from coordinator.assignors import Subscription, TopicPartition, by_name
from coordinator.assignors.base import ClusterView
from tests.bench.figures import Figures, best_of

NAMES = ("range", "roundrobin", "sticky")
SIZES = ((250, 12_500), (500, 25_000), (1_000, 50_000), (2_000, 100_000))
"""Members, and partitions in as many topics as there are members."""
ROUNDS = 3


def bench_assign(*, quick: bool = False) -> Figures:
    """Milliseconds an assignment, by members x topics x partitions.

    Args:
        quick: the smallest size only.
    """
    figures: Figures = {}
    for members, partitions in SIZES[:1] if quick else SIZES:
        view = ClusterView({f"t{n}": partitions // members for n in range(members)})
        new = {f"m{n:05}": Subscription(tuple(view.partitions)) for n in range(members)}
        grown: dict[str, list[TopicPartition]] = by_name("sticky").assign(view, new)
        left = {
            member: replace(new[member], owned_partitions=tuple(grown[member]), generation=1)
            for member in list(new)[1:]
        }
        loops = {
            f"{name}, {kind}": partial(by_name(name).assign, view, group)
            for name in NAMES
            for kind, group in (("from nothing", new), ("one has left", left))
        }
        for what, ns in best_of(loops, rounds=ROUNDS).items():
            figures[f"{what}, {members:,} x {members:,} x {partitions:,}, ms"] = ns / 1e6
    return figures
