"""A TCP proxy that can cut the wire in either direction, or lose an answer."""

from __future__ import annotations

import asyncio
import contextlib


class Proxy:
    """Between clients and one server on loopback. Use it as an async context manager.

    What passes is decided for every piece of data, so a wire can be cut in the middle of a call.
    """

    def __init__(self, target: str) -> None:
        self._target = target
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
            there, back = await self._reach(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
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

    async def _reach(
        self, _reader: asyncio.StreamReader, _writer: asyncio.StreamWriter
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the server that the caller wants."""
        return await _connected(self._target)

    async def _pass(self, reader, writer, may_pass) -> None:
        while data := await reader.read(65_536):
            if may_pass():
                writer.write(data)
                await writer.drain()
        writer.close()


async def _connected(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


class Tunnel(Proxy):
    """Between one client and every server that it calls: an HTTP proxy, by CONNECT.

    Clients take its address from `Credentials.proxy`, or COORDINATOR_CLIENT_PROXY.
    """

    def __init__(self) -> None:
        super().__init__("")

    async def _reach(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        head = await reader.readuntil(b"\r\n\r\n")
        if not (self.requests_pass and self.answers_pass):
            await reader.read()  # Until the wire is mended, which ends the connection.
            raise OSError("the wire is cut")
        there, back = await _connected(head.split()[1].decode())
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        return there, back
