"""Handlers' view of a simulated call: its context, the status that ends it, its method."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NoReturn

import grpc

_NO_METADATA = grpc.aio.Metadata()


class Aborted(Exception):
    """A handler has ended its call with a status."""

    def __init__(self, code: grpc.StatusCode, details: str, trailing: grpc.aio.Metadata) -> None:
        super().__init__(details)
        self.code, self.details, self.trailing = code, details, trailing

    def error(self) -> grpc.aio.AioRpcError:
        """Return the error that its client sees."""
        return grpc.aio.AioRpcError(self.code, _NO_METADATA, self.trailing, self.details)


class HandlerContext:
    """Context of a call for its handler: the part of `grpc.aio.ServicerContext` that is used."""

    def __init__(
        self, peer: str, metadata: tuple[tuple[str, str], ...], ends_at: float | None = None
    ) -> None:
        self._peer = peer
        self._metadata = metadata
        self._ends_at = ends_at

    def peer(self) -> str:
        """Address of the client, in gRPC's form."""
        return self._peer

    def time_remaining(self) -> float | None:
        """Seconds until the client's deadline; None: it has none."""
        if self._ends_at is None:
            return None
        return max(0.0, self._ends_at - asyncio.get_running_loop().time())

    def invocation_metadata(self) -> Sequence[tuple[str, str]]:
        """Metadata that the client sent with the request."""
        return self._metadata

    async def abort(
        self,
        code: grpc.StatusCode,
        details: str = "",
        trailing_metadata: Sequence[tuple[str, str | bytes]] = (),
    ) -> NoReturn:
        """End the call."""
        raise Aborted(code, details, grpc.aio.Metadata(*trailing_metadata))

    async def abort_with_status(self, status: Any) -> NoReturn:
        """End the call with details."""
        raise Aborted(status.code, status.details, grpc.aio.Metadata(*status.trailing_metadata))


class Details(grpc.HandlerCallDetails):
    """Method and metadata, by which a server looks a handler up."""

    def __init__(self, method: str, metadata: tuple[tuple[str, str], ...]) -> None:
        self.method = method
        self.invocation_metadata = metadata
