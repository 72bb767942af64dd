"""A node whose data folder is deleted under it: it refuses to write, and everybody is told."""

from __future__ import annotations

import asyncio
import logging
import shutil

import grpc
import pytest

from coordinator.client import Partition, Worker
from coordinator.operator.health import Health
from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import group_pb2_grpc
from coordinator.v1.errors_pb2 import ErrorCode
from tests.integration.groups import eventually
from tests.kit.patience import HANG_S
from tests.kit.serving import Process, free_port

COMMIT = pb.OffsetCommitRequest(
    group_id="other",
    generation_id=-1,
    topics=[{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 7}]}],
)


def health(address: str) -> str:
    with Health(address) as nodes:
        return nodes.statuses(HANG_S)[address]


@pytest.mark.parametrize("protocol", ["classic", "session"])
async def test_it_refuses_commits_and_says_why_and_the_next_start_is_noticed(
    tmp_path, caplog, protocol
):
    caplog.set_level(logging.WARNING)
    folder = tmp_path / "data"
    flags = ("--data-dir", str(folder), "--listen", f"127.0.0.1:{free_port()}")
    flags = (*flags, "--group-initial-rebalance-delay-ms", "0")
    reached = asyncio.Event()
    with await asyncio.to_thread(Process, *flags) as node:
        worker = Worker(node.address, "g", topics={"t": 1}, protocol=protocol)

        @worker.handler
        async def handle(p: Partition) -> None:
            for offset in range(p.position, 100):
                await p.commit(offset + 1)
            reached.set()
            await asyncio.Event().wait()

        working = asyncio.create_task(worker.serve())
        async with asyncio.timeout(HANG_S):
            await reached.wait()
        assert await asyncio.to_thread(health, node.address) == "SERVING"
        shutil.rmtree(folder)
        await eventually(lambda: any(line["event"] == "store_gone" for line in node.lines))
        assert await asyncio.to_thread(health, node.address) == "NOT_SERVING"
        async with grpc.aio.insecure_channel(node.address) as channel:
            stub = group_pb2_grpc.GroupCoordinatorStub(channel)
            answer = await stub.OffsetCommit(COMMIT)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "is gone" in answer.error_message
        node.kill()
    with await asyncio.to_thread(Process, *flags):
        await eventually(lambda: "this process has committed 100" in caplog.text)
        worker.stop()
        await working
