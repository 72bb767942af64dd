"""Programs with a member that are ended by signals, or fork, as processes of their own."""

from __future__ import annotations

import contextlib
import itertools
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from coordinator.client import BlockingMember
from coordinator.operator.admin import GroupAdmin
from tests.integration.waiting import wait_until
from tests.kit.patience import HANG_S
from tests.kit.serving import Process

BEGIN = """
import asyncio, os, sys
from coordinator.client import BlockingMember, Member
SETTINGS = {"assignors": "range", "heartbeat_interval_ms": 50, "client_id": "worker"}
IN_SESSION = {"protocol": "session", "wishes": {"lease_ms": 300_000}}
"""
BLOCKING = """
with BlockingMember(sys.argv[1], "g", {"t": 2}, **SETTINGS) as member:
    while not member.assignment:
        member.poll(timeout=1.0)
    print("ready", flush=True)
    while True:
        member.poll(timeout=None)
"""
ASYNC = """
async def main():
    async with Member(sys.argv[1], "g", {"t": 2}, **SETTINGS) as member:
        while not member.assignment:
            await member.poll(timeout=1.0)
        print("ready", flush=True)
        while True:
            await member.poll(timeout=None)

asyncio.run(main())
"""
SESSION = """
async def main():
    async with Member(sys.argv[1], "s", {"t": 2}, **IN_SESSION) as member:
        while len(member.assignment) < 2:
            await member.poll(timeout=1.0)
        print("ready", flush=True)
        while True:
            await member.poll(timeout=None)

asyncio.run(main())
"""
BLOCKING_SESSION = """
with BlockingMember(sys.argv[1], "s", {"t": 2}, **IN_SESSION) as member:
    while len(member.assignment) < 2:
        member.poll(timeout=1.0)
    print("ready", flush=True)
    while True:
        member.poll(timeout=None)
"""
TWO_SESSIONS = """
async def work(name, ready):
    async with Member(sys.argv[1], "s", {"t": 2}, **IN_SESSION) as member:
        while not member.assignment:
            await member.poll(timeout=0.1)
        ready.append(name)
        while True:
            await member.poll(timeout=0.1)

async def main():
    ready = []
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(work("one", ready))
        tasks.create_task(work("two", ready))
        while len(ready) < 2:
            await asyncio.sleep(0.01)
        print("ready", flush=True)

asyncio.run(main())
"""
TWO_TASKS = """
async def work(name, ready):
    async with Member(sys.argv[1], "g", {"t": 2}, **SETTINGS) as member:
        while not member.assignment:
            await member.poll(timeout=0.1)
        ready.append(name)
        while True:
            await member.poll(timeout=0.1)

async def main():
    ready = []
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(work("one", ready))
        tasks.create_task(work("two", ready))
        while len(ready) < 2:
            await asyncio.sleep(0.01)
        print("ready", flush=True)

asyncio.run(main())
"""
CAUGHT = """
try:
    with BlockingMember(sys.argv[1], "g", {"t": 2}, **SETTINGS) as member:
        while not member.assignment:
            member.poll(timeout=1.0)
        print("ready", flush=True)
        while True:
            member.poll(timeout=None)
except KeyboardInterrupt:
    print("caught")
"""
FORKING = """
import gc, signal
with BlockingMember(sys.argv[1], "g", {"t": 2}, **SETTINGS) as member:
    while not member.assignment:
        member.poll(timeout=1.0)
    pid = os.fork()
    if pid == 0:
        for use in (
            member.poll, member.start, member.close, member.alive, lambda: member.assignment,
            lambda: member.commit({("t", 0): 1}), lambda: member.state, member.committed,
        ):
            try:
                use()
            except RuntimeError as error:
                assert "forked child" in str(error), error
            else:
                os._exit(2)
        gc.collect()
        sys.exit(0)  # Out of the with.
    status = os.waitpid(pid, 0)[1]
    assert status == 0, status
    generation = member.generation
    for n in range(20):
        assert member.poll(timeout=0.1) == []
        member.commit({("t", 0): n})
    assert (member.generation, len(member.assignment)) == (generation, 2)
    print("fine")
"""
INTERRUPTED_CALLS = """
import signal, threading, time

def interrupt_once_it_waits():
    main = threading.main_thread().ident
    def waits():
        frame = sys._current_frames()[main]
        return frame.f_code.co_qualname == "InterruptibleFuture.result"
    while not waits():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

member = BlockingMember(sys.argv[1], "g", {"t": 2}, **SETTINGS)
member.start()
while not member.assignment:
    member.poll(timeout=1.0)
for name, call in [
    ("poll", lambda: member.poll(timeout=None)),
    ("commit", lambda: member.commit({("t", 0): 1})),
    ("close", member.close),
]:
    sys.stdin.readline()
    interrupting = threading.Thread(target=interrupt_once_it_waits)
    interrupting.start()
    try:
        call()
    except KeyboardInterrupt:
        interrupting.join()
        print(name, member.state, len(member.assignment), flush=True)
member.close()
print(member.state)
"""


