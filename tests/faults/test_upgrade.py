"""An upgrade under load: N to N + 1 and back, on each store, with workers of both protocols.

`python -m tests.faults.upgrade COMMIT` takes any commit for N.
"""

from __future__ import annotations

import pytest

from tests.faults.stores import missing_etcd, missing_zookeeper
from tests.faults.upgrade import NoHistory, Release, last_release, roll

MISSING = {"sqlite": lambda: None, "etcd": missing_etcd, "zookeeper": missing_zookeeper}


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    """The release before, and this one."""
    try:
        commit = last_release()
    except NoHistory as reason:
        pytest.skip(str(reason))
    folder = tmp_path_factory.mktemp("releases")
    before = Release(folder / "before", commit, "1.0.0")
    after = Release(folder / "after", None, "2.0.0")
    assert (before.own_version(), after.own_version()) == ("1.0.0", "2.0.0")
    return before, after


@pytest.mark.parametrize("store", MISSING)
async def test_nobody_notices_an_upgrade_and_the_way_back(store, releases, tmp_path):
    if reason := MISSING[store]():
        pytest.skip(reason)
    assert await roll(tmp_path, store, *releases) == []
