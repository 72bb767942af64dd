"""Documents of a group: compare-and-set, durable before the answer, gone with the group."""

from __future__ import annotations

import pytest

from coordinator.core.values.commands import ExpireOffsets
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.requests import (
    CommitOffsets,
    DeleteGroup,
    FetchDocuments,
    PartitionCommit,
    PutDocument,
    PutDocuments,
)
from coordinator.shard.inputs import AppendFailure
from tests.kit.session_scenario import GROUP, SessionScenario
from tests.unit.core.sessions.test_kinds import join
from tests.unit.core.sessions.test_snapshots import compacted

HOUR_MS = 3_600_000


def send(scenario: SessionScenario, kind, **more):
    """The answer; None: there is none yet."""
    call = scenario.new_call()
    scenario.send(kind(call_id=call, group_id=GROUP, **more))
    return scenario.replies.get(call)


def put(scenario: SessionScenario, *documents: tuple[str, bytes, int]):
    return send(
        scenario, PutDocuments, documents=tuple(PutDocument(*document) for document in documents)
    )


def stored(scenario: SessionScenario, prefix: str = "", after: int = 0) -> dict[str, bytes]:
    reply = send(scenario, FetchDocuments, prefix=prefix, after_version=after)
    return {document.name: document.content for document in reply.documents}


def test_all_are_written_if_nobody_else_has_written_one_and_none_otherwise():
    scenario = SessionScenario()
    first = put(scenario, ("a", b"1", 0), ("b", b"2", 0))
    assert len(first.versions) == 2
    assert stored(scenario) == {"a": b"1", "b": b"2"}
    assert put(scenario, ("a", b"3", first.versions[0]), ("b", b"3", 0)).versions == ()
    assert put(scenario, ("c", b"3", 1)).versions == ()
    assert stored(scenario) == {"a": b"1", "b": b"2"}
    second = put(scenario, ("a", b"4", first.versions[0]))
    assert second.versions > first.versions
    assert stored(scenario, after=max(first.versions)) == {"a": b"4"}
    assert stored(scenario, prefix="b") == {"b": b"2"}


def test_one_without_content_is_deleted_and_may_be_written_anew():
    scenario = SessionScenario()
    version = put(scenario, ("a", b"1", 0), ("b", b"2", 0)).versions[0]
    assert put(scenario, ("a", b"", version), ("c", b"3", 0)).versions
    assert stored(scenario) == {"b": b"2", "c": b"3"}
    compacted(scenario)
    scenario.restart()
    assert stored(scenario) == {"b": b"2", "c": b"3"}
    assert put(scenario, ("a", b"4", version)).versions == ()
    assert put(scenario, ("a", b"4", 0)).versions[0] > version


def test_no_version_is_used_again_in_a_group_of_the_same_id():
    scenario = SessionScenario()
    old = put(scenario, ("a", b"old", 0)).versions[0]
    assert send(scenario, DeleteGroup).error is ErrorCode.NONE
    assert stored(scenario) == {}
    assert put(scenario, ("a", b"new", old)).versions == ()
    compacted(scenario)
    scenario.restart()
    assert put(scenario, ("a", b"new", 0)).versions[0] > old


def test_one_waits_for_another_that_is_on_its_way_and_is_compared_with_its_result():
    scenario = SessionScenario()
    scenario.hold()
    calls = [scenario.new_call() for _ in range(2)]
    for call in calls:
        document = PutDocument("a", str(call).encode(), 0)
        scenario.send(PutDocuments(call_id=call, group_id=GROUP, documents=(document,)))
    assert not scenario.replies.keys() & set(calls)
    assert stored(scenario) == {}, "it is not durable"
    scenario.release()
    assert [len(scenario.replies[call].versions) for call in calls] == [1, 0]


def test_what_the_log_refuses_was_never_there():
    scenario = SessionScenario()
    scenario.hold()
    call = scenario.new_call()
    document = PutDocument("a", b"1", 0)
    scenario.send(PutDocuments(call_id=call, group_id=GROUP, documents=(document,)))
    scenario.release(failing=AppendFailure.TOO_LARGE)
    assert scenario.replies[call].error is not ErrorCode.NONE
    assert stored(scenario) == {}
    assert put(scenario, ("a", b"2", 0)).versions


def test_they_outlive_restarts_and_kinds_of_the_group():
    scenario = SessionScenario()
    put(scenario, ("a", b"1", 0))
    a = scenario.member("w-a", {"t": 2}).attach()
    assert a.reply.error is ErrorCode.NONE
    a.leave("now")
    compacted(scenario)
    scenario.restart()
    assert stored(scenario) == {"a": b"1"}
    join(scenario)
    assert scenario.shard.machine.groups[GROUP].kind == "classic"
    assert stored(scenario) == {"a": b"1"}


def test_they_are_limited_together():
    scenario = SessionScenario(group_documents_max_bytes=10)
    version = put(scenario, ("a", b"12345", 0), ("b", b"12345", 0)).versions[0]
    refused = put(scenario, ("a", b"123456", version))
    assert refused.error is ErrorCode.INVALID_REQUEST
    assert "would have 11 bytes, and may have 10" in refused.message
    assert put(scenario, ("a", b"54321", version)).versions


def test_a_reply_is_bounded_and_goes_on_after_its_last_version():
    scenario = SessionScenario()
    for name in "abc":
        put(scenario, (name, name.encode() * 700_000, 0))
    found, after = [], 0
    while True:
        reply = send(scenario, FetchDocuments, prefix="", after_version=after)
        assert reply.document_count == 3
        if not reply.documents:
            break
        assert len(reply.documents) == 1
        found += [document.name for document in reply.documents]
        after = reply.documents[-1].version
    assert found == ["a", "b", "c"]


@pytest.mark.parametrize("has_offsets", [False, True])
def test_they_go_with_a_group_that_nobody_uses_for_as_long_as_offsets_are_kept(has_offsets):
    scenario = SessionScenario(offsets_retention_minutes=180)
    put(scenario, ("a", b"1", 0))
    if has_offsets:
        commit = PartitionCommit("t", 0, 1)
        send(scenario, CommitOffsets, partitions=(commit,))
    scenario.to(2 * HOUR_MS)
    scenario.send(ExpireOffsets())
    assert stored(scenario) == {"a": b"1"}
    scenario.to(4 * HOUR_MS)
    scenario.send(ExpireOffsets())
    assert stored(scenario) == {}
    assert GROUP not in scenario.shard.machine.groups
