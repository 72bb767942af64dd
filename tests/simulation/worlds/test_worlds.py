"""500 worlds, small and full of faults: every claim holds in each, and everything has run.

The mix is described in `tests/simulation/worlds/world.py`. Half a minute on two cores; `poe sim
--seeds A-B` plays any others, and `poe campaigns` the first 20,000.
"""

from __future__ import annotations

import pytest

from tests.simulation.worlds import faults
from tests.simulation.worlds.played import Worlds, told

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

BLOCKS = 5

HAS_RUN = {
    # Mechanisms of the product, and the least number of times that each has to run.
    "Shard.beat": 2_500,
    "follower fetch": 1_250,
    "promotion of a warm standby": 75,
    "cold load": 250,
    "controller elected": 125,
    "session ended": 75,
    "log time-out": 75,
    "coordination time-out": 75,
    "client re-discovery": 1_250,
    "DelayedJoin": 750,
    "DelayedJoin ran out of time": 75,
    "InitialDelayElapsed": 125,
    "DelayedSync": 750,
    "DelayedSync ran out of time": 5,
    "SessionExpired": 250,
    "DelayedProduce": 7_500,
    "DelayedProduce ran out of time": 50,
    "DelayedFetch": 2_500,
    "DelayedFetch ran out of time": 1_250,
    "StaticMemberReplaced": 50,
    "FinishReplacement": 25,
    "snapshot": 75,
    "load of a snapshot": 25,
    "CallCancelled": 25,
    "RebalanceCompleted": 1_250,
    "RebalanceFailed": 12,
    "MemberLeft": 50,
    "commit answered NONE": 5_000,
    "commit answered none": 125,
    "commit answered COORDINATOR_NOT_AVAILABLE": 75,
    "commit refused: StaleMember": 50,
    "heartbeat answered REBALANCE_IN_PROGRESS": 250,
    "owner heard Granted": 1_250,
    "owner heard Revoking": 250,
    "owner heard Lost": 250,
    "slow handler": 125,
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
    *(f"bug in {bug}" for bug in BUGS),
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


@pytest.mark.parametrize("bug", BUGS)
def test_each_bug_has_been_met(worlds, bug):
    assert worlds.all().counts[f"bug struck: {bug}"] >= 10


def test_there_is_no_other_fault(worlds):
    """A new kind of fault is named above, so that somebody asks whether it strikes."""
    counted = {what.removeprefix("fault: ") for what in worlds.all().counts if "fault: " in what}
    assert counted == set(STRIKES)
    assert len(faults.KINDS) == 16
