"""An entry of the log is bounded by its records: they become true in one step."""

from __future__ import annotations

from coordinator.core.sessions.plan import applying
from coordinator.core.values.records import PartitionsGranted
from coordinator.shard import writes
from coordinator.testing import VirtualCoordinator
from coordinator.v1 import group_pb2 as pb
from tests.kit.session_scenario import SessionScenario


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


def test_writes_that_are_too_large_together_go_in_halves():
    """Not one by one: a member that leaves may write thousands about its partitions."""
    coordinator = VirtualCoordinator()
    coordinator.hold_appends()
    calls = [coordinator.send(commit(f"g{n}", 1)) for n in range(9)]
    coordinator.release_appends(hold_on=True)  # The first; the other eight wait together.
    coordinator.fail_next_append("too_large")
    coordinator.release_appends(hold_on=True)  # Four of them.
    coordinator.fail_next_append("too_large")
    coordinator.release_appends()
    assert all(call.done for call in calls)
    sizes = [len(entry.records) for entry in coordinator.stored().entries]
    assert sizes == [1, 2, 2, 2, 2]


def test_a_granted_partition_counts_as_a_record(monkeypatch):
    monkeypatch.setattr(writes, "ENTRY_RECORDS", 10)
    monkeypatch.setattr(applying, "SLICE", 6)
    scenario = SessionScenario()
    a = scenario.member("w-a", {"t": 20}).attach()
    scenario.hold()
    scenario.to(110)
    sizes = []
    while scenario.held:
        append, scenario.held = scenario.held[0], []
        sizes.append(sum(isinstance(record, PartitionsGranted) for record in append.records))
        scenario._append(append)
    assert sizes == [1, 1, 2], "6 partitions, 6, and 6 and 2 together"
    assert len(a.active) == 20
