"""Advice that goes with a rebalance."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.core.values.rebalance_journal import RebalanceRecord, RemovedMember
from coordinator.observe.advice import AdviceCode, new_advice

GONE = RemovedMember("etl-1", "etl", "/127.0.0.1", "left", "left")
LEFT = RebalanceRecord(
    "g", "member left", "completed", member_id="etl-1", client_id="etl", client_host="/127.0.0.1",
    reason="", generation_before=1, generation_after=2, protocol="range", was_initial=False,
    started_at_ms=0, joined_at_ms=100, synced_at_ms=100, ended_at_ms=100, leader="",
    member_count=1, removed=(GONE,),
)  # fmt: skip
BACK = replace(LEFT, cause="member joined", started_at_ms=2_000, ended_at_ms=2_100, removed=())


@pytest.mark.parametrize(
    "reason", ["no progress: no poll for 5002 ms", "consumer poll timeout has expired."]
)
def test_who_did_not_poll_and_comes_back_was_not_restarted(reason):
    (advice,) = new_advice(BACK, [LEFT])
    assert advice.code is AdviceCode.STATIC_MEMBERSHIP
    assert not new_advice(replace(BACK, reason=reason), [LEFT])
