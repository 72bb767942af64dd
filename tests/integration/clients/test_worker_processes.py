"""Workers as people run them: scripts with signals, threads, forks and exits, against a real node.

Each script prints `ready` once its handler runs. It must end without a traceback, and the group
must hear that its member has left, long before the session of 45 s could end.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from coordinator.operator.admin import GroupAdmin
from tests.kit.patience import HANG_S
from tests.kit.serving import Process

HEAD = """
import asyncio, os, signal, sys, threading, time
from coordinator.client import BlockingPartition, Partition, Worker

worker = Worker(sys.argv[1], sys.argv[2], topics={"t": 2}, grace_ms=500, protocol="classic")
signal.signal(signal.SIGINT, signal.default_int_handler)  # These tests may run with it ignored.

def ready():
    os.write(1, b"ready\\n")  # At once, whichever threads write too.
"""
WITHOUT_FORK_HANDLERS = """import os
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
"""
"""gRPC's own handlers of forks crash some children of a process whose other threads call it."""
WORKING = """
@worker.handler
async def handle(p: Partition):
    ready()
    while True:
        await asyncio.sleep(0.01)
        await p.commit(p.position + 1)
"""
WORKING_THREAD = """
@worker.handler
def handle(p: BlockingPartition):
    ready()
    while True:
        time.sleep(0.01)
        p.commit(p.position + 1)
"""
BLOCKING_THE_LOOP = """
@worker.handler
async def handle(p: Partition):
    ready()
    time.sleep(1000)
"""
STUCK_THREAD = """
@worker.handler
def handle(p: BlockingPartition):
    ready()
    time.sleep(1000)
"""
SWALLOWING = """
@worker.handler
async def handle(p: Partition):
    ready()
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass
"""


@pytest.fixture(scope="module")
def node():
    with Process("--group-initial-rebalance-delay-ms", "20") as process:
        yield process


