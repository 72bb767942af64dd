"""A Kafka client of a few lines, which says what no library would."""

from __future__ import annotations

import asyncio
import contextlib
import struct

from coordinator.kafka import apis
from tests.kit.kafka.messages import answer, frame, request
from tests.kit.patience import HANG_S

PROTOCOLS = [{"name": "range", "metadata": b""}]


class RawKafka:
    """A connection. Requests may be of any form; answers are read by the library."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._numbers = iter(range(1, 2**31))

    async def ask(self, api, version=None, **values):
        """The answer to a request, in the highest version that is offered unless told otherwise."""
        version = api.high if version is None else version
        number = next(self._numbers)
        self.send(frame(request(api, version, number, **values)))
        told, message = answer(api, version, await self.receive())
        assert told == number
        return message

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def receive(self) -> bytes:
        """The next frame, without its length."""
        async with asyncio.timeout(HANG_S):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(size)

    async def is_closed(self) -> bool:
        """Wait until the server has closed the connection; False if it says something instead."""
        async with asyncio.timeout(HANG_S):
            try:
                return await self.reader.read(1) == b""
            except OSError:
                return True

    async def plain(self, token: str, *, user: str = "me", version: int | None = None):
        """Authenticate by PLAIN; the answer to SaslAuthenticate."""
        chosen = await self.ask(apis.SASL_HANDSHAKE, mechanism="PLAIN")
        assert int(chosen.error_code) == 0
        message = f"\0{user}\0{token}".encode()
        return await self.ask(apis.SASL_AUTHENTICATE, version, auth_bytes=message)

    async def oauth(self, token: str):
        """Authenticate by OAUTHBEARER; the answer to SaslAuthenticate."""
        chosen = await self.ask(apis.SASL_HANDSHAKE, mechanism="OAUTHBEARER")
        assert int(chosen.error_code) == 0
        message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        return await self.ask(apis.SASL_AUTHENTICATE, auth_bytes=message)

    async def join(self, group: str, **more):
        """Join as the first member of a group, without an id of its own; the answer."""
        values = {
            "group_id": group, "session_timeout": 30_000, "rebalance_timeout": 30_000,
            "protocol_type": "consumer", "protocols": PROTOCOLS, "member_id": "", **more,
        }  # fmt: skip
        return await self.ask(apis.JOIN_GROUP, 3, **values)

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


@contextlib.asynccontextmanager
async def connected(address: str, tls=None):
    """A connection to HOST:PORT."""
    host, _, port = address.rpartition(":")
    client = RawKafka(*await asyncio.open_connection(host, int(port), ssl=tls))
    try:
        yield client
    finally:
        await client.close()
