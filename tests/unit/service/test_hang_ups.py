"""Clients that die in the middle of a stream leave no traceback in a node's log."""

from __future__ import annotations

import asyncio
import os
import sys

import grpc

from coordinator.service.grpc.server import GrpcServer
from tests.kit.serving import running

PROGRAM = """
import os, sys, grpc
channel = grpc.insecure_channel(sys.argv[1])
call = channel.unary_stream("/flood/Flood")(b"")
for number, _ in enumerate(call):
    if number > 20:
        os._exit(0)
"""
CLIENTS = 20


async def flood(_request, context) -> None:
    while True:
        await context.write(bytes(100_000))


def rpc(_):
    handler = grpc.unary_stream_rpc_method_handler(flood)
    return grpc.method_handlers_generic_handler("flood", {"Flood": handler})


async def test_peers_that_are_gone_in_a_write(caplog, monkeypatch):
    add = GrpcServer.add_services

    def and_flood(self, server) -> None:
        add(self, server)
        server.add_generic_rpc_handlers((rpc(server),))

    monkeypatch.setattr(GrpcServer, "add_services", and_flood)
    async with running() as server:
        for _ in range(CLIENTS):
            client = await asyncio.create_subprocess_exec(
                sys.executable, "-c", PROGRAM, server.address,
                env={**os.environ, "GRPC_VERBOSITY": "NONE"},
            )  # fmt: skip
            await client.wait()
    assert "ExecuteBatchError" not in caplog.text
