"""SIGKILL at random: nothing acknowledged is lost, and nobody at rest is disturbed.

`python -m tests.campaigns.faults.kill` kills twenty times as often.
"""

from __future__ import annotations

import re

import pytest

from tests.campaigns.faults.kill import WORK, check, kill_again_and_again

KILLS = 10


@pytest.mark.timeout(900)
async def test_nothing_acknowledged_is_lost(tmp_path):
    verdict = check(*await kill_again_and_again(tmp_path, KILLS, seed=1))
    assert verdict.returncode == 0, verdict.stdout[-5_000:]
    # Otherwise the claims would hold for want of anything happening.
    counts = {what: int(n) for n, what in re.findall(r"(\d+) (\w+)", verdict.stderr)}
    assert counts["killed"] == KILLS
    assert all(counts[op] >= count * KILLS for op, count in WORK.items())
    assert counts["fetched"] > KILLS
