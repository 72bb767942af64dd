"""A TCP proxy that can cut the wire in either direction, or lose an answer."""

from __future__ import annotations

import asyncio
import contextlib


class Proxy:
    """Between clients and one server on loopback. Use it as an async context manager.

    What passes is decided for every piece of data, so a wire can be cut in the middle of a call.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task] = set()
        self.requests_pass = self.answers_pass = True
        self.address = ""

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.hang_up()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks)

    @property
    def is_used(self) -> bool:
        """Somebody is connected."""
        return bool(self._writers)

    def hang_up(self) -> None:
        """End every connection; new ones may be made."""
        for writer in list(self._writers):
            writer.close()

    def cut(self) -> None:
        """Nothing passes in either direction, and nobody is told."""
        self.requests_pass = self.answers_pass = False

    def mend(self) -> None:
        """Everything passes again, on new connections."""
        self.requests_pass = self.answers_pass = True
        self.hang_up()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        with contextlib.suppress(asyncio.CancelledError):  # Our own end was cancelled.
            await self._join(reader, writer)
        self._tasks.discard(task)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            self._writers.discard(writer)
            return
        self._writers.add(back)
        with contextlib.suppress(OSError):
            await asyncio.gather(
                self._pass(reader, back, lambda: self.requests_pass),
                self._pass(there, writer, lambda: self.answers_pass),
            )
        for end in (writer, back):
            end.close()
            self._writers.discard(end)

    async def _pass(self, reader, writer, may_pass) -> None:
        while data := await reader.read(65_536):
            if may_pass():
                writer.write(data)
                await writer.drain()
        writer.close()
