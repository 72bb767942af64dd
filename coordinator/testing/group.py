"""A virtual group: real members and workers, a real coordinator, and time that a test moves.

All of it runs on one event loop whose clock jumps: the library as it is shipped, the node with its
pipeline and services, and between them the messages of gRPC, over links that a test can cut. So 45
seconds cost milliseconds, and a run is the same each time, but for the order of threads that run at
the same virtual moment.
"""

from __future__ import annotations

import inspect
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final

from coordinator.assignors import TopicPartition
from coordinator.assignors.consumer_protocol import decode_assignment
from coordinator.client import Worker
from coordinator.client.transport.process_environment import ENVIRONMENT
from coordinator.runtime.payloads import assignment_of
from coordinator.settings import Settings
from coordinator.testing.coordinator import ADDRESS, GroupCoordinator
from coordinator.testing.engine.channels import Addresses
from coordinator.testing.engine.network import Network
from coordinator.testing.engine.story import Story
from coordinator.testing.environment import VirtualCredentials, VirtualEnvironment
from coordinator.testing.loop import VirtualLoop
from coordinator.testing.processes import LOOK_S, VirtualProcess, name_of, program_of

THE_TEST: Final = "the test"
"""Name of the process that owns what members have that the test itself made."""
UNTIL_LOOK_S: Final = 0.1
STOP_S: Final = 60.0
"""Virtual seconds that processes have to end when the test has ended."""


