"""Elections of leaders: the worked example, and every strategy over all small clusters."""

from __future__ import annotations

from itertools import chain, combinations, permutations

import pytest

from coordinator.cluster import elections
from coordinator.cluster.elections import Elected

NODES = (0, 1, 2)


def subsets(nodes):
    return [set(c) for c in chain.from_iterable(combinations(nodes, n) for n in range(4))]


CASES = [
    (replicas, in_sync, live)
    for replicas in permutations(NODES)
    for in_sync in subsets(NODES)
    for live in subsets(NODES)
]


def test_the_worked_example():
    """Replicas [1, 2, 0], in sync [2, 0], and node 1 has gone: 2 leads."""
    assert elections.offline([1, 2, 0], [2, 0], {0, 2}) == Elected(2, (2, 0))


def test_without_anybody_in_sync_any_live_replica_leads_alone():
    assert elections.offline([1, 2, 0], [1], {0, 2}) == Elected(2, (2,))
    assert elections.offline([1, 2, 0], [1], set()) is None


def test_a_reassigned_shard_is_led_by_a_new_replica_that_is_in_sync():
    assert elections.reassignment([3, 4], [4, 1], {3, 4, 1}) == Elected(4, (4,))
    assert elections.reassignment([3, 4], [1], {3, 4, 1}) is None


def test_only_the_preferred_one_is_preferred():
    assert elections.preferred([1, 2], [2, 1], {1, 2}) == Elected(1, (1, 2))
    assert elections.preferred([1, 2], [2], {1, 2}) is None
    assert elections.preferred([1, 2], [1, 2], {2}) is None
    assert elections.preferred([], [], {2}) is None


def test_who_wants_to_stop_is_not_elected():
    assert elections.controlled_shutdown([1, 2, 0], [1, 2, 0], {0, 1, 2}, {1}) == Elected(2, (2, 0))
    assert elections.controlled_shutdown([1, 2], [1, 2], {1, 2}, {1, 2}) is None
    assert elections.controlled_shutdown([1, 2], [1], {1, 2}, {1}) is None


@pytest.mark.parametrize(
    "strategy", [elections.offline, elections.reassignment, elections.preferred]
)
def test_a_leader_is_a_live_replica_and_in_sync_with_itself(strategy):
    for replicas, in_sync, live in CASES:
        elected = strategy(replicas, in_sync, live)
        if elected is None:
            # There was nobody to choose.
            allowed = set(replicas[:1]) if strategy is elections.preferred else set(replicas)
            if strategy is not elections.offline:
                allowed &= in_sync
            assert not allowed & live
            continue
        assert elected.leader in live
        assert elected.leader in elected.in_sync
        assert set(elected.in_sync) <= live
        if elected.leader in in_sync:
            assert set(elected.in_sync) <= in_sync
        else:
            assert strategy is elections.offline
            assert not in_sync & live
