"""The client under test: a process that is one member, says what it does, and does as it is told.

It prints a line of JSON for each change, and reads one for each thing that it is to do; both are
described in `deploy/docs/sessions.md`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
from collections.abc import Callable, Mapping
from typing import Any

from coordinator.testing.conformance.trial import TrialTranscript

PREFIX = "CONFORMANCE_"
LINES_KEPT = 40
"""Lines of a client's standard error that a failure shows."""


class ClientProcess:
    """One start of the command."""

    def __init__(self, command: str, transcript: TrialTranscript, tell: Callable[[], None]) -> None:
        self._command, self._transcript, self._tell = shlex.split(command), transcript, tell
        self._process: asyncio.subprocess.Process | None = None
        self._readers: list[asyncio.Task[None]] = []
        self.events: list[dict[str, Any]] = []
        self.status: int | None = None
        self.problem: str | None = None
        """A line that is no event."""

    async def start(self, environment: Mapping[str, str]) -> None:
        """Start it, with variables beside those of the kit."""
        told = {PREFIX + name: value for name, value in environment.items()}
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **told},
            start_new_session=True,
        )
        self._readers = [
            asyncio.create_task(self._read()),
            asyncio.create_task(self._read_errors()),
        ]

    async def send(self, said: Mapping[str, Any]) -> None:
        """Tell it what to do."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._transcript.add(f"client <-  {json.dumps(said)}")
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(json.dumps(said).encode() + b"\n")
            await self._process.stdin.drain()

    async def kill(self) -> None:
        """End it, and what it has started."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    # --- Inside ---

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            text = line.decode(errors="replace").strip()
            self._transcript.add(f"client ->  {text[:300]}")
            try:
                event = json.loads(text)
                assert isinstance(event["event"], str)
            except (ValueError, TypeError, KeyError, AssertionError):
                self.problem = f"its standard output has a line that is no event: {text[:200]}"
            else:
                self.events.append(event)
            self._tell()
        self.status = await self._process.wait()
        self._transcript.add(f"client     has ended with {self.status}")
        self._tell()

    async def _read_errors(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        count = 0
        async for line in self._process.stderr:
            count += 1
            if count <= LINES_KEPT:
                self._transcript.add(f"client err {line.decode(errors='replace').rstrip()[:300]}")
