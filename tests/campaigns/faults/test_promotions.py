"""Two rounds of a store that loses commits, of each kind; `promotions.py` plays hundreds."""

from __future__ import annotations

import pytest

from tests.campaigns.faults.promotions import Promotions, PutBacks, play
from tests.campaigns.faults.stores import missing_postgres


@pytest.mark.parametrize("kind", [Promotions, PutBacks])
async def test_no_number_of_lost_commits_is_handed_out_again(kind):
    if reason := missing_postgres():
        pytest.skip(reason)
    issued, _ = await play(2, kind)
    assert issued.violations == []
