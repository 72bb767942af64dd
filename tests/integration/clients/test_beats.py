"""Members on one loop beat in one call, and each hears what is for it."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from coordinator.client import BlockingMember, FatalError, Member
from coordinator.client.transport.heartbeats import BatchedMember, HeartbeatBatcher
from coordinator.dial import CannotDial, Credentials
from coordinator.security.tokens import digest_of
from coordinator.v1 import group_pb2 as pb
from tests.integration.waiting import until, wait_until
from tests.kit.patience import HANG_S
from tests.kit.serving import running

BEAT = {"heartbeat_interval_ms": 200, "session_timeout_ms": 30_000}


@contextlib.asynccontextmanager
async def members(address: str, number: int, groups: int = 1, first: int = 0, **more):
    async with contextlib.AsyncExitStack() as stack:
        some = [
            await stack.enter_async_context(
                Member(address, f"g{first + n % groups}", {"t": number}, **{**BEAT, **more})
            )
            for n in range(number)
        ]
        yield some


async def settle(some) -> None:
    async with asyncio.timeout(HANG_S):
        while not all(m.assignment and m.generation == some[0].generation for m in some):
            await asyncio.gather(*(m.poll(timeout=0.1) for m in some))


async def test_members_of_a_process_beat_in_one_call_whenever_they_came():
    async with running() as server, members(server.address, 10) as some:
        await settle(some)
        await asyncio.sleep(0.13)
        async with members(server.address, 10, first=1) as others:
            await settle(others)
            rpc = server.server.pipeline
            before = (rpc.heartbeats, rpc.batched, rpc.calls["HeartbeatBatch", "OK"])
            async with asyncio.timeout(HANG_S):
                while rpc.heartbeats < before[0] + 300:
                    await asyncio.gather(*(m.poll(timeout=0.2) for m in (*some, *others)))
            now = (rpc.heartbeats, rpc.batched, rpc.calls["HeartbeatBatch", "OK"])
    beats, batched, calls = (b - a for a, b in zip(before, now, strict=True))
    assert batched >= 0.9 * beats, "but for one that comes when its turn was just over"
    assert calls <= beats / 11, "all twenty, not ten and ten"


async def test_a_member_alone_makes_the_plain_call():
    async with running() as server, members(server.address, 1) as some:
        await settle(some)
        rpc = server.server.pipeline
        before = rpc.heartbeats
        await until(lambda: rpc.heartbeats > before + 3)
        assert rpc.batched == 0


async def test_each_of_a_batch_hears_its_own_and_a_rebalance_is_noticed_by_its_group_alone():
    async with running() as server, members(server.address, 6, groups=3) as some:
        await asyncio.gather(*(settle(some[n::3]) for n in range(3)))
        generations = [m.generation for m in some]
        async with Member(server.address, "g0", {"t": 6}, **BEAT) as another:
            await settle([some[0], some[3], another])
            await asyncio.gather(*(m.poll(timeout=0.5) for m in some))
        assert some[0].generation > generations[0]
        assert [m.generation for m in some if m not in (some[0], some[3])] == [
            g for n, g in enumerate(generations) if n % 3
        ]


async def test_one_that_may_not_does_not_spoil_it_for_the_others(tmp_path):
    tokens, rules = tmp_path / "tokens", tmp_path / "rules.toml"
    tokens.write_text(f"team sha256:{digest_of('x' * 32).hex()}\n")
    allow = '[[rule]]\nprincipal = "token:team"\noperations = ["join", "commit", "read"]\n'
    rules.write_text(f'{allow}groups = "*"\n')
    async with running(auth_tokens_file=str(tokens), auth_rules_file=str(rules)) as server:
        who = {"credentials": Credentials(token="x" * 32)}
        async with members(server.address, 4, groups=2, **who) as some:
            await asyncio.gather(*(settle(some[n::2]) for n in range(2)))
            rules.write_text(f'{allow}groups = "g0"\n')
            for turned_away in some[1::2]:
                with pytest.raises(FatalError, match="PERMISSION_DENIED"):
                    await _poll_for_ever(turned_away)
            generation = some[0].generation
            await asyncio.gather(*(m.poll(timeout=1.0) for m in some[::2]))
            assert all(m.assignment and m.generation == generation for m in some[::2])


async def _poll_for_ever(member: Member) -> None:
    while True:
        await member.poll(timeout=1.0)


async def test_members_in_plain_code_share_a_loop_and_beat_together():
    async with running() as server:
        assert await asyncio.to_thread(_plain_members, server) <= 1 / 5
        assert "coordinator-members" not in [thread.name for thread in threading.enumerate()]


def _plain_members(server) -> float:
    """Calls a heartbeat."""
    with contextlib.ExitStack() as stack:
        some = [
            stack.enter_context(BlockingMember(server.address, "g", {"t": 10}, **BEAT))
            for _ in range(10)
        ]
        wait_until(lambda: all(m.poll(timeout=0.05) is not None and m.assignment for m in some))
        rpc = server.server.pipeline
        before = (rpc.heartbeats, rpc.calls["HeartbeatBatch", "OK"], rpc.batched)
        for _ in range(4):
            for member in some:
                member.poll(timeout=0.05)
        wait_until(lambda: rpc.heartbeats > before[0] + 50)
        alone = (rpc.heartbeats - before[0]) - (rpc.batched - before[2])
        return (rpc.calls["HeartbeatBatch", "OK"] - before[1] + alone) / (
            rpc.heartbeats - before[0]
        )


class TokenGone:
    """A channel whose token cannot be read any more: no trouble of gRPC's."""

    async def call(self, method, request, timeout_s):
        raise CannotDial("the token's file is gone")


async def test_whatever_stops_a_batch_everybody_in_it_hears():
    batcher = HeartbeatBatcher()
    members = [BatchedMember(TokenGone(), 1.0, lambda: None) for _ in range(3)]
    with pytest.raises(CannotDial):
        await batcher.beat(members[0], pb.HeartbeatRequest(), 1.0)
    async with asyncio.timeout(HANG_S):
        heard = await asyncio.gather(
            *(batcher.beat(member, pb.HeartbeatRequest(), 1.0) for member in members),
            return_exceptions=True,
        )
    assert [type(error) for error in heard] == [CannotDial] * 3
