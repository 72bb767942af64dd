"""A group that an operator deletes is a line of the log, with who asked."""

from __future__ import annotations

import asyncio

import grpc

from coordinator.dial import Credentials
from coordinator.operator.admin import GroupAdmin
from coordinator.security.tokens import line_for, new_token
from coordinator.v1 import admin_pb2, admin_pb2_grpc, group_pb2, group_pb2_grpc
from tests.integration.waiting import until
from tests.kit.serving import Process, running


async def commit(channel, *groups: str, metadata=None) -> None:
    """A group of offsets alone, which may be deleted."""
    stub = group_pb2_grpc.GroupCoordinatorStub(channel)
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
    for group in groups:
        request = group_pb2.OffsetCommitRequest(group_id=group, generation_id=-1, topics=topics)
        await stub.OffsetCommit(request, metadata=metadata)


async def delete(channel, *groups: str, metadata=None) -> None:
    request = admin_pb2.DeleteGroupsRequest(groups_names=groups)
    await admin_pb2_grpc.GroupAdminStub(channel).DeleteGroups(request, metadata=metadata)


async def test_each_group_that_was_deleted_is_told_and_no_other():
    async with running() as server, grpc.aio.insecure_channel(server.address) as channel:
        await commit(channel, "a", "b")
        await delete(channel, "a", "nobody", "b")
        assert [(group, who, known) for group, who, _, known in server.deleted] == [
            ("a", "", True),
            ("b", "", True),
        ]
        assert all(peer.startswith("ipv4:127.0.0.1:") for _, _, peer, _ in server.deleted)


async def test_the_principal_is_told_where_callers_say_who_they_are(tmp_path):
    token = new_token()
    (tmp_path / "tokens").write_text(line_for("op", token))
    settings = {"auth_tokens_file": str(tmp_path / "tokens")}
    async with running(**settings) as server:
        held = Credentials(token=token)
        async with held.open_aio(server.address) as channel:
            await commit(channel, "a", metadata=held.metadata())
            await delete(channel, "a", metadata=held.metadata())
        assert [(group, who) for group, who, *_ in server.deleted] == [("a", "token:op")]


async def test_a_caller_who_does_not_wait_is_told_of_too(monkeypatch):
    async with running() as server, grpc.aio.insecure_channel(server.address) as channel:
        asked = asyncio.Event()

        async def never(commands, on_wait):
            asked.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(server.node, "ask", never)
        call = asyncio.create_task(delete(channel, "a"))
        await asked.wait()
        call.cancel()
        await until(lambda: server.deleted)
        ((group, _, _, is_known),) = server.deleted
        assert (group, is_known) == ("a", False)


def test_it_is_a_line_of_the_log():
    with Process("--log-level", "info") as server:

        async def work() -> None:
            async with grpc.aio.insecure_channel(server.address) as channel:
                await commit(channel, "a")

        asyncio.run(work())
        with GroupAdmin(server.address) as admin:
            admin.delete_group("a")
        server.kill()
    (line,) = [line for line in server.lines if line["event"] == "group_deleted"]
    assert (line["group"], line["level"]) == ("a", "info")
    assert line["peer"].startswith("ipv4:127.0.0.1:")
