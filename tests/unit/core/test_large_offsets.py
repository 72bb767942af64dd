"""Requests that name many partitions cost a step for each, and no search among the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.core.classic.group import ClassicGroup
from coordinator.core.offsets import fetch_offsets
from coordinator.core.values.errors import MustWait
from coordinator.core.values.requests import FetchOffsets
from tests.kit.steps import a_step


class Unsearchable(tuple):
    """Partitions among which nobody may search: a search for each would be quadratic."""

    __slots__ = ()

    def __contains__(self, item) -> bool:
        raise AssertionError("searched")


def test_a_stable_fetch_looks_up_what_is_asked_for_among_what_is_pending():
    group = ClassicGroup("g", {}, {}, 0)
    for partition in range(100):
        group.await_offset(("t", partition), 5_000)
    absent = Unsearchable(("u", partition) for partition in range(100))
    step = a_step()
    fetch = FetchOffsets(call_id=1, group_id="g", partitions=absent, require_stable=True)
    fetch_offsets(group, fetch, step)
    assert len(step.out.replies) == 1
    both = Unsearchable((*absent, ("t", 99)))
    with pytest.raises(MustWait):
        fetch_offsets(group, replace(fetch, partitions=both), step)
