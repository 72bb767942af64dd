"""`coordinator groups` at a real server; `tests/unit/cli/test_groups.py` has every case."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import shlex

import grpc

from coordinator.assignors import TopicPartition
from coordinator.cli.main import main
from coordinator.client import Member
from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import group_pb2_grpc
from tests.integration.waiting import until
from tests.kit import requests
from tests.kit.patience import HANG_S
from tests.kit.serving import running

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@contextlib.asynccontextmanager
async def group_with_a_member(server, group="g", instance=None, **settings):
    settings = {"instance_id": instance, "client_id": "me", **settings}
    member = Member(server.address, group, {"t": 2}, **settings)
    async with member:
        while not member.assignment:
            await member.poll(timeout=5.0)
        yield member


async def command(server, line: str) -> tuple[int, str, str]:
    """Run it beside the loop that serves: the exit status, standard output and error."""
    action, *rest = shlex.split(line)
    out, err = io.StringIO(), io.StringIO()

    def run() -> int:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            return main(["groups", action, *rest, "--bootstrap", server.address])

    return await asyncio.to_thread(run), out.getvalue(), err.getvalue()


async def rows(server, line: str) -> list[dict[str, str]]:
    status, out, err = await command(server, f"{line} -o json")
    assert (status, err) == (0, "")
    return json.loads(out)


async def test_describe_shows_the_lag_that_members_tell():
    options = {"log_ends": lambda keys: dict.fromkeys(keys, 70), "log_ends_interval_s": 0.05}
    async with running() as server, group_with_a_member(server, **options) as member:
        await member.commit({T0: 40})
        async with asyncio.timeout(HANG_S):
            while (row := (await rows(server, "describe g"))[0])["lag"] is None:
                pass
        assert (row["log_end_offset"], row["lag"]) == (70, 30)
        await member.commit({T0: 75})  # The log has grown since its end was reported.
        (row, *_) = await rows(server, "describe g")
        assert (row["log_end_offset"], row["lag"]) == (70, 0)


async def test_trouble_with_the_logs_ends_is_not_the_members():
    asked: list[object] = []

    def log_ends(keys):
        asked.append(keys)
        raise OSError("the disk is away")

    options = {
        "log_ends": log_ends,
        "log_ends_interval_s": 0.05,
        "session_timeout_ms": 30_000,
        "heartbeat_interval_ms": 50,
    }
    async with running() as server, group_with_a_member(server, **options) as member:
        await until(lambda: len(asked) > 5)
        assert member.assignment == {T0, T1}
        assert (await rows(server, "describe g"))[0]["log_end_offset"] is None


async def test_a_group_beyond_the_default_size_of_a_message_is_described():
    size, options = 1 << 20, [("grpc.max_receive_message_length", -1)]
    async with running(max_member_metadata_bytes=2 * size) as server:
        async with grpc.aio.insecure_channel(server.address, options) as channel:
            stub = group_pb2_grpc.GroupCoordinatorStub(channel)
            join = requests.join(protocols=[{"name": "range", "metadata": b"x" * size}])
            joins = [stub.JoinGroup(join) for _ in range(6)]
            answers = await asyncio.gather(*joins)
            leader = next(a.leader for a in answers)
            me = {"group_id": "g", "generation_id": answers[0].generation_id}
            await stub.SyncGroup(pb.SyncGroupRequest(member_id=leader, **me))
        assert len(await rows(server, "members g")) == 6


async def test_a_node_on_its_own_says_that_there_is_nobody_to_hand_over_to():
    async with running() as server:
        for line in (["elect"], ["move", "0", "1"], ["drain", "1"]):
            err = io.StringIO()

            def run(line=line, err=err) -> int:
                with contextlib.redirect_stderr(err):
                    return main(["cluster", *line, "--bootstrap", server.address])

            assert await asyncio.to_thread(run) == 1
            assert "this node has its store for itself" in err.getvalue()
