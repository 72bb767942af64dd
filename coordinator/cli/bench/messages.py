"""What one message costs a node at a time: the longest turn of its event loop, for each RPC.

The server is in this process, on a loop in a thread of its own, whose every turn is measured in CPU
time of that thread; gRPC's own work in other threads is not in it. Messages are as large as their
limits allow, or 4 MiB of the smallest items there are, which are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc

from coordinator.cli.bench.figures import Figures, Goal
from coordinator.runtime.garbage import ShortPauses
from coordinator.runtime.node import Node
from coordinator.runtime.stores import open_stores
from coordinator.runtime.watchers import Watchers
from coordinator.service.server import CoordinatorServer
from coordinator.settings import Settings
from coordinator.v1 import admin_pb2 as admin
from coordinator.v1 import group_pb2 as pb

GOAL_MS = 100.0
MESSAGE_BYTES = 4_194_000


def bench_messages(*, quick: bool = False) -> Figures:
    """The longest turn of the loop, in ms, for each message; the goal is that others wait no more.

    Args:
        quick: limits and state are a hundredth.
    """
    scale = 100 if quick else 1
    figures: Figures = {}
    settings = Settings(listen="127.0.0.1:0", metrics_listen="", console_listen="")
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd()) as folder,
        ShortPauses(),
        _Measured(replace(settings, data_dir=folder)) as server,
    ):
        for what, rpc, message, times in _messages(scale):
            server.clear()
            for data in message if isinstance(message, list) else [message] * times:
                server.send(rpc, data)
            figures[f"{what}: longest turn, ms"] = Goal(server.longest_ms, at_most=GOAL_MS)
            figures[f"{what}: CPU in all, ms"] = round(server.total_ms, 1)
    return figures


def _messages(scale: int) -> Iterator[tuple[str, str, bytes | list[bytes], int]]:
    """What it is, the RPC, the bytes, how often."""
    partitions, members, groups = 10_000 // scale, 20_000 // scale, 1_000 // scale
    commits = [_commit(f"t{n}", partitions) for n in range(100)]
    yield f"OffsetCommit of {partitions:,} partitions", "OffsetCommit", commits[0], 3
    yield f"100 such commits, {100 * partitions:,} in all", "OffsetCommit", commits, 1
    fetch = pb.OffsetFetchRequest(group_id="large").SerializeToString()
    yield f"OffsetFetch of all {100 * partitions:,}", "OffsetFetch", fetch, 1
    named = pb.OffsetFetchRequest(group_id="large")
    named.topics.add(name="t0", partition_indexes=range(partitions))
    yield f"OffsetFetch of {partitions:,}", "OffsetFetch", named.SerializeToString(), 3
    doomed = admin.OffsetDeleteRequest(group_id="large")
    indexes = doomed.topics.add(name="t0").partitions
    for number in range(partitions):
        indexes.add(partition_index=number)
    yield f"OffsetDelete of {partitions:,}", "OffsetDelete", doomed.SerializeToString(), 1
    stranger = pb.HeartbeatRequest(group_id="g", member_id="m")
    beats = pb.HeartbeatBatchRequest(heartbeats=[stranger] * members)
    yield f"HeartbeatBatch of {members:,} strangers", "HeartbeatBatch", beats.SerializeToString(), 3
    leaving = [pb.LeaveGroupRequest.MemberIdentity(member_id=f"m{n}") for n in range(members)]
    leave = pb.LeaveGroupRequest(group_id="large", members=leaving)
    yield f"LeaveGroup of {members:,} strangers", "LeaveGroup", leave.SerializeToString(), 3
    assigned = [pb.SyncGroupRequest.Assignment(member_id=f"m{n}") for n in range(members)]
    sync = pb.SyncGroupRequest(group_id="large", assignments=assigned)
    yield f"SyncGroup with {members:,} assignments", "SyncGroup", sync.SerializeToString(), 3
    names = [f"group-{n}" for n in range(groups)]
    described = admin.DescribeGroupsRequest(groups=names).SerializeToString()
    yield f"DescribeGroups of {groups:,}", "DescribeGroups", described, 3
    deleted = admin.DeleteGroupsRequest(groups_names=names).SerializeToString()
    yield f"DeleteGroups of {groups:,}", "DeleteGroups", deleted, 3
    size = MESSAGE_BYTES // scale
    for rpc, field in _REPEATED.items():
        yield (
            f"{rpc}, {size:,} bytes of empty items",
            rpc,
            bytes([field << 3 | 2, 0]) * (size // 2),
            1,
        )
    junk = b"\x7b\x7c" * (size // 2)
    inside = bytes([7 << 3 | 2]) + _varint(len(junk)) + junk
    yield f"JoinGroup, {size:,} bytes of unknown fields in a protocol", "JoinGroup", inside, 3


_REPEATED = {
    "JoinGroup": 7,
    "SyncGroup": 7,
    "HeartbeatBatch": 1,
    "LeaveGroup": 2,
    "OffsetCommit": 5,
    "OffsetFetch": 2,
    "ReportLogEnds": 5,
    "DescribeGroups": 1,
    "DeleteGroups": 1,
    "OffsetDelete": 2,
    "ListGroups": 1,
}
"""RPCs, and the number of a repeated field of each."""


def _commit(topic: str, partitions: int) -> bytes:
    request = pb.OffsetCommitRequest(group_id="large")
    committed = request.topics.add(name=topic).partitions
    for number in range(partitions):
        committed.add(partition_index=number, committed_offset=number)
    return request.SerializeToString()


def _varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


class _MeasuredLoop(asyncio.SelectorEventLoop):
    """A loop that knows what each of its turns took: all that was ready at once."""

    longest_s = total_s = 0.0

    def _run_once(self) -> None:
        began = time.thread_time()
        super()._run_once()  # type: ignore[misc]  # asyncio's own, which waits there too: no CPU.
        took = time.thread_time() - began
        self.longest_s = max(self.longest_s, took)
        self.total_s += took


class _Measured:
    """A server in this process. Use it as a context manager."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop = _MeasuredLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> _Measured:
        self._thread.start()
        self._server, port = self._do(self._start())
        options = [("grpc.max_receive_message_length", -1)]
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=options)
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
        self._do(self._server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def longest_ms(self) -> float:
        """The longest turn since `clear`."""
        return 1_000 * self._loop.longest_s

    @property
    def total_ms(self) -> float:
        """All turns since `clear`."""
        return 1_000 * self._loop.total_s

    def clear(self) -> None:
        """Forget what was measured."""
        self._loop.longest_s = self._loop.total_s = 0.0

    def send(self, rpc: str, data: bytes) -> None:
        """Call with raw bytes; a refusal is an answer like any other."""
        is_admin = rpc in admin.DESCRIPTOR.services_by_name["GroupAdmin"].methods_by_name
        service = "GroupAdmin" if is_admin else "GroupCoordinator"
        with contextlib.suppress(grpc.RpcError):
            call: Any = self._channel.unary_unary(f"/coordinator.v1.{service}/{rpc}")
            call(data, timeout=600)  # Any: bytes go out and come back as they are.

    async def _start(self) -> tuple[CoordinatorServer, int]:
        def ignore(*_: object) -> None:
            """Nobody watches."""

        watchers = Watchers(events=ignore, failure=ignore, recovery=ignore)
        stores = await open_stores(self._settings, lambda *_: None)
        node = Node(self._settings, watchers=watchers, log=stores.log)
        server = CoordinatorServer(node, on_malformed=ignore)
        port = await server.listen()
        await server.load()
        return server, port

    def _do(self, work: Any) -> Any:  # Any: a coroutine and its result.
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(600)
