"""A small part of the search: `python -m tests.simulation.model` walks for as long as it may."""

from __future__ import annotations

from functools import partial

import pytest

from tests.simulation.model.classic import ClassicSpace
from tests.simulation.model.search import search, transcript
from tests.simulation.model.sessions import SessionSpace


@pytest.mark.parametrize(
    ("begin", "depth", "most"),
    [
        (partial(SessionSpace, members=2, partitions=2, faults=1), 3, 100),
        (partial(ClassicSpace, members=2, faults=1), 5, 150),
    ],
    ids=["sessions", "classic"],
)
def test_all_orders_of_a_few_events(begin, depth, most):
    result = search(begin, depth=depth, heal_every=64)
    for path in result.violations.values():
        raise AssertionError("\n".join(transcript(begin, path)))
    assert result.depth == depth
    assert result.states > most


def test_a_bug_is_found_by_a_shortest_path():
    class Broken(SessionSpace):
        def act(self, action):
            super().act(action)
            if action[0] == "append":
                self.group.names["w-x"] = "nobody"
                self.shard.check()

    result = search(Broken, depth=3)
    [path] = result.violations.values()
    assert [action[0] for action in path] == ["attach", "append"]
    assert transcript(Broken, path)[-1].startswith("!!! InvariantViolated")
