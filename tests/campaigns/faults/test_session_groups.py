"""Session groups under faults of workers, nodes, wires and the store: no overlap, no commit lost.

`python -m tests.campaigns.faults.sessions` makes 500 faults.
"""

from __future__ import annotations

import pytest

from tests.campaigns.faults.session_claims import moves
from tests.campaigns.faults.sessions import OFTEN, PARTITIONS, run, verdict
from tests.campaigns.faults.stores import missing_etcd


@pytest.mark.timeout(900)
@pytest.mark.skipif(missing_etcd() is not None, reason=str(missing_etcd()))
async def test_every_kind_of_fault_once(tmp_path):
    campaign = await run(tmp_path, "etcd", [*OFTEN, "worker stops"], seed=1)
    assert verdict(campaign) == []
    # Otherwise the claims would hold for want of anything happening.
    notes = campaign.notes()
    assert len(campaign.idle_times) == len(OFTEN) + 1
    assert {note["p"] for note in notes if note["op"] == "committed"} == set(range(PARTITIONS))
    assert moves(notes) > 0, "a worker was killed, and another one has its partitions"
