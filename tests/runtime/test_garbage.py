"""Loads keep the collector out; it is back afterwards, whatever happened."""

from __future__ import annotations

import gc

import pytest

from coordinator.runtime.garbage import forget, quiet


@pytest.fixture(autouse=True)
def _as_it_was():
    yield
    gc.unfreeze()
    gc.enable()


def test_nothing_is_collected_in_a_load_and_what_it_made_is_not_looked_at_again():
    before = gc.get_freeze_count()
    with quiet():
        assert not gc.isenabled()
        with quiet():
            made = [[] for _ in range(10_000)]
        assert not gc.isenabled(), "the outer load goes on"
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(made)


def test_a_load_that_fails_lets_the_collector_back_in():
    with pytest.raises(ValueError, match="damaged"), quiet():
        raise ValueError("damaged")
    assert gc.isenabled()


def test_what_was_loaded_and_let_go_of_is_found():
    class Ring:
        pass

    alive: list[int] = []
    with quiet():
        ring = Ring()
        ring.itself = ring
        ring.__class__.__del__ = lambda _: alive.append(1)
    del ring
    gc.collect()
    assert alive == [], "it is not looked at"
    forget()
    assert alive == [1]
