"""Session members as people run them: scripts with signals and forks, against a real node.

The lease is 45 s: whatever another member is granted within the patience of a test was handed
over, or given up by a member that left.
"""

from __future__ import annotations

import signal

import pytest

from coordinator.client import Granted, Holding, Member
from tests.integration.clients.test_worker_processes import (
    STUCK_THREAD,
    WITHOUT_FORK_HANDLERS,
    WORKING,
    WORKING_THREAD,
    script,
)
from tests.integration.waiting import until
from tests.kit.patience import HANG_S
from tests.kit.serving import Process

WISHES = {"lease_ms": "patient", "join_quiet_ms": 0, "initial_delay_ms": 0}
HEAD = f"""
import asyncio, os, signal, sys, threading, time
from coordinator.client import BlockingPartition, Partition, Worker

worker = Worker(
    sys.argv[1], sys.argv[2], topics={{"t": 2}}, protocol="session", wishes={WISHES},
    grace_ms=20_000,
)
signal.signal(signal.SIGINT, signal.default_int_handler)  # These tests may run with it ignored.

def ready():
    os.write(1, b"ready\\n")  # At once, whichever threads write too.
"""


@pytest.fixture(scope="module")
def node():
    with Process("--group-initial-rebalance-delay-ms", "20") as process:
        yield process


async def granted(node, group: str) -> list[Holding]:
    """Holdings that another member of the group receives."""
    async with Member(node.address, group, {"t": 2}, protocol="session") as member:
        found: list[Holding] = []
        while len(found) < 2:
            for event in await member.poll(timeout=HANG_S):
                found += event.holdings if isinstance(event, Granted) else ()
        return found


@pytest.mark.parametrize("handler", [WORKING, WORKING_THREAD], ids=["async", "thread"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_and_leaves(node, request, handler, number):
    with script(node, request, handler + "worker.run()\n", HEAD) as running:
        running.until("ready")
        running.send(number)
        assert running.end() == 0
        found = await granted(node, running.group)
    assert any(item.offset > 0 for item in found), "what was done is committed"


async def test_a_signal_hands_over_to_a_member_that_waits(node, request):
    with script(node, request, WORKING + "worker.run()\n", HEAD) as running:
        running.until("ready")
        async with Member(
            node.address, running.group, {"t": 2}, protocol="session", capacity=0
        ) as waiting:
            await until(lambda: waiting.member_id)
            running.send(signal.SIGTERM)
            # Nobody may have them: the worker ends by itself before its time is up.
            assert running.end() == 0


async def test_the_second_signal_leaves_at_once(node, request):
    with script(node, request, STUCK_THREAD + "worker.run()\n", HEAD) as running:
        running.until("ready")
        running.send(signal.SIGTERM)
        running.send(signal.SIGINT)  # Two of one kind may arrive as one.
        running.end()
        assert len(await granted(node, running.group)) == 2


FORKED_MEMBER = f"""
import os, sys
from coordinator.client import BlockingMember

settings = {{"protocol": "session", "wishes": {WISHES}}}
with BlockingMember(sys.argv[1], sys.argv[2], {{"t": 2}}, **settings) as member:
    while not member.assignment:
        member.poll(timeout={HANG_S})
    partition = next(iter(member.assignment))
    assert member.valid(partition)
    child = os.fork()
    if not child:
        refused = 0
        for call in (member.poll, lambda: member.token(partition), member.close):
            try:
                call()
            except RuntimeError:
                refused += 1
        os._exit(7 if refused == 3 and not member.valid(partition) else 8)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 7, status
    assert member.valid(partition)
    member.commit({{partition: 7}})
    assert member.committed([partition]) == {{partition: 7}}, "the parent's channel goes on"
"""


def test_a_forked_child_has_no_membership(node, request):
    with script(node, request, FORKED_MEMBER, WITHOUT_FORK_HANDLERS) as running:
        assert running.end() == 0


FORKING = """
@worker.handler
def handle(p: BlockingPartition):
    child = os.fork()
    if not child:
        refused = 0
        for call in (lambda: p.commit(1_000_000), p.alive, p.done):
            try:
                call()
            except RuntimeError as error:
                refused += "forked" in str(error)
        os._exit(7 if refused == 3 and not p.valid else 8)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 7, status
    p.commit(p.position + 2)
    p.done()
    ready()
"""


async def test_a_child_that_a_handler_forks_may_nothing_and_its_parent_goes_on(node, request):
    with script(node, request, FORKING + "worker.run()\n", WITHOUT_FORK_HANDLERS + HEAD) as running:
        running.until("ready")
        running.send(signal.SIGTERM)
        assert running.end() == 0
        found = await granted(node, running.group)
    offsets = {item.offset for item in found}
    assert offsets <= {-1, 2}
    assert 2 in offsets
