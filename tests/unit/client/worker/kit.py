"""Real workers against a coordinator in memory, all on one simulated loop.

`Town` has the coordinator, whose clock follows the loop's, and makes workers. Calls arrive at once.
Threads of `def` handlers are real, but only one runs at a time, and the loop stands still until it
has ended or waits for the library (`Environment.wait`), as it does in `TownEnvironment.sleep`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future

from coordinator.client import Worker
from coordinator.client.member.calls import CallUnanswered, FindCoordinator, Found, Join
from coordinator.client.transport.wire import decode, encode
from coordinator.client.worker.environment import Environment
from coordinator.testing import VirtualCoordinator
from coordinator.v1 import group_pb2 as pb
from coordinator.v1.errors_pb2 import ErrorCode

GROUP = "g"
TICK_S = 0.01


class Town:
    """A coordinator in memory and the workers of one group."""

    def __init__(self, partitions: int = 2, **settings) -> None:
        self.loop = asyncio.get_running_loop()
        self.calls: Counter[tuple[str, str]] = Counter()
        """Calls that arrived, by client and kind of request."""
        self.coordinator = VirtualCoordinator(
            **{"group_initial_rebalance_delay_ms": 0, "group_min_session_timeout_ms": 10} | settings
        )
        self.partitions = partitions
        self.commits: list[tuple[float, str, int, int]] = []
        """Time, client, partition and offset of each commit that was accepted."""
        self._parked: dict[object, asyncio.Future] = {}
        self._environments: list[TownEnvironment] = []
        self._process = self.loop.process("town")
        self._ticking = self.loop.create_task(self._tick())

    def worker(self, name: str = "w", **settings) -> Worker:
        """A worker that has not been started."""
        defaults = {
            "topics": {"t": self.partitions},
            "client_id": name,
            "session_timeout_ms": 45_000,
            "heartbeat_interval_ms": 3_000,
        }
        worker = Worker("a:1", GROUP, **defaults | settings)
        worker.environment = TownEnvironment(self, name)
        self._environments.append(worker.environment)
        return worker

    def serve(self, worker: Worker) -> asyncio.Task:
        """Start a worker; the task ends with it."""
        return self._process.run(worker.serve())

    @contextlib.asynccontextmanager
    async def serving(self, worker: Worker) -> AsyncIterator[None]:
        """A worker that is served, and stopped at the end."""
        serving = self.serve(worker)
        yield
        await self.stop(worker)
        await serving

    async def stop(self, *workers: Worker) -> None:
        for worker in workers:
            worker.stop()
        await self.until(lambda: all(w.state.phase == "stopped" for w in workers))

    async def until(self, condition: Callable[[], object], *, within_s: float = 600.0) -> None:
        """Let time pass until a condition holds."""
        ends = self.loop.time() + within_s
        while not condition():
            assert self.loop.time() < ends, "it never is"
            await asyncio.sleep(TICK_S)

    def stored(self, number: int = 0) -> int:
        """The committed offset of a partition; -1: none."""
        request = pb.OffsetFetchRequest(
            group_id=GROUP, topics=[{"name": "t", "partition_indexes": [number]}]
        )
        return self.coordinator.send(request).response.topics[0].partitions[0].committed_offset

    def seed(self, number: int, offset: int) -> None:
        """Commit an offset from outside; the group is empty."""
        request = pb.OffsetCommitRequest(
            group_id=GROUP,
            generation_id=-1,
            topics=[
                {
                    "name": "t",
                    "partitions": [{"partition_index": number, "committed_offset": offset}],
                }
            ],
        )
        self.coordinator.send(request)

    async def call(self, message, client: str):
        """Send a request, and wait for the response."""
        self._catch_up()
        self.calls[client, type(message).__name__] += 1
        call = self.coordinator.send(message)
        self._wake()
        if not call.done:
            future = self._parked[call] = self.loop.create_future()
            try:
                await future
            finally:
                self._parked.pop(call, None)
                if not call.done:
                    call.cancel()
        if isinstance(message, pb.OffsetCommitRequest):
            self._note_commits(message, call.response, client)
        return call.response

    def _note_commits(self, request, response, client: str) -> None:
        """Note what the coordinator has accepted; both have the partitions in the same order."""
        for topic, answers in zip(request.topics, response.topics, strict=True):
            for p, answer in zip(topic.partitions, answers.partitions, strict=True):
                if answer.error_code == ErrorCode.NONE:
                    row = (self.loop.time(), client, p.partition_index, p.committed_offset)
                    self.commits.append(row)

    async def _tick(self) -> None:
        """Follow the loop's time, for an hour at most. Then, or when a failed test cancels its
        tasks, the workers are killed: the loop is stuck, and says where."""
        try:
            for _ in range(round(3_600 / TICK_S)):
                await asyncio.sleep(TICK_S)
                self._catch_up()
                self._wake()
        finally:
            self._process.kill()

    def _catch_up(self) -> None:
        behind_ms = int(self.loop.time() * 1000) - self.coordinator.now_ms
        if behind_ms > 0:
            self.coordinator.advance(behind_ms)

    def _wake(self) -> None:
        for call, future in list(self._parked.items()):
            if call.done and not future.done():
                future.set_result(None)


class TownEnvironment(Environment):
    """Environment of one worker of a town. `is_cut`: no message arrives. `answers_take_s`: the time
    that an answer travels."""

    is_virtual = True

    def __init__(self, town: Town, name: str) -> None:
        super().__init__()
        self.town = town
        self.name = name
        self.is_cut = False
        self.answers_take_s = 0.0
        self._dice = random.Random(name)
        self._posted: list[tuple[Callable, tuple]] = []
        self._paused = threading.Event()

    def now_ms(self) -> int:
        return int(self.town.loop.time() * 1000)

    def random(self) -> float:
        return self._dice.random()

    def acquire(self) -> asyncio.AbstractEventLoop:
        return self.town.loop

    def release(self) -> None:
        pass

    def post(self, callback, *args) -> bool:
        if threading.current_thread() is threading.main_thread():
            self.town.loop.call_soon(callback, *args)
        else:
            self._posted.append((callback, args))
        return True

    def connect(self, credentials, interval_s, beat_now):
        return TownLink(self)

    def start_thread(self, work, name):
        def run() -> None:
            try:
                work()
            finally:
                self._paused.set()

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._let_run(thread.start)
        return thread

    def result_of(self, future: Future):
        if not future.done():
            resumed = threading.Event()
            future.add_done_callback(lambda _: self._let_run(resumed.set))
            self._paused.set()
            resumed.wait()
        return future.result()

    def sleep(self, seconds: float) -> None:
        """Sleep in a thread of a handler, on the loop's time."""
        future: Future[None] = Future()
        self.post(lambda: self.town.loop.call_later(seconds, future.set_result, None))
        self.result_of(future)

    def _let_run(self, go: Callable[[], object]) -> None:
        """Let one thread run until it ends or waits; called on the loop's thread."""
        self._paused.clear()
        go()
        self._paused.wait()
        posted, self._posted = self._posted, []
        for callback, args in posted:
            self.town.loop.call_soon(callback, *args)


class TownLink:
    """Connection of one worker."""

    def __init__(self, environment: TownEnvironment) -> None:
        self._environment = environment

    async def carry_out(self, call):
        environment, request = self._environment, call.request
        try:
            async with asyncio.timeout(call.timeout_ms / 1000):
                if environment.is_cut:
                    await asyncio.get_running_loop().create_future()
                if isinstance(request, FindCoordinator):
                    return Found(request.address)
                message = encode(request)
                if isinstance(request, Join):
                    message.require_known_member_id = True
                response = await environment.town.call(message, environment.name)
                await asyncio.sleep(environment.answers_take_s)
                if environment.is_cut:
                    await asyncio.get_running_loop().create_future()
                return decode(response)
        except TimeoutError:
            return CallUnanswered("Deadline Exceeded")

    async def close(self) -> None:
        pass
