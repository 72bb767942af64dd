"""Loads keep the collector out; what it has looked at once it does not look at again."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from coordinator.runtime import garbage
from coordinator.runtime.garbage import (
    LOOKED_AT,
    MANY,
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


def many() -> list[list[object]]:
    """Objects that are frozen once the collector has looked at them."""
    return [[] for _ in range(MANY)]


def test_nothing_is_collected_in_a_load_and_what_it_made_is_not_looked_at_again():
    before = gc.get_freeze_count()
    with gc_paused():
        assert not gc.isenabled()
        with gc_paused():
            made = many()
        assert not gc.isenabled(), "the outer load goes on"
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(made)


def test_a_load_that_fails_lets_the_collector_back_in():
    with pytest.raises(ValueError, match="damaged"), gc_paused():
        raise ValueError("damaged")
    assert gc.isenabled()


def test_what_was_loaded_and_let_go_of_is_found():
    with gc_paused():
        ring, _loaded = Ring(), many()
    gone = weakref.ref(ring)
    del ring
    gc.collect()
    assert gone() is not None, "it is not looked at"
    collect_and_freeze()
    assert gone() is None


def test_a_small_load_freezes_nothing():
    with gc_paused():
        gc.collect()
    frozen = gc.get_freeze_count()
    with gc_paused():
        gone = weakref.ref(Ring())
    assert gc.get_freeze_count() == frozen
    gc.collect()
    assert gone() is None


def test_what_is_frozen_is_freed_when_nobody_refers_to_it():
    with gc_paused():
        ring, _loaded = Ring(), many()
    gone = weakref.ref(ring)
    ring.itself = None
    del ring
    assert gone() is None


def test_a_full_collection_looks_only_at_what_has_come_since_objects_were_frozen():
    made = [Ring() for _ in range(MANY)]
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
    made += [Ring() for _ in range(MANY)]
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
        frozen, kept = gc.get_freeze_count(), []
        while len(kept) < 10 * MANY and gc.get_freeze_count() == frozen:
            kept += many()
        assert gc.get_freeze_count() > frozen + MANY, "pauses stay short all the same"


async def test_the_loop_runs_full_collections_and_freezes_what_they_leave_once_it_is_much():
    with ShortPauses() as pauses:
        pauses.attach()
        gc.collect()
        before, frozen = sum(pauses.counts[OLDEST]), gc.get_freeze_count()
        few = await allocate_until(lambda: sum(pauses.counts[OLDEST]) > before)
        assert gc.get_freeze_count() <= frozen
        kept = await allocate_until(lambda: gc.get_freeze_count() > frozen)
        assert len(few) < len(kept)
        assert gc.get_freeze_count() >= frozen + MANY


async def test_a_cycle_that_was_in_use_when_objects_were_frozen_is_freed_once_they_have_doubled():
    with ShortPauses() as pauses:
        pauses.attach()
        ring, frozen = Ring(), gc.get_freeze_count()
        kept = await allocate_until(lambda: gc.get_freeze_count() > frozen)
        gone = weakref.ref(ring)
        del ring
        gc.collect()
        assert gone() is not None, "it is frozen"
        kept += await allocate_until(lambda: gone() is None)
        assert gc.get_freeze_count() <= frozen + 2 * LOOKED_AT + 2 * MANY


async def test_a_cycle_that_was_frozen_is_freed_once_the_memory_has_doubled(monkeypatch):
    memory_bytes = 1_000
    monkeypatch.setattr(garbage, "resident_bytes", lambda: memory_bytes)
    with ShortPauses() as pauses:
        pauses.attach()
        with gc_paused():
            gone = weakref.ref(Ring())
            _loaded = many()
        before = sum(pauses.counts[OLDEST])
        await allocate_until(lambda: sum(pauses.counts[OLDEST]) > before)
        assert gone() is not None
        memory_bytes = 2_000
        kept = await allocate_until(lambda: gone() is None)
        assert len(kept) * THRESHOLDS[0] < LOOKED_AT, "not because the objects have doubled"


async def test_objects_that_reference_counting_has_freed_do_not_count_as_doubled():
    with ShortPauses() as pauses:
        pauses.attach()
        with gc_paused():
            gone = weakref.ref(Ring())
            _loaded = many()
        made = 0
        while made < 1.5 * LOOKED_AT:
            frozen = gc.get_freeze_count()
            kept = await allocate_until(lambda: gc.get_freeze_count() > frozen)  # noqa: B023
            made += THRESHOLDS[0] * len(kept)
            del kept
        assert gone() is not None, "there are as many as before"


async def test_a_cycle_that_is_in_use_while_python_collects_is_freed_once_it_is_not():
    """gRPC makes such a cycle for every call: allocations during it begin a collection."""
    with ShortPauses() as pauses:
        pauses.attach()
        gc.disable()
        before = sum(pauses.counts[MIDDLE])
        ring, kept = Ring(), [many()]
        gc.enable()
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
