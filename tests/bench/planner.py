"""Benchmark of the planner of session groups: a first plan, and one member less or more."""

from __future__ import annotations

import gc
import time
from array import array
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from coordinator.core.sessions.plan.allocator import plan
from coordinator.core.values.plans import FREE, Plan, PlanInput, PlanMember, PlanTopic
from tests.bench.figures import Figures

SIZES = ((250, 12_500), (1_000, 50_000), (2_000, 100_000), (5_000, 250_000))
"""Members and partitions."""
TOPICS = 10
ROUNDS = 3


def bench_planner(*, quick: bool = False) -> Figures:
    """Milliseconds of CPU time for a plan, by members x partitions.

    Equal members, members of different capacities, members that have half of the topics each, and
    members of which one declares one partition less than the others.

    Args:
        quick: the smallest size only.
    """
    figures: Figures = {}
    for members, partitions in SIZES[:1] if quick else SIZES:
        for kind in ("equal", "capacities", "topics", "one less"):
            random = Random(1)  # noqa: S311  # The same groups each time.
            group = [_member(n, kind, partitions, random) for n in range(members)]
            for what, state in _states(group, partitions).items():
                figures[f"{kind}, {what}, {members:,} x {partitions:,}, ms"] = _cpu_ms(state)
    return figures


def _cpu_ms(state: PlanInput) -> float:
    """CPU time of a plan, the least of several rounds: others on the machine change it little."""
    times_ns = []
    for _ in range(ROUNDS):
        gc.collect()
        began_ns = time.process_time_ns()
        plan(state)
        times_ns.append(time.process_time_ns() - began_ns)
    return min(times_ns) / 1e6


def _member(number: int, kind: str, partitions: int, random: Random) -> PlanMember:
    each = partitions // TOPICS
    is_half = kind == "topics"
    declares = [each if not is_half or random.random() < 0.5 else 0 for _ in range(TOPICS)]
    if kind == "one less" and number == 0:
        declares[0] -= 1
    return PlanMember(
        f"w-{number:05}",
        tuple(declares),
        capacity=random.choice([0.5, 1, 2, 4]) if kind == "capacities" else 1.0,
    )


def _states(members: Sequence[PlanMember], partitions: int) -> dict[str, PlanInput]:
    each, last = partitions // TOPICS, len(members) - 1
    free = tuple(PlanTopic(f"t{n}", each, array("i", [FREE]) * each) for n in range(TOPICS))
    first = PlanInput(tuple(members), free)
    held = _held(first, plan(first))
    left = tuple(
        replace(topic, at=array("i", (FREE if m == last else m for m in topic.at)))
        for topic in held
    )
    joiner = members[1]._replace(name="w-new")
    return {
        "first plan": first,
        "nothing to do": PlanInput(tuple(members), held),
        "one has left": PlanInput(tuple(members[:-1]), left),
        "one has come": PlanInput((*members, joiner), held),
    }


def _held(state: PlanInput, made: Plan) -> tuple[PlanTopic, ...]:
    at = [array("i", topic.at) for topic in state.topics]
    for member, by_topic in made.grants.items():
        for topic, ranges in by_topic.items():
            for first, end in ranges:
                at[topic][first : end + 1] = array("i", [member]) * (end + 1 - first)
    return tuple(
        replace(topic, at=holders) for topic, holders in zip(state.topics, at, strict=True)
    )
