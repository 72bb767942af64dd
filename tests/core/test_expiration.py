"""Expiration of offsets, on virtual time."""

from __future__ import annotations

from tests.conformance.kit import GROUP, Scenario

MINUTE_MS = 60_000


def test_the_order_of_a_logs_files_does_not_expire_before_its_offsets():
    """Pages of the pseudo-topic, which has no subscribers, would age from their commit."""
    s = Scenario(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1_000)
    outside = {"member_id": "", "generation": -1}
    pages = {("__files.t", 0): 300, ("__files.t", 1): 400}
    assert set(s.commit_codes(pages, **outside)) == {"NONE"}
    for _ in range(3):
        s.advance(MINUTE_MS // 2)
        assert s.commit_codes({("t", 0): 5, ("old", 0): 1}, **outside) == ["NONE", "NONE"]
    topics = s.fetch().response.topics
    assert {(t.name, p.partition_index) for t in topics for p in t.partitions} > set(pages)
    s.advance(3 * MINUTE_MS)
    assert s.c.state(GROUP) is None, "with the last offset of a log they go, too"
