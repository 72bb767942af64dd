"""A new version is rolled out: node after node stops and comes back, and nobody notices.

`python -m tests.faults.rolling` does it under ten times as many members.
"""

from __future__ import annotations

import pytest

from tests.faults.rolling import roll
from tests.faults.stores import missing_etcd

GROUPS = 10


async def test_a_rolling_restart_under_fifty_members_is_noticed_by_none():
    if reason := missing_etcd():
        pytest.skip(reason)
    outcome = await roll(GROUPS)
    assert outcome.moved == 0, "no member was lost, no group rebalanced"
    assert outcome.events == []
