"""Two promotions of a standby that lacks commits; `promotions.py` plays hundreds."""

from __future__ import annotations

import pytest

from tests.faults.promotions import play
from tests.faults.stores import missing_postgres


async def test_no_number_of_lost_commits_is_handed_out_again():
    if reason := missing_postgres():
        pytest.skip(reason)
    issued, _ = await play(2)
    assert issued.violations == []
