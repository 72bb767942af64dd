"""A deployment that is broken in every way keeps every promise.

`python -m tests.campaigns.faults.cluster full etcd`, `… zookeeper` and `… postgresql` break it
more often.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.campaigns.faults.cluster import PROFILES, break_again_and_again, done, report
from tests.campaigns.faults.injections import KINDS
from tests.campaigns.faults.kill import check
from tests.campaigns.faults.stores import missing_etcd, missing_postgres, missing_zookeeper

MISSING = {"etcd": missing_etcd, "zookeeper": missing_zookeeper, "postgresql": missing_postgres}
OF_THREE = ("etcd", "zookeeper")
"""Stores of three servers, between which the promised faults are divided."""
PROMISED = {"node kills": 50, "node stops": 20, "store kills": 20, "partitions": 10}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", MISSING)
def test_every_claim_holds_whatever_breaks(store, tmp_path):
    if reason := MISSING[store]():
        pytest.skip(reason)
    profile = PROFILES["ci", store]
    history, dump = asyncio.run(break_again_and_again(tmp_path, store, profile, seed=1))
    verdict = check(history, dump)
    assert verdict.returncode == 0, verdict.stdout
    assert "quiet" in verdict.stderr
    faults, takeovers = done(history)
    assert faults == profile.faults
    assert takeovers > 0
    print(report(profile, history, verdict.stdout))


def test_the_profiles_of_the_suite_together_break_everything_and_a_tenth_as_often():
    once = [PROFILES["ci", store].faults for store in OF_THREE]
    assert {name for faults in once for name in faults} == KINDS.keys()
    often = ("node kills", "node stops", "store kills", "partitions")
    assert {name: 10 * sum(f.get(name, 0) for f in once) for name in often} == PROMISED


def test_the_full_profiles_together_are_what_is_promised():
    faults = [PROFILES["full", store].faults for store in OF_THREE]
    assert {name: sum(f[name] for f in faults) for name in PROMISED} == PROMISED
    assert all(f.keys() == KINDS.keys() for f in faults)