FACES = ["asyncio", "blocking", "two tasks"]


@pytest.fixture(scope="module")
def server():
    with Process("--group-initial-rebalance-delay-ms", "0") as process:
        yield process


@contextlib.contextmanager
def program(server, text: str):
    code = textwrap.dedent(BEGIN + text)
    started = subprocess.Popen(
        [sys.executable, "-c", code, server.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def explained(server, group: str = "g") -> str:
    with GroupAdmin(server.address) as admin:
        rebalances = admin.journal(group).rebalances
    return "\n".join(itertools.chain(*(one.explanation for one in rebalances)))


def polls(member: BlockingMember, joined: threading.Event) -> None:
    with contextlib.suppress(RuntimeError):  # It is closed.
        while True:
            member.poll(timeout=0.1)
            if member.assignment:
                joined.set()


@pytest.mark.parametrize(
    ("number", "status", "reason"),
    [
        (signal.SIGINT, 130, "interrupted (Ctrl-C)"),
        (signal.SIGTERM, 143, "terminated (SIGTERM)"),
    ],
    ids=["Ctrl-C", "SIGTERM"],
)
@pytest.mark.parametrize(
    "text", [BLOCKING, ASYNC, TWO_TASKS], ids=["blocking", "asyncio", "two tasks"]
)
def test_a_signal_ends_the_with_quietly_and_explain_says_why(server, text, number, status, reason):
    with program(server, text) as process:
        process.stdout.readline()
        with BlockingMember(
            server.address, "g", {"t": 2}, assignors="range", heartbeat_interval_ms=50
        ) as stays:
            joined = threading.Event()
            threading.Thread(target=polls, args=(stays, joined), daemon=True).start()
            assert text == TWO_TASKS or joined.wait(HANG_S)
            process.send_signal(number)
            _, errors = process.communicate(timeout=HANG_S)
            assert "Traceback" not in errors
            assert process.returncode == status
            wait_until(lambda: len(stays.assignment) == 2)
            assert reason in explained(server)


@pytest.mark.parametrize("text", [SESSION, BLOCKING_SESSION, TWO_SESSIONS], ids=FACES)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_session_member_leaves_at_a_signal(server, text, number, status):
    """Its lease is five minutes long, so nobody would have its partitions if it did not."""
    with program(server, text) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=HANG_S)
    assert "Traceback" not in errors
    assert process.returncode == status
    with BlockingMember(server.address, "s", {"t": 2}, protocol="session") as after:
        wait_until(lambda: after.poll() is not None and len(after.assignment) == 2)


def test_interrupted_calls_leave_a_member_that_can_be_used_and_closed():
    """The server hangs while it commits and closes."""
    with (
        Process("--group-initial-rebalance-delay-ms", "0") as server,
        program(server, INTERRUPTED_CALLS) as process,
    ):
        for name, state in [("poll", "stable 2"), ("commit", "stable 2"), ("close", "stopped 0")]:
            process.stdin.write("go on\n")
            process.stdin.flush()
            assert process.stdout.readline() == f"{name} {state}\n"
            if name == "poll":
                server.signal(signal.SIGSTOP)
        out, errors = process.communicate(timeout=HANG_S)
        server.signal(signal.SIGCONT)
        assert (out, process.returncode) == ("stopped\n", 0)
        assert "could not leave: Deadline Exceeded" in errors
        assert "Traceback" not in errors


def test_the_program_may_catch_the_interrupt(server):
    with program(server, CAUGHT) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=HANG_S)
        assert (out, errors, process.returncode) == ("caught\n", "", 0)


def test_a_forked_child_is_told_and_its_parent_works_on(server):
    with program(server, FORKING) as process:
        out, errors = process.communicate(timeout=HANG_S)
        assert (out, process.returncode) == ("fine\n", 0), errors