class Script:
    """A program that runs a worker."""

    def __init__(self, node: Process, group: str, text: str, head: str = HEAD) -> None:
        self.group = group
        self._node = node
        self._process = subprocess.Popen(
            [sys.executable, "-c", head + textwrap.dedent(text), node.address, group],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.errors = ""
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    def _read_errors(self) -> None:
        self.errors = self._process.stderr.read()

    def until(self, line: str) -> None:
        """Read until the program prints a line."""
        for found in self._process.stdout:
            if found.strip() == line:
                return
        self._reader.join()
        raise AssertionError(f"it ended without {line!r}: {self.errors}")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """Exit status, and no traceback."""
        try:
            status = self._process.wait(timeout=HANG_S)
        finally:
            self._process.kill()
        self._reader.join()
        assert "Traceback" not in self.errors, self.errors
        assert "destroyed" not in self.errors, self.errors
        assert "Exception ignored" not in self.errors, self.errors
        return status

    def members(self) -> int:
        with GroupAdmin(self._node.address) as admin:
            return len(admin.describe_group(self.group).members)

    def reasons(self) -> str:
        """Reasons for which members have left, from the journal."""
        with GroupAdmin(self._node.address) as admin:
            return str(admin.journal(self.group))


@contextlib.contextmanager
def script(node, request, text, head=HEAD):
    running = Script(node, request.node.name, text, head)
    try:
        yield running
    finally:
        running._process.kill()
        running._reader.join()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("body", [WORKING, WORKING_THREAD], ids=["async", "thread"])
def test_a_signal_has_a_script_leave(node, request, body, number):
    with script(node, request, body + "worker.run(); print('ended')") as process:
        process.until("ready")
        process.send(number)
        process.until("ended")
        assert process.end() == 0
        assert process.members() == 0
        assert f"stopped by {number.name}" in process.reasons()


@pytest.mark.parametrize(
    "body", [BLOCKING_THE_LOOP, STUCK_THREAD, SWALLOWING], ids=["blocked", "thread", "swallowing"]
)
def test_the_second_signal_ends_at_once_whatever_a_handler_does(node, request, body):
    text = "worker._limits = replace(worker._limits, grace_ms=600_000)\n" + body
    text = "from dataclasses import replace\n" + text + "worker.run(); print('ended')"
    with script(node, request, text) as process:
        process.until("ready")
        process.send(signal.SIGINT)
        time.sleep(0.2)
        process.send(signal.SIGINT)
        process.until("ended")
        assert process.end() == 0
        assert process.members() == 0


@pytest.mark.parametrize("body", [STUCK_THREAD, SWALLOWING], ids=["thread", "swallowing"])
def test_one_signal_is_enough_after_the_time_to_finish(node, request, body):
    with script(node, request, body + "worker.run(); print('ended')") as process:
        process.until("ready")
        process.send(signal.SIGTERM)
        process.until("ended")
        assert process.end() == 0
        assert process.members() == 0


BODIES = {
    "async": WORKING,
    "thread": WORKING_THREAD,
    "blocked": BLOCKING_THE_LOOP,
    "stuck": STUCK_THREAD,
    "swallowing": SWALLOWING,
}


@pytest.mark.parametrize(
    ("body", "end"), [*((body, "") for body in BODIES.values()), (WORKING, "sys.exit(3)")]
)
def test_an_interpreter_that_exits_without_stop_leaves(node, request, body, end):
    """A thread that is no daemon would keep the interpreter, as its owner asked for."""
    text = body + textwrap.dedent(
        f"""
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        while not worker.state.partitions or worker.state.counts.get("runs", 0) < 1:
            time.sleep(0.01)
        time.sleep(0.3)
        {end}
        """
    )
    with script(node, request, text) as process:
        assert process.end() == (3 if end else 0)
        assert process.members() == 0


def test_the_signals_of_the_script_are_put_back(node, request):
    text = WORKING + textwrap.dedent(
        """
        signal.signal(signal.SIGTERM, lambda *_: print("mine", flush=True))
        worker.run()
        os.kill(os.getpid(), signal.SIGTERM)
        """
    )
    with script(node, request, text) as process:
        process.until("ready")
        process.send(signal.SIGTERM)
        process.until("mine")
        assert process.end() == 0


def test_signals_are_left_to_others_if_the_worker_is_told_so(node, request):
    text = WORKING + textwrap.dedent(
        """
        signal.signal(signal.SIGTERM, lambda *_: worker.stop("mine"))
        worker.run(handle_signals=False)
        """
    )
    with script(node, request, text) as process:
        process.until("ready")
        process.send(signal.SIGTERM)
        assert process.end() == 0
        assert "mine" in process.reasons()


def test_a_worker_in_a_thread_leaves_signals_alone(node, request):
    text = WORKING + textwrap.dedent(
        """
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            while True:
                time.sleep(0.01)
        except KeyboardInterrupt:
            worker.stop("interrupted")
            thread.join()
        """
    )
    with script(node, request, text) as process:
        process.until("ready")
        time.sleep(0.2)
        process.send(signal.SIGINT)
        assert process.end() == 0
        assert process.members() == 0


@pytest.mark.skipif(importlib.util.find_spec("uvloop") is None, reason="uvloop is not installed")
@pytest.mark.parametrize("body", [WORKING, BLOCKING_THE_LOOP], ids=["async", "blocked"])
def test_under_uvloop(node, request, body):
    text = body + textwrap.dedent(
        """
        import uvloop
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
        worker.run()
        """
    )
    with script(node, request, text) as process:
        process.until("ready")
        time.sleep(0.2)
        process.send(signal.SIGTERM)
        if body is BLOCKING_THE_LOOP:
            time.sleep(0.2)
            process.send(signal.SIGTERM)
        assert process.end() == 0
        assert process.members() == 0


def test_a_blocked_loop_is_seen_in_state_and_metrics(node, request):
    text = BLOCKING_THE_LOOP + textwrap.dedent(
        """
        from prometheus_client import REGISTRY
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        while not worker.state.loop_blocked_by:
            time.sleep(0.01)
        assert worker.state.loop_blocked_by.startswith("the handler of t-"), worker.state
        labels = {"group": sys.argv[2], "event": "blocked_loops"}
        while REGISTRY.get_sample_value("coordinator_worker_events_total", labels) != 1:
            time.sleep(0.01)
        """
    )
    with script(node, request, text) as process:
        assert process.end() == 0
        assert process.members() == 0


def test_a_loop_that_ends_without_the_worker_ends_it_and_is_no_failure_of_handlers(node, request):
    text = WORKING + textwrap.dedent(
        """
        async def main():
            await worker.__aenter__()  # And never __aexit__.
            while not all(p.committed > 0 for p in worker.state.partitions.values()) or (
                len(worker.state.partitions) < 2
            ):
                await asyncio.sleep(0.01)

        asyncio.run(main())
        while worker.state.phase != "stopped":
            time.sleep(0.01)
        sys.exit(worker.state.counts["failures"])
        """
    )
    with script(node, request, text) as process:
        assert process.end() == 0
        assert process.members() == 0
        assert "event loop of its handlers ends" in process.reasons()


def test_a_forked_child_is_told_and_the_parent_goes_on(node, request):
    text = WORKING + textwrap.dedent(
        """
        thread = threading.Thread(target=worker.run)
        thread.start()
        while not worker.state.partitions:
            time.sleep(0.01)
        child = os.fork()
        if not child:
            try:
                worker.stop()
            except RuntimeError as error:
                assert "forked" in str(error), error
            another = Worker(sys.argv[1], sys.argv[2], topics={"t": 2}, protocol="classic")
            another.handler(handle)
            try:
                another.run()
            except RuntimeError as error:
                sys.exit(7 if "fork before the first member is started" in str(error) else 8)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        before = sum(p.committed for p in worker.state.partitions.values())
        while sum(p.committed for p in worker.state.partitions.values()) <= before:
            time.sleep(0.01)
        worker.stop()
        thread.join()
        sys.exit(status)
        """
    )
    with script(node, request, text, WITHOUT_FORK_HANDLERS + HEAD) as process:
        assert process.end() == 7
        assert process.members() == 0


def test_a_worker_that_was_made_before_a_fork_runs_in_the_child(node, request):
    text = WORKING + textwrap.dedent(
        """
        child = os.fork()
        if not child:
            worker.run()
            os._exit(5)
        os.kill
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    ).replace("os.kill\n", "")
    text = text.replace("    ready()\n", "    ready(); os.kill(os.getpid(), signal.SIGTERM)\n")
    with script(node, request, text) as process:
        assert process.end() == 5
        assert process.members() == 0
