"""2,000 worlds, small and full of faults: every claim holds in each, and everything has run.

The mix is described in `tests/worlds/world.py`. Two minutes on two cores.
"""

from __future__ import annotations

import pytest

from tests.worlds import faults
from tests.worlds.played import Worlds, told

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

BLOCKS = 20

HAS_RUN = {
    # Mechanisms of the product, and the least number of times that each has to run.
    "Shard.beat": 10_000,
    "follower fetch": 5_000,
    "promotion of a warm standby": 300,
    "cold load": 1_000,
    "controller elected": 500,
    "session ended": 300,
    "log time-out": 300,
    "coordination time-out": 300,
    "client re-discovery": 5_000,
    "DelayedJoin": 3_000,
    "DelayedJoin ran out of time": 300,
    "InitialDelayElapsed": 500,
    "DelayedSync": 3_000,
    "DelayedSync ran out of time": 20,
    "SessionExpired": 1_000,
    "DelayedProduce": 30_000,
    "DelayedProduce ran out of time": 200,
    "DelayedFetch": 10_000,
    "DelayedFetch ran out of time": 5_000,
    "StaticMemberReplaced": 200,
    "StaticMemberSettled": 100,
    "snapshot": 300,
    "load of a snapshot": 100,
    "CallCancelled": 100,
    "RebalanceCompleted": 5_000,
    "RebalanceFailed": 50,
    "MemberLeft": 200,
    "commit answered NONE": 20_000,
    "commit answered none": 500,
    "commit answered COORDINATOR_NOT_AVAILABLE": 300,
    "commit refused: StaleMember": 200,
    "heartbeat answered REBALANCE_IN_PROGRESS": 1_000,
    "owner heard Granted": 5_000,
    "owner heard Revoking": 1_000,
    "owner heard Lost": 1_000,
    "slow handler": 500,
}
LOG_FAILURES = [
    "append full", "append too_large", "append fenced",
    *(
        f"{step} {kind}"
        for step in ("append", "fence", "load", "read", "write_snapshot")
        for kind in ("ambiguous", "lost", "unavailable")
    ),
]  # fmt: skip
BUGS = ("restore", "append_failed", "step", "append", "load")
STRIKES = [
    "node killed", "node paused", "node stopped", "node drained",
    "cut", "bad weather", "message lost", "connection reset", "request doubled",
    "majority lost", "store full", "slow appends", "controller deposed",
    "member killed", "member paused", "member left", "wall clock set",
    *(f"bug in {place}" for place in BUGS),
    *LOG_FAILURES,
]  # fmt: skip


@pytest.fixture(scope="module")
def worlds():
    worlds = Worlds(BLOCKS)
    yield worlds
    worlds.close()


@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_claim_holds(worlds, block):
    found = worlds.block(block)
    assert not found.problems, told(found)


@pytest.mark.parametrize("what", HAS_RUN)
def test_it_has_run(worlds, what):
    assert worlds.all().counts[what] >= HAS_RUN[what]


@pytest.mark.parametrize("kind", STRIKES)
def test_each_fault_has_struck(worlds, kind):
    assert worlds.all().counts[f"fault: {kind}"] >= 10


@pytest.mark.parametrize("place", BUGS)
def test_each_bug_has_been_met(worlds, place):
    assert worlds.all().counts[f"bug struck: {place}"] >= 10


def test_there_is_no_other_fault(worlds):
    """A new kind of fault is named above, so that somebody asks whether it strikes."""
    counted = {what.removeprefix("fault: ") for what in worlds.all().counts if "fault: " in what}
    assert counted == set(STRIKES)
    assert len(faults.KINDS) == 16
