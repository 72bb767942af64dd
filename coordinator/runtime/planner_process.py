"""Plans of large session groups, made in a process of their own.

A thread would share the interpreter's lock with everybody's heartbeats. One process serves all
shards of a node, a plan at a time. It is started for the first plan. If it dies, takes too long, or
is left in the middle of a plan that nobody wants any more, it is killed; the next plan gets a new
one, and the group whose plan it was is told and asks again.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from asyncio.subprocess import PIPE, Process

from coordinator.core.values.plans import Plan, PlanInput
from coordinator.runtime.planner_child import LENGTH, packed

TIMEOUT_S = 60.0
"""Longest time for one plan. 250,000 partitions of 5,000 members take half a second."""
CHILD = "coordinator.runtime.planner_child"


class PlannerError(Exception):
    """The process could not make a plan."""


class PlannerProcess:
    """A `Planner` (`runtime.shard_runner`) that asks a process. `close` ends the process."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._process: Process | None = None
        self._one_at_a_time = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """Id of the process; None: none runs."""
        return None if self._process is None else self._process.pid

    async def __call__(self, state: PlanInput) -> Plan:
        """Make a plan, after those that were asked for before.

        Raises:
            PlannerError: the planner has raised, or its process has ended.
            TimeoutError: it took too long.
        """
        async with self._one_at_a_time:
            try:
                async with asyncio.timeout(self._timeout_s):
                    answer = await self._request(state)
            except BaseException:
                # It may be in the middle of a plan: its next words would be taken for another's.
                await self.close()
                raise
        if isinstance(answer, str):
            raise PlannerError(answer)
        return answer

    async def close(self) -> None:
        """End the process, if there is one; the next plan starts another."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()

    async def _request(self, state: PlanInput) -> Plan | str:
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await _start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(await asyncio.to_thread(packed, state))
            await process.stdin.drain()
            (size,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
            body = await process.stdout.readexactly(size)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise PlannerError("the planner's process has ended") from error
        # In threads, between whose slices the loop has its turns: it takes 60 ms for 10,000 topics.
        answer: Plan | str = await asyncio.to_thread(pickle.loads, body)
        return answer


async def _start() -> Process:
    # The child imports what this process does, wherever that was found, and nothing from the
    # current folder. A session of its own: a terminal's Ctrl-C is the node's to answer.
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", CHILD),
        stdin=PIPE,
        stdout=PIPE,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
