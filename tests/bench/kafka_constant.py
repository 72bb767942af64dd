"""A server that answers every heartbeat frame with the same bytes: the floor of asyncio.

It prints its port, and runs until it is killed.
"""

from __future__ import annotations

import asyncio

ANSWER = b"\0\0\0\x0c" + bytes(12)


class Constant(asyncio.Protocol):
    """Answers each read once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._transport.write(ANSWER)


async def main() -> None:
    """Serve."""
    server = await asyncio.get_running_loop().create_server(Constant, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
