"""A full disk below a running coordinator: commits are refused, beats are not, nothing is lost."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time

import apsw
import grpc
import pytest

from coordinator.assignors import TopicPartition
from coordinator.client import Member
from coordinator.operator.admin import GroupAdmin
from coordinator.storage.sqlite import SqliteLog
from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import group_pb2_grpc
from coordinator.v1.errors_pb2 import ErrorCode
from tests.kit.patience import HANG_S
from tests.kit.serving import Process, running
from tests.unit.storage.disks import Disk

T0 = TopicPartition("t", 0)


@pytest.fixture
def disk():
    disk = Disk("below")
    yield disk
    disk.close()


def commit_of(member: Member, offset: int) -> pb.OffsetCommitRequest:
    return pb.OffsetCommitRequest(
        group_id="g",
        generation_id=member.generation,
        member_id=member.member_id,
        topics=[{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": offset}]}],
    )


async def settle(member: Member) -> None:
    async with asyncio.timeout(HANG_S):
        while not member.assignment:
            await member.poll(timeout=0.1)


@pytest.mark.parametrize("kind", [apsw.FullError, apsw.ReadOnlyError])
async def test_commits_are_refused_in_plain_words_and_beats_answered(tmp_path, disk, kind):
    log = SqliteLog(tmp_path, shards=16, vfs=disk.name)
    async with running(log=log) as server:
        async with (
            Member(
                server.address, "g", {"t": 1}, session_timeout_ms=6_000, heartbeat_interval_ms=100
            ) as member,
            grpc.aio.insecure_channel(server.address) as channel,
        ):
            stub = group_pb2_grpc.GroupCoordinatorStub(channel)
            await settle(member)
            await member.commit({T0: 1})
            disk.break_("write", kind)
            for _ in range(3):
                answer = await stub.OffsetCommit(commit_of(member, 2))
                (partition,) = answer.topics[0].partitions
                assert partition.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
                assert "the test broke it: write of coordinator.sqlite3" in answer.error_message
            # Longer than a session: it is kept by beats that write nothing.
            events = [await member.poll(timeout=0.5) for _ in range(14)]
            assert events == [[]] * 14
            assert await member.committed([T0]) == {T0: 1}
            ((what, _),) = server.failures
            assert "the log cannot be written" in what
            server.failures.clear()
            disk.repair()
            await member.commit({T0: 3})
            assert server.recoveries == [f"no longer: {what}"]
    again = SqliteLog(tmp_path, shards=16)
    async with running(log=again) as server:
        with GroupAdmin(server.address) as admin:
            assert await asyncio.to_thread(admin.offsets, "g") == {T0: 3}


@pytest.fixture
def small_disk(tmp_path, request):
    """A real file system, of one megabyte unless the test says more."""
    folder = tmp_path / "small"
    folder.mkdir()
    size = getattr(request, "param", "1m")
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small file system, and not everywhere")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


async def test_a_disk_that_is_really_full(small_disk):
    flags = ("--data-dir", str(small_disk / "data"), "--group-initial-rebalance-delay-ms", "0")
    with await asyncio.to_thread(Process, *flags) as server:
        async with Member(
            server.address, "g", {"t": 1}, session_timeout_ms=30_000, heartbeat_interval_ms=100
        ) as member:
            await settle(member)
            await member.commit({T0: 1})
            ballast = small_disk / "ballast"
            with pytest.raises(OSError, match="No space left"):
                ballast.write_bytes(bytes(2_000_000))
            async with grpc.aio.insecure_channel(server.address) as channel:
                stub = group_pb2_grpc.GroupCoordinatorStub(channel)
                stored = 1
                for offset in range(2, 400):  # Until what SQLite has in hand is used up.
                    answer = await stub.OffsetCommit(commit_of(member, offset))
                    (partition,) = answer.topics[0].partitions
                    if partition.error_code != ErrorCode.NONE:
                        break
                    stored = offset
                assert partition.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
                assert "full" in answer.error_message
            assert await member.poll(timeout=1.0) == []
            ballast.unlink()
            await member.commit({T0: stored + 1_000})
        server.kill()
    with await asyncio.to_thread(Process, *flags) as server:
        with GroupAdmin(server.address) as admin:
            assert await asyncio.to_thread(admin.offsets, "g") == {T0: stored + 1_000}


@pytest.mark.parametrize("small_disk", ["6m"], indirect=True)
@pytest.mark.parametrize("groups", [100, 5_000])
def test_a_node_serves_again_on_a_disk_that_its_own_log_has_filled(small_disk, groups):
    """It starts, serves what is stored, refuses commits, and goes on once there is room."""
    flags = ("--data-dir", str(small_disk / "data"))
    stored: dict[str, int] = {}

    def commit(node: Process, offset: int) -> pb.OffsetCommitResponse:
        group_id = f"g{offset % groups}"
        partitions = [
            {"partition_index": number, "committed_offset": offset, "committed_metadata": "x" * 400}
            for number in range(20)
        ]
        request = pb.OffsetCommitRequest(
            group_id=group_id,
            generation_id=-1,
            topics=[{"name": "t", "partitions": partitions}],
        )
        with grpc.insecure_channel(node.address) as channel:
            answer = group_pb2_grpc.GroupCoordinatorStub(channel).OffsetCommit(request)
        if not answer.topics[0].partitions[0].error_code:
            stored[group_id] = offset
        return answer

    with Process(*flags) as node:
        for offset in range(5_000):
            refused = commit(node, offset)
            if refused.topics[0].partitions[0].error_code:
                break
        assert "full" in refused.error_message
        node.kill()
    with Process(*flags) as node:
        assert "full" in commit(node, 6_000).error_message
        with GroupAdmin(node.address) as admin:
            assert {group_id: admin.offsets(group_id)[T0] for group_id in stored} == stored
        subprocess.run(["mount", "-o", "remount,size=12m", small_disk], check=True)
        while commit(node, 7_000).topics[0].partitions[0].error_code:
            time.sleep(0.1)  # Until the writer has looked again.
        for offset in range(7_001, 7_200):
            assert commit(node, offset).topics[0].partitions[0].error_code == ErrorCode.NONE
