"""In front of every RPC of a guarded node: who calls, and may they?

Handlers are wrapped once, when their method is called for the first time, so that a call
pays for its check alone: no interceptor runs, and a node without a guard has none of this. What
was found out about a token, and what was decided for a group, is remembered by the guard.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from typing import Any, NoReturn
from urllib.parse import unquote

import grpc

from coordinator.runtime.slices import Slices, in_slices
from coordinator.security.authenticator import (
    WHAT_TO_DO,
    Caller,
    bearer_token,
    principal_of_certificate,
)
from coordinator.security.errors import KeysUnavailable, Unauthenticated
from coordinator.security.guard import DENIED, UNAUTHENTICATED, UNKNOWN, Guard, Refusal, shown
from coordinator.security.rules import Operation
from coordinator.service.callers import CALLER
from coordinator.service.permissions import PART, PERMISSIONS, Permission, hiding, lift_limit

Context = grpc.aio.ServicerContext[Any, Any]  # Any: the message types of the RPC.
THREADS = 2
"""For tokens whose keys may have to be fetched. The others wait in line, not the event loop."""


class GatedServer:
    """What services are added to: a server whose handlers stand behind a gate.

    Args:
        calls: counts refused calls by request and gRPC status.
    """

    def __init__(
        self, server: grpc.aio.Server, guard: Guard, calls: Counter[tuple[str, str]]
    ) -> None:
        self._server = server
        self._gate = _Gate(guard, calls)

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """As grpc.aio's server has it."""
        gated = tuple(_Handlers(handler, self._gate) for handler in handlers)
        self._server.add_generic_rpc_handlers(gated)

    async def admit(self, method: str, request: Any, context: Context) -> None:
        """End a call that its caller may not make; see `CheckedServer.ask_first`."""
        permission = PERMISSIONS.get(method)
        if permission is None or not permission.is_open:
            await _Check(self._gate, method, permission).admit(request, context)

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """See `CheckedServer`: which methods have queues of their own; none is handled past us."""
        self._server.add_registered_method_handlers(service, handlers)


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, inner: grpc.GenericRpcHandler, gate: _Gate) -> None:
        self._inner = inner
        self._gate = gate
        self._found: dict[str, Any] = {}

    def service(self, details: Any) -> Any:  # Any: grpc's types say less than it does.
        found = self._found.get(details.method)
        if found is None:
            handler = self._inner.service(details)
            if handler is None:
                return None
            found = self._found[details.method] = self._gate.behind(details.method, handler)
        return found


class _Gate:
    def __init__(self, guard: Guard, calls: Counter[tuple[str, str]]) -> None:
        self._guard = guard
        self._calls = calls
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="coordinator-tokens")

    def behind(self, method: str, handler: Any) -> Any:
        """The handler, with the check in front of it."""
        permission = PERMISSIONS.get(method)
        if permission is not None and permission.is_open:
            return handler
        check = _Check(self, method, permission)
        coders = (handler.request_deserializer, handler.response_serializer)
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(
                check.unary_unary(handler.unary_unary), *coders
            )
        if handler.unary_stream is not None and inspect.isasyncgenfunction(handler.unary_stream):
            return grpc.unary_stream_rpc_method_handler(
                check.unary_stream(handler.unary_stream), *coders
            )
        if handler.stream_stream is not None and inspect.isasyncgenfunction(handler.stream_stream):
            return grpc.stream_stream_rpc_method_handler(
                check.stream_stream(handler.stream_stream), *coders
            )
        raise AssertionError(f"{method} is of a kind that cannot be guarded")

    async def caller(self, method: str, context: Context) -> Caller:
        """Who calls; the call ends here if nobody knows."""
        try:
            token = bearer_token(_authorization(context))
            if token is not None:
                authenticator = self._guard.authenticator
                known = authenticator.remembered(token)
                if known is not None:
                    return _note(known)
                loop = asyncio.get_running_loop()
                return _note(
                    await loop.run_in_executor(self._threads, authenticator.of_token, token)
                )
            principal = _principal_of(context)
            if principal is None:
                raise Unauthenticated(f"nobody knows who calls: {WHAT_TO_DO}")
        except Unauthenticated as error:
            await self.refuse(
                method,
                context,
                Refusal(UNAUTHENTICATED, method, UNKNOWN, _peer(context), rule=str(error)),
                f"{error}",
            )
        except KeysUnavailable as error:
            self._calls[(_name(method), "UNAVAILABLE")] += 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
            raise AssertionError("abort raises") from error
        return _note(Caller(principal))

    async def check(
        self,
        method: str,
        context: Context,
        caller: Caller,
        operations: tuple[Operation, ...],
        groups: Iterable[str | None],
    ) -> None:
        """Nothing if the caller may; else the call ends here."""
        slices = Slices()
        for number, group in enumerate(groups, 1):
            if number % PART == 0:
                await slices.pause()
            decision = self._guard.decide(caller.principal, operations, group)
            if decision.is_allowed:
                continue
            operation = " or ".join(operations)
            who, which = shown(caller.principal), None if group is None else shown(group)
            refusal = Refusal(DENIED, method, who, _peer(context), operation, which, decision.rule)
            where = "groups '*'" if which is None else f"group '{which}'"
            await self.refuse(
                method,
                context,
                refusal,
                f"{who} may not {operation} on {where} ({shown(decision.rule)}): "
                "ask for a rule in auth_rules_file that allows it",
            )

    async def refuse(
        self, method: str, context: Context, refusal: Refusal, message: str
    ) -> NoReturn:
        status = (
            grpc.StatusCode.UNAUTHENTICATED
            if refusal.reason == UNAUTHENTICATED
            else grpc.StatusCode.PERMISSION_DENIED
        )
        self._calls[(_name(method), status.name)] += 1
        self._guard.tell(refusal)
        await context.abort(status, message)
        raise AssertionError("abort raises")

    def may_read(self, caller: Caller, group: str) -> bool:
        return self._guard.decide(caller.principal, (Operation.READ,), group).is_allowed

    def may_read_everything(self, caller: Caller) -> bool:
        return self._guard.may_read_everything(caller.principal)

    def is_current(self, caller: Caller) -> bool:
        return self._guard.authenticator.is_current(caller)


