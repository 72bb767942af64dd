"""The record of a log's files in a group of a real coordinator."""

from __future__ import annotations

import asyncio
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from coordinator.assignors import TopicPartition
from coordinator.client.group_address import GroupAddress
from coordinator.operator.admin import GroupAdmin
from coordinator.sources.group.record import files_of_group
from coordinator.sources.group_files import LONG, RECENT, GroupFiles
from coordinator.sources.recorded import FileRecord, RecordedEntry, RecordUnreadable, key_of
from tests.kit.serving import running


@pytest.fixture
async def server():
    async with running() as server:
        yield server


def files(server, group: str = "g") -> GroupFiles:
    return files_of_group(GroupAddress(server.address, group))


def entries(first: int, upto: int) -> list[RecordedEntry]:
    return [RecordedEntry(key_of(f"part-{n}"), n % 3, n * 1_000, n) for n in range(first, upto)]


def append(some: GroupFiles, *new: RecordedEntry, topic: str = "t") -> FileRecord | None:
    some.known(topic)
    return some.append(topic, "rows", "3", new)


async def test_what_one_process_records_others_read_page_by_page(server):
    def story():
        one, two = files(server), pickle.loads(pickle.dumps(files(server)))
        assert one.known("t").count == 0
        for first, upto in ((0, 1), (1, 2), (2, 700), (700, 701), (701, 30_000)):
            record = append(one, *entries(first, upto))
            assert record is not None
        assert two.known("t") == one.known("t") == record
        assert append(two, *entries(30_000, 30_001)) is not None
        assert one.known("t").count == 30_000, "not asked again"
        assert one.known("t", anew=True).count == 30_001
        assert one.known("another").count == one.known("t/another").count == 0
        with GroupAdmin(server.address) as admin:
            assert admin.offsets("g") == {}

    await asyncio.to_thread(story)


async def test_of_processes_that_record_at_the_same_moment_one_is_first(server):
    def record_all(n: int) -> None:
        mine = files(server)
        for i in range(8):
            while append(mine, RecordedEntry(key_of(f"{n}-{i}"), 0, 1, 1)) is None:
                mine.known("t", anew=True)

    def story():
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(record_all, range(4)))
        record = files(server).known("t")
        assert record.keys == {key_of(f"{n}-{i}") for n in range(4) for i in range(8)}
        assert len(record.partitions[0]) == 32

    await asyncio.to_thread(story)


async def test_documents_that_were_overwritten_or_are_missing_are_told(server):
    def story():
        append(files(server), *entries(0, 2 * LONG))
        with GroupAdmin(server.address) as admin:
            documents, _ = admin.documents("g")
            first = next(item for item in documents if item.name.endswith("/000000"))
            assert admin.put_documents("g", {first.name: b""}, {first.name: first.version})
            with pytest.raises(RecordUnreadable, match=r"pages of the record of .* are missing"):
                files(server).known("t")
            assert admin.put_documents("g", {first.name: b"what"}, {})
        with pytest.raises(RecordUnreadable, match="no page of a record"):
            files(server).known("t")

    await asyncio.to_thread(story)


async def test_a_record_that_would_be_too_large_for_the_coordinator_is_refused():
    def story(server):
        with pytest.raises(ValueError, match="group_documents_max_bytes"):
            append(files(server), *entries(0, LONG))

    async with running(group_documents_max_bytes=9_999) as server:
        await asyncio.to_thread(story, server)


async def test_what_was_read_and_committed_is_folded(server):
    def story():
        one, two = files(server), files(server)
        files_read = [RecordedEntry(key_of(f"part-{n}"), n % 3, 1, n) for n in range(RECENT + LONG)]
        append(one, *files_read)
        two.known("t")
        with GroupAdmin(server.address) as admin:
            ends = {TopicPartition("t", p): one.known("t").end(p) for p in range(3)}
            assert admin.commit("g", ends) == {}
        record = append(one, RecordedEntry(key_of("x"), 0, 1, 1))
        assert record.unfolded == RECENT + 1
        assert two.known("t", anew=True) == files(server).known("t") == record

    await asyncio.to_thread(story)


async def test_a_long_name_of_a_topic_has_a_record_too(server):
    def story():
        topic = "/logs/" + "x" * 243
        assert append(files(server), *entries(0, 1), topic=topic) is not None
        assert files(server).known(topic).count == 1
        assert files(server).known(topic[:-1]).count == 0

    await asyncio.to_thread(story)


@pytest.mark.parametrize("others", [[], [1, 0, 2]])
async def test_a_record_that_was_deleted_with_its_group_is_read_anew(server, others):
    def story():
        one, one_of = files(server), entries(0, 3)
        before = append(one, *one_of[:2])
        with GroupAdmin(server.address) as admin:
            assert admin.delete_group("g") == "NONE"
        if others:
            append(files(server), *(one_of[i] for i in others))
        record = one.known("t", anew=True)
        assert record == files(server).known("t")
        assert record.id != before.id
        assert append(one, *entries(7, 8)).count == len(others) + 1

    await asyncio.to_thread(story)


async def test_a_write_that_is_refused_while_the_group_is_loaded_is_made_again(server, monkeypatch):
    put, refused = GroupAdmin.put_documents, []

    def loading(admin, group, contents, expected):
        if not refused:
            refused.append(group)
            raise LookupError("COORDINATOR_LOAD_IN_PROGRESS")
        return put(admin, group, contents, expected)

    def story():
        monkeypatch.setattr(GroupAdmin, "put_documents", loading)
        assert append(files(server), *entries(0, 2)).count == 2

    await asyncio.to_thread(story)


async def test_nobody_appends_between_two_calls_of_one_append(server, monkeypatch):
    put, calls = GroupAdmin.put_documents, []

    def interrupted(admin, group, contents, expected):
        calls.append(contents)
        if len(calls) == 2:
            assert append(files(server), RecordedEntry(key_of("x"), 0, 1, 1)) is not None
        return put(admin, group, contents, expected)

    def story():
        monkeypatch.setattr(GroupAdmin, "put_documents", interrupted)
        many = [RecordedEntry(key_of(f"part-{n}"), 0, 2**15, 1) for n in range(80_000)]
        assert append(files(server), *many) is None
        found = files(server).known("t")
        assert key_of("x") in found.keys
        assert found.count > LONG

    await asyncio.to_thread(story)
