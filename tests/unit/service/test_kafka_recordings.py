"""A recording of a group that is used over Kafka's wire runs again to the same states."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from coordinator.runtime.replaying import replay
from tests.unit.service.kafka_wire import node

pytestmark = pytest.mark.virtual_time


async def test_a_group_of_kafka_clients_is_recorded_and_replays(tmp_path):
    join = {
        "group_id": "g", "session_timeout": 60_000, "rebalance_timeout": 60_000, "member_id": "",
        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}],
    }  # fmt: skip
    async with node(record_dir=str(tmp_path)) as server:
        client = server.connect()
        joined = await client.ask("JoinGroup", 3, **join)
        me = {"group_id": "g", "member_id": joined.member_id, "generation_id": 1}
        mine = [{"member_id": joined.member_id, "assignment": b"all"}]
        assert (await client.ask("SyncGroup", 3, **me, assignments=mine)).error_code == 0
        assert (await client.ask("Heartbeat", 3, **me)).error_code == 0
        partitions = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}]
        topics = [{"name": "t", "partitions": partitions}]
        committed = await client.ask(
            "OffsetCommit", 5, group_id="g", generation_id_or_member_epoch=1,
            member_id=joined.member_id, topics=topics,
        )  # fmt: skip
        assert committed.topics[0].partitions[0].error_code == 0
        left = await client.ask("LeaveGroup", 1, group_id="g", member_id=joined.member_id)
        assert left.error_code == 0
    (path,) = [each for each in tmp_path.rglob("*") if each.is_file()]
    lines = path.read_text().splitlines()
    kinds = {kind for line in lines for kind in json.loads(line).get("in", {})}
    assert {"JoinGroup", "SyncGroup", "CommitOffsets", "LeaveGroup"} <= kinds
    assert any("beat" in json.loads(line) for line in lines)
    replayed = replay(lines)
    assert replayed.differences == []
    assert replayed.checked >= 1


def fill_the_disk_of(path: Path) -> None:
    """Let every further write to a file that this process has open find no space."""
    for name in os.listdir("/proc/self/fd"):
        link = Path("/proc/self/fd", name)
        if link.is_symlink() and os.readlink(link) == str(path):
            full = os.open("/dev/full", os.O_WRONLY)
            os.dup2(full, int(name))
            os.close(full)


async def commit(client, offset: int) -> int:
    partitions = [
        {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""},
    ]
    answer = await client.ask(
        "OffsetCommit", 5, group_id="g", generation_id_or_member_epoch=-1, member_id="",
        topics=[{"name": "t", "partitions": partitions}],
    )  # fmt: skip
    return int(answer.topics[0].partitions[0].error_code)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full of Linux")
async def test_a_full_disk_ends_a_recording_and_nothing_else(tmp_path):
    async with node(record_dir=str(tmp_path)) as server:
        client = server.connect()
        assert await commit(client, 1) == 0
        (path,) = tmp_path.iterdir()
        fill_the_disk_of(path)
        recorded = path.read_text()
        assert [await commit(client, offset) for offset in (2, 3)] == [0, 0]
        ((lines, _),) = server.failures
        assert lines.startswith(f"recordings in {tmp_path} have ended")
        assert "No space left" in lines
        assert path.read_text() == recorded
        server.failures.clear()


async def test_a_folder_that_cannot_be_made_ends_recordings_and_nothing_else(tmp_path):
    (tmp_path / "file").write_text("")
    async with node(record_dir=str(tmp_path / "file"), shards=2) as server:
        assert await commit(server.connect(), 1) == 0
        ((lines, _),) = server.failures
        assert lines.startswith(f"recordings in {tmp_path / 'file'} have ended")
        server.failures.clear()
