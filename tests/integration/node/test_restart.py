"""A coordinator that is stopped, killed or upgraded, and members that do not notice."""

from __future__ import annotations

import asyncio
import contextlib
import signal

import pytest

from coordinator.assignors import TopicPartition
from coordinator.client import Member
from coordinator.operator.admin import GroupAdmin
from coordinator.testing import CannotStart
from tests.patience import HANG_S
from tests.serving import Process, free_port

TOPICS = {"t": 6}
BEATS = {"session_timeout_ms": 30_000, "heartbeat_interval_ms": 500}
"""A session that outlasts a restart on a busy machine, with several beats after each."""


@contextlib.asynccontextmanager
async def members(address: str, count: int):
    async with contextlib.AsyncExitStack() as stack:
        some = [
            await stack.enter_async_context(
                Member(address, "g", TOPICS, client_id=f"m{n}", **BEATS)
            )
            for n in range(count)
        ]
        async with asyncio.timeout(HANG_S):
            while sum(len(m.assignment) for m in some) < 6 or not all(m.assignment for m in some):
                await asyncio.gather(*(m.poll(timeout=0.1) for m in some))
        yield some


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_members_that_keep_beating_do_not_notice_a_restart(tmp_path, number):
    port = free_port()
    flags = (
        "--data-dir", str(tmp_path), "--listen", f"127.0.0.1:{port}",
        "--group-initial-rebalance-delay-ms", "300",
    )  # fmt: skip
    server = await asyncio.to_thread(Process, *flags)
    with contextlib.ExitStack() as stack:
        stack.push(server)
        async with members(server.address, 3) as some:
            before = [(m.member_id, m.generation, m.assignment) for m in some]
            await some[0].commit({TopicPartition("t", 0): 11})
            for _ in range(3):
                server.signal(number)
                await asyncio.to_thread(server.wait)
                server = stack.enter_context(await asyncio.to_thread(Process, *flags))
                beats_until = asyncio.get_running_loop().time() + 2.5
                while asyncio.get_running_loop().time() < beats_until:
                    events = await asyncio.gather(*(m.poll(timeout=0.2) for m in some))
                    assert events == [[], [], []]
            assert [(m.member_id, m.generation, m.assignment) for m in some] == before
            await some[0].commit({TopicPartition("t", 0): 12})
            assert await some[1].committed() == {TopicPartition("t", 0): 12}
            # And the group is alive: a fourth member is let in.
            async with Member(server.address, "g", TOPICS, client_id="m4") as fourth:
                async with asyncio.timeout(HANG_S):
                    while not fourth.assignment:
                        await asyncio.gather(*(m.poll(timeout=0.1) for m in [*some, fourth]))
                assert fourth.generation > before[0][1] + 1  # One number is passed over.


async def test_offsets_and_groups_outlive_their_server(tmp_path):
    flags = ("--data-dir", str(tmp_path), "--group-initial-rebalance-delay-ms", "0")
    with await asyncio.to_thread(Process, *flags) as server:
        async with members(server.address, 1) as (one,):
            await one.commit({TopicPartition("t", n): n for n in range(6)}, manifest=b"m")
        server.signal(signal.SIGTERM)  # Killed, it could forget that the member has left.
        assert await asyncio.to_thread(server.wait) == 0
    with await asyncio.to_thread(Process, *flags) as server:
        with GroupAdmin(server.address) as admin:
            (group,) = await asyncio.to_thread(admin.list_groups)
            assert (group.group_id, group.group_state) == ("g", "Empty")
            offsets = await asyncio.to_thread(admin.offsets, "g")
            assert offsets == {TopicPartition("t", n): n for n in range(6)}


def test_a_folder_in_use_is_named_with_its_holder(tmp_path):
    with Process("--data-dir", str(tmp_path)):
        with pytest.raises(CannotStart, match="is in use by process"):
            Process("--data-dir", str(tmp_path))
