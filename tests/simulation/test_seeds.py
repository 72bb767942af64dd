"""Thousands of worlds in which appends fail and coordinators die: every claim holds in each."""

from __future__ import annotations

from collections import Counter

import pytest

from coordinator.core.errors import ErrorCode
from coordinator.shard import operations
from tests.checkers.check import problems
from tests.simulation.world import World

BLOCKS, SEEDS_A_BLOCK = 20, 100


@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_claim_holds(block):
    first = block * SEEDS_A_BLOCK
    for seed in range(first, first + SEEDS_A_BLOCK):
        assert problems(*World(seed).run()) == [], f"seed {seed}"


def test_the_worlds_are_worth_living_in():
    """Otherwise the claims would hold for want of anything happening."""
    counts: Counter = Counter()
    for seed in range(50):
        world = World(seed)
        history, dump = world.run()
        counts.update(line["op"] for line in history)
        counts.update(f"{x['op']} {x['answer']}" for x in history if "answer" in x)
        counts["records"] += len(dump)
    assert counts["assigned"] > 200
    assert counts["committed NONE"] > 200
    assert counts["committed COORDINATOR_NOT_AVAILABLE"] > 10
    assert counts["committed none"] > 5
    assert counts["records"] > 100


def test_an_answer_before_the_log_is_found(monkeypatch):
    """The checkers see it if the rule they are for is broken."""
    monkeypatch.setattr(operations.DelayedProduce, "try_complete", at_once)
    assert any(problems(*World(seed).run()) for seed in range(30))


def at_once(self) -> bool:
    self.error = ErrorCode.NONE
    return self.force_complete()