class VirtualGroup:
    """The workers of a test, and their coordinator. It begins at second 0.

    Args:
        loop: of the test.
        settings: of the coordinator, by name, as in `coordinator serve`; the others have their
            defaults.
    Raises:
        InvalidSetting: there is no such setting; the message names the nearest.
    """

    def __init__(self, loop: VirtualLoop, **settings: Any) -> None:  # Any: the settings' own types.
        self.loop = loop
        self.story = Transcript(loop.now_s)
        self.network = Network(
            loop.now_s,
            random.Random(0),  # noqa: S311  # It has to be predictable.
            self.story,
            latency_s=(0.0, 0.0),
        )
        self.addresses = Addresses(self.network, self.story)
        made = Settings.of(**{"store": "memory", **settings})
        self.coordinator = GroupCoordinator(loop, self.addresses, made)
        self.coordinator.start()
        self.processes: list[VirtualProcess] = []
        self._errors: list[BaseException] = []
        self._advances: list[Coroutine[Any, Any, None]] = []
        opener = VirtualCredentials.at(
            self.addresses, loop.world, THE_TEST, "ipv4:10.0.255.255:5000"
        )
        self._own_environment = VirtualEnvironment(
            loop, loop.world, loop.world, opener, THE_TEST, self.handler_failed
        )
        if loop.is_running():
            self.surround()

    def surround(self) -> None:
        """Have members that are made in this context belong to this group."""
        ENVIRONMENT.set(self._own_environment)

    @property
    def address(self) -> str:
        """HOST:PORT of the coordinator. Members in this group reach it under any address."""
        return ADDRESS

    def __repr__(self) -> str:
        processes = {process.name: "running" if process.is_running else "ended"
                     for process in self.processes}  # fmt: skip
        states = "".join(f" {name}={state}" for name, state in processes.items())
        return f"<VirtualGroup now_s={self.now_s:g}{states}>"

    # --- Processes ---

    def start(
        self,
        program: Worker | Callable[..., Any],
        *args: Any,  # Any: the function's own arguments.
        name: str | None = None,
    ) -> VirtualProcess:
        """Start a process; it runs as soon as the test awaits something.

        Args:
            program: a worker, of which the process runs a copy; or a function: a coroutine function
                runs on the loop of the test, another in a thread. Members that it makes belong to
                this group, and a worker that it returns is run.
            args: of the function.
            name: of the process; None: `p1`, `p2`, …
        Raises:
            TypeError: it is none of these. ValueError: another process has that name.
        """
        if name is None:
            name = f"p{len(self.processes) + 1}"
        if any(process.name == name for process in self.processes):
            raise ValueError(f"another process has the name {name!r}")
        number = len(self.processes) + 1
        process = VirtualProcess(self, name, number, program_of(program, args))
        self.processes.append(process)
        process.start()
        return process

    # --- Time ---

    @property
    def now_s(self) -> float:
        """Virtual seconds since the start."""
        return self.loop.now_s()

    def advance(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Let time pass, and everything happen that is due in it; `await` it.

        Raises:
            ValueError: the time would go back.
            Exception: what a started function has raised, or an assertion in a handler. Several
                come as an `ExceptionGroup`.
            ThreadHangs: a thread has neither returned nor called the library for a minute.
        """
        if seconds < 0:
            raise ValueError(f"time does not go back: advance({seconds})")
        self._advances.append(self._advance(seconds))
        return self._advances[-1]

    async def _advance(self, seconds: float) -> None:
        __tracebackhide__ = True
        await self.loop.pass_time(seconds)
        self.raise_errors()

    async def until(self, condition: Callable[[], object], *, within_s: float = 120.0) -> None:
        """Let time pass until a condition holds, which is looked at ten times a second.

        Raises:
            AssertionError: it does not hold after `within_s` virtual seconds.
            Exception: as `advance`.
        """
        until_s = self.now_s + within_s
        await self._advance(0)
        while not condition():
            if self.now_s >= until_s:
                raise AssertionError(
                    f"{name_of(condition)} does not hold after {within_s:g} s of virtual time"
                )
            await self._advance(UNTIL_LOOK_S)

    # --- What can be asserted ---

    def owners(self, group_id: str | None = None) -> dict[TopicPartition, str]:
        """The process that each partition is assigned to, as the coordinator knows it.

        A process that was killed or cut off owns its partitions until its session, or its lease,
        has ended.

        Args:
            group_id: None: the only group.
        Raises:
            LookupError: there is no such group, or more than one.
            CoordinatorIsDown: it was killed.
        """
        self._check_awaited()
        names = {process.client_host: process.name for process in self.processes}
        owners = {
            partition: names.get(member.client_host, THE_TEST)
            for member in self.coordinator.members(self._group_id(group_id))
            if (assignment := assignment_of(member))
            for partition in decode_assignment(assignment).partitions
        }
        return dict(sorted(owners.items()))

    def committed(self, group_id: str | None = None) -> dict[TopicPartition, int]:
        """The committed offset, the next to read, of each partition that has one.

        Args, Raises: as `owners`.
        """
        self._check_awaited()
        return self.coordinator.committed(self._group_id(group_id))

    def transcript(self) -> str:
        """The calls, events and faults so far, for people; pytest shows them if the test fails."""
        return self.story.text()

    # --- The end ---

    async def close(self) -> None:
        """Stop what runs, as SIGTERM does; kill what is paused, cut off or does not end.

        Raises:
            Exception: as `advance`.
        """
        for process in self.processes:
            if process.is_reachable:
                process.request_stop()
            else:
                process.kill()
        until_s = self.now_s + STOP_S
        while any(process.is_running for process in self.processes) and self.now_s < until_s:
            await self.loop.pass_time(LOOK_S)
        for process in self.processes:
            process.kill()
        self.coordinator.kill()
        self._check_awaited()
        self.raise_errors()

    # --- Inside ---

    def note(self, error: BaseException) -> None:
        """Have the test raise an error of a process, once."""
        if not any(error is other for other in self._errors):
            self._errors.append(error)

    def handler_failed(self, name: str, error: BaseException) -> None:
        """Note that a handler has failed. An assertion in it is the test's; the rest is left to the
        worker's error policy."""
        self.story.tell(name, f"failed: {error!r}")
        if isinstance(error, AssertionError) or not isinstance(error, Exception):
            self.note(error)

    def raise_errors(self) -> None:
        """Raise what processes have ended with, and what the loop has refused them."""
        __tracebackhide__ = True  # pytest shows the line of the test.
        for refused in self.loop.refused:
            self.note(refused)
        errors = self._errors.copy()
        self._errors.clear()
        self.loop.refused.clear()
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise BaseExceptionGroup("processes of the virtual group have failed", errors)

    def _group_id(self, group_id: str | None) -> str:
        known = self.coordinator.group_ids()
        if group_id is None and len(known) == 1:
            return known[0]
        if group_id is not None and group_id in known:
            return group_id
        if not known:
            raise LookupError(
                "there is no group yet: start a worker, and `await group.advance(10)`"
            )
        if group_id is None:
            raise LookupError(f"say which group: there are {', '.join(known)}")
        raise LookupError(f"there is no group {group_id!r}, but {', '.join(known)}")

    def _check_awaited(self) -> None:
        """Raises RuntimeError if the test has forgotten to await an `advance`."""
        forgotten = [
            one for one in self._advances if inspect.getcoroutinestate(one) == inspect.CORO_CREATED
        ]
        self._advances.clear()
        for one in forgotten:
            one.close()  # It would warn, in other words.
        if forgotten:
            raise RuntimeError("time has not passed: write `await group.advance(…)`")


class Transcript(Story):
    """A story for people: without what follows from a line before, and repetitions counted."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(now, is_told=True)
        self._last: dict[str, tuple[str, int]] = {}  # By host: what it did last, and in which line.
        self._repeated: Counter[int] = Counter()

    def tell(self, who: str, text: str) -> None:
        if text.startswith(("  OffsetsCommittedEvent", "  RebalanceJournaled")):
            return
        if text.startswith("Heartbeat") and text.endswith(": NONE"):
            return
        last, number = self._last.get(who, ("", 0))
        if last == text:
            self._repeated[number] += 1
            return
        self._last[who] = text, len(self.lines)
        super().tell(who, text)

    def text(self) -> str:
        """The lines, each with how often it was repeated."""
        return "\n".join(
            f"{line} (and {self._repeated[n]} times more)" if n in self._repeated else line
            for n, line in enumerate(self.lines)
        )
