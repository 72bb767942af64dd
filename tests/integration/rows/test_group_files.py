"""The record of a log's files in a group of a real coordinator."""

from __future__ import annotations

import asyncio
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from coordinator.assignors import TopicPartition
from coordinator.client.group_address import GroupAddress
from coordinator.operator.admin import FILES_TOPIC, GroupAdmin
from coordinator.sources.group.record import files_of_group
from coordinator.sources.group_files import GroupFiles
from coordinator.sources.recorded import MAX_BYTES, Entry, FileRecord, RecordUnreadable, key_of
from tests.kit.serving import running

T0 = TopicPartition("t", 0)


@pytest.fixture
async def server():
    async with running() as it:
        yield it


def files(server, group: str = "g") -> GroupFiles:
    return files_of_group(GroupAddress(server.address, group))


def entries(first: int, count: int) -> list[Entry]:
    return [Entry(key_of(f"part-{n}"), n % 3, n * 1_000, n % 65_536) for n in range(first, count)]


def names(record: FileRecord) -> set[int]:
    return set(record.places)


async def test_what_one_process_records_others_read_page_by_page(server):
    def story():
        one, two = files(server), pickle.loads(pickle.dumps(files(server)))
        assert one.known("t").count == 0
        record = FileRecord()
        for first, upto in ((0, 1), (1, 2), (2, 700), (700, 701), (701, 30_000)):
            record = one.append("t", record, "hash:3", entries(first, upto))
            assert record is not None
        assert two.known("t") == one.known("t") == record
        assert two.append("t", record, "hash:3", entries(30_000, 30_001)) is not None
        assert one.known("t") == record, "not asked again"
        assert one.known("t", anew=True).count == 30_001
        assert one.known("another").count == 0
        with GroupAdmin(server.address) as admin:
            assert admin.offsets("g") == {}, "no tool takes pages for offsets"
            assert admin.offsets_with_metadata("g") == {}

    await asyncio.to_thread(story)


async def test_of_processes_that_record_at_the_same_moment_one_is_first(server):
    def record_all(n: int) -> None:
        mine = files(server)
        for i in range(8):
            entry = Entry(key_of(f"{n}-{i}"), 0, 1, 1)
            record = mine.known("t")
            while (record := mine.append("t", record, "hash:1", [entry])) is None:
                record = mine.known("t", anew=True)

    def story():
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(record_all, range(4)))
        record = files(server).known("t")
        assert names(record) == {key_of(f"{n}-{i}") for n in range(4) for i in range(8)}
        assert len(record.partitions[0]) == 32

    await asyncio.to_thread(story)


async def test_pages_that_were_overwritten_are_told(server):
    def story():
        one = files(server)
        one.append("t", one.known("t"), "hash:1", entries(0, 2))
        page = TopicPartition(f"{FILES_TOPIC}t", 0)
        with GroupAdmin(server.address) as admin:
            assert admin.commit("g", {page: 0}, expected={page: 2}) == {}
        with pytest.raises(RecordUnreadable, match="no page of a record"):
            files(server).known("t")

    await asyncio.to_thread(story)


async def test_a_record_that_would_be_too_long_is_refused_with_advice(server):
    def story():
        one = files(server)
        full = FileRecord("hash:1", size_bytes=MAX_BYTES)
        one.known("t")
        with pytest.raises(ValueError, match="write fewer and larger files, or read on in a new"):
            one.append("t", full, "hash:1", entries(0, 1))

    await asyncio.to_thread(story)


async def test_a_long_name_of_a_topic_has_a_record_too(server):
    def story():
        topic = "/logs/" + "x" * 249
        one = files(server)
        assert one.append(topic, one.known(topic), "each", entries(0, 1)) is not None
        assert files(server).known(topic).count == 1
        assert files(server).known(topic + "y").count == 0

    await asyncio.to_thread(story)


@pytest.mark.parametrize("others", [[], [1, 0, 2]])
async def test_a_record_that_was_deleted_with_its_group_is_read_anew(server, others):
    def story():
        one, one_of = files(server), [Entry(key_of(f"part-{n}"), 0, 9, n) for n in range(3)]
        one.append("t", one.known("t"), "hash:1", one_of[:2])
        with GroupAdmin(server.address) as admin:
            assert admin.delete_group("g") == "NONE"
        if others:
            again = files(server)
            again.append("t", again.known("t"), "hash:1", [one_of[i] for i in others])
        record = one.known("t", anew=True)
        assert record == files(server).known("t")
        assert one.append("t", record, "hash:1", entries(7, 8)).count == len(others) + 1

    await asyncio.to_thread(story)


async def test_a_commit_that_is_refused_while_the_group_is_loaded_is_made_again(
    server, monkeypatch
):
    commit, refused = GroupAdmin.commit, []

    def loading(admin, group, offsets, **more):
        if not refused:
            refused.append(group)
            return dict.fromkeys(offsets, "COORDINATOR_LOAD_IN_PROGRESS")
        return commit(admin, group, offsets, **more)

    def story():
        monkeypatch.setattr(GroupAdmin, "commit", loading)
        one = files(server)
        assert one.append("t", one.known("t"), "hash:1", entries(0, 2)).count == 2

    await asyncio.to_thread(story)


async def test_nobody_appends_between_two_calls_of_one_append(server, monkeypatch):
    """Another reader has a smaller entry, which still fits into the page before the cut."""
    commit, calls = GroupAdmin.commit, []

    def interrupted(admin, group, offsets, **more):
        calls.append(offsets)
        if len(calls) == 2:
            other = files(server)
            record = other.known("t")
            assert other.append("t", record, "hash:1", [Entry(key_of("x"), 0, 1, 1)]) is not None
        return commit(admin, group, offsets, **more)

    def story():
        monkeypatch.setattr(GroupAdmin, "commit", interrupted)
        many = [Entry(key_of(f"part-{n}"), 0, 2**15, 1) for n in range(20_000)]
        one = files(server)
        record = one.append("t", one.known("t"), "hash:1", many)
        assert record is None
        found = files(server).known("t")
        assert found.entry(key_of("x")) is not None

    await asyncio.to_thread(story)
