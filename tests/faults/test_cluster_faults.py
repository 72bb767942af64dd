"""A deployment that is broken in every way keeps every promise. The long one runs by command."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults.cluster import PROFILES, break_again_and_again, report
from tests.faults.injections import KINDS
from tests.faults.kill import check
from tests.faults.stores import missing_etcd, missing_zookeeper

MISSING = {"etcd": missing_etcd, "zookeeper": missing_zookeeper}


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
    print(report(profile, history, verdict.stdout))


def test_the_full_profiles_together_are_what_is_promised():
    faults = [PROFILES["full", store].faults for store in MISSING]
    promised = {"node kills": 50, "node stops": 20, "store kills": 20, "partitions": 10}
    assert {name: sum(f[name] for f in faults) for name in promised} == promised
    assert all(f.keys() == KINDS.keys() for f in faults)