class _Check:
    """In front of one RPC. Any: its handler and messages, which are generated."""

    def __init__(self, gate: _Gate, method: str, permission: Permission | None) -> None:
        self._gate = gate
        self._method = method
        self._permission = permission

    def unary_unary(self, inner: Any) -> Any:
        async def behaviour(request: Any, context: Context) -> Any:
            caller = await self.admit(request, context)
            if not self._hides_from(caller):
                return await inner(request, context)
            limit = lift_limit(request)
            response = await inner(request, context)
            await in_slices(hiding(response, limit, partial(self._gate.may_read, caller)))
            return response

        return behaviour

    def unary_stream(self, inner: Any) -> Any:
        async def behaviour(request: Any, context: Context) -> AsyncIterator[Any]:
            caller = await self.admit(request, context)
            async with aclosing(inner(request, context)) as messages:
                async for message in messages:
                    caller = await self._again(caller, context)
                    if self._is_shown(message, caller):
                        yield message

        return behaviour

    def stream_stream(self, inner: Any) -> Any:
        async def behaviour(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
            caller = await self._gate.caller(self._method, context)

            async def admitted() -> AsyncIterator[Any]:
                nonlocal caller
                async for request in requests:
                    caller = await self._again(caller, context)
                    await self._check(request, context, caller)
                    yield request

            async with aclosing(inner(admitted(), context)) as messages:
                async for message in messages:
                    yield message

        return behaviour

    # --- Inside ---

    async def admit(self, request: Any, context: Context) -> Caller:
        """Who calls, and may; else the call ends here."""
        caller = await self._gate.caller(self._method, context)
        await self._check(request, context, caller)
        return caller

    async def _again(self, caller: Caller, context: Context) -> Caller:
        """The caller of a stream, which may outlive a token."""
        if self._gate.is_current(caller):
            return caller
        return await self._gate.caller(self._method, context)

    async def _check(self, request: Any, context: Context, caller: Caller) -> None:
        if self._permission is None:
            refusal = Refusal(
                DENIED, self._method, caller.principal, _peer(context), rule="none: no such line"
            )
            await self._gate.refuse(
                self._method, context, refusal, f"{self._method} is open to nobody"
            )
        permission = self._permission
        groups = permission.groups(request)
        await self._gate.check(self._method, context, caller, permission.operations, groups)

    def _hides_from(self, caller: Caller) -> bool:
        shows = self._permission is not None and self._permission.shows_readable
        return shows and not self._gate.may_read_everything(caller)

    def _is_shown(self, message: Any, caller: Caller) -> bool:
        return not self._hides_from(caller) or self._gate.may_read(caller, message.group_id)


def _note(caller: Caller) -> Caller:
    """Have those further in know who calls."""
    CALLER.set(caller.principal)
    return caller


def _name(method: str) -> str:
    return method.rpartition("/")[2]


def _peer(context: Context) -> str:
    return unquote(context.peer())


def _authorization(context: Context) -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            return str(value)
    return None


def _principal_of(context: Context) -> str | None:
    about = context.auth_context()

    def texts(name: str) -> list[str]:
        return [value.decode(errors="replace") for value in about.get(name, ())]

    return principal_of_certificate(
        uris=texts("peer_uri"),
        common_name=next(iter(texts("x509_common_name")), ""),
        dns_names=texts("peer_dns"),
    )
