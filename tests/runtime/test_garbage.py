"""Loads keep the collector out; what it has looked at once it does not look at again."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from coordinator.runtime.garbage import (
    MIDDLE,
    OLDEST,
    THRESHOLDS,
    ShortPauses,
    collect_and_freeze,
    gc_paused,
)


@pytest.fixture(autouse=True)
def _as_it_was():
    yield
    gc.unfreeze()
    gc.enable()


class Ring:
    """Found by the collector alone."""

    def __init__(self) -> None:
        self.itself = self


def test_nothing_is_collected_in_a_load_and_what_it_made_is_not_looked_at_again():
    before = gc.get_freeze_count()
    with gc_paused():
        assert not gc.isenabled()
        with gc_paused():
            made = [[] for _ in range(10_000)]
        assert not gc.isenabled(), "the outer load goes on"
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(made)


def test_a_load_that_fails_lets_the_collector_back_in():
    with pytest.raises(ValueError, match="damaged"), gc_paused():
        raise ValueError("damaged")
    assert gc.isenabled()


def test_what_was_loaded_and_let_go_of_is_found():
    with gc_paused():
        ring = Ring()
    gone = weakref.ref(ring)
    del ring
    gc.collect()
    assert gone() is not None, "it is not looked at"
    collect_and_freeze()
    assert gone() is None


def test_what_is_frozen_is_freed_when_nobody_refers_to_it():
    with gc_paused():
        ring = Ring()
    gone = weakref.ref(ring)
    ring.itself = None
    del ring
    assert gone() is None


def test_a_full_collection_looks_only_at_what_has_come_since_the_last_one():
    made = [Ring() for _ in range(1_000)]
    before = gc.get_threshold()
    with ShortPauses():
        assert gc.get_threshold() == THRESHOLDS
        gc.collect()
        frozen = gc.get_freeze_count()
        assert frozen >= len(made)
        gone = weakref.ref(Ring())
        gc.collect()
        assert gone() is None, "what is new is looked at"
    assert gc.get_threshold() == before
    frozen = gc.get_freeze_count()
    made += [Ring() for _ in range(1_000)]
    gc.collect()
    assert gc.get_freeze_count() == frozen, "outside, collections are ordinary ones"


async def allocate_until(condition) -> list[object]:
    """Make objects that stay until the collector has done something, giving the loop its turns."""
    kept = []
    for _ in range(1_000):
        kept.append([[] for _ in range(THRESHOLDS[0])])
        await asyncio.sleep(0)
        if condition():
            return kept
    raise AssertionError("the collector did not run")


async def test_a_loop_that_does_not_come_to_it_leaves_full_collections_to_python():
    with ShortPauses() as pauses:
        pauses.attach()
        before, frozen = sum(pauses.counts[OLDEST]), gc.get_freeze_count()
        kept = []
        while sum(pauses.counts[OLDEST]) == before:
            kept.append([])
        assert gc.get_freeze_count() > frozen + THRESHOLDS[0], "pauses stay short all the same"


async def test_the_loop_runs_full_collections_and_freezes_what_they_leave():
    with ShortPauses() as pauses:
        pauses.attach()
        before, frozen = sum(pauses.counts[OLDEST]), gc.get_freeze_count()
        kept = await allocate_until(lambda: sum(pauses.counts[OLDEST]) > before + 1)
        assert kept
        assert gc.get_freeze_count() > frozen + THRESHOLDS[0]


async def test_a_cycle_that_is_in_use_while_python_collects_is_freed_once_it_is_not():
    """gRPC makes such a cycle for every call: allocations during it begin a collection."""
    with ShortPauses() as pauses:
        pauses.attach()
        before = sum(pauses.counts[MIDDLE])
        ring = Ring()
        kept = []
        while sum(pauses.counts[MIDDLE]) == before:
            kept.append([])
        gone = weakref.ref(ring)
        del ring
        before = sum(pauses.counts[OLDEST])
        await allocate_until(lambda: sum(pauses.counts[OLDEST]) > before)
        assert gone() is None


def test_pauses_are_counted_by_generation():
    with ShortPauses() as pauses:
        before = sum(pauses.counts[OLDEST])
        gc.collect()
        assert sum(pauses.counts[OLDEST]) == before + 1
        assert pauses.total_s[OLDEST] > 0
    gc.collect()
    assert sum(pauses.counts[OLDEST]) == before + 1
