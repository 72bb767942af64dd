"""An entry of the log is bounded by its records: they become true in one step."""

from __future__ import annotations

from coordinator.shard import writes
from coordinator.testing import VirtualCoordinator
from coordinator.v1 import group_pb2 as pb


def commit(group: str, partitions: int) -> pb.OffsetCommitRequest:
    named = [{"partition_index": n, "committed_offset": n} for n in range(partitions)]
    return pb.OffsetCommitRequest(group_id=group, topics=[{"name": "t", "partitions": named}])


def test_commits_that_wait_together_share_entries_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(writes, "ENTRY_RECORDS", 10)
    coordinator = VirtualCoordinator()
    coordinator.hold_appends()
    calls = [coordinator.send(commit(f"g{n}", size)) for n, size in enumerate((1, 6, 6, 4, 50, 1))]
    coordinator.release_appends()
    assert all(call.done for call in calls)
    sizes = [len(entry.records) for entry in coordinator.stored().entries]
    assert sizes == [1, 6, 10, 50, 1]
