"""Authentication and authorisation: the first two steps of the pipeline, if a node has a guard.

The guard caches identities of tokens and decisions about groups.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from coordinator.runtime.slices import PART, Slices
from coordinator.security import errors
from coordinator.security.authenticator import WHAT_TO_DO
from coordinator.security.authenticator import Caller as Identity
from coordinator.security.guard import DENIED, UNAUTHENTICATED, UNKNOWN, Guard, Refusal, shown
from coordinator.security.rules import Operation
from coordinator.service.calls import Call, CallingPeer
from coordinator.service.refusals import Denied, UnauthenticatedCall, UnavailableCall

THREADS = 2
"""Threads that verify tokens, which may fetch keys: the event loop never waits for the network."""


class Access:
    """Authenticates and authorises calls."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="coordinator-tokens")

    async def authenticate(self, call: Call) -> None:
        """Identify the caller; again if its token has expired, or is no longer known.

        Raises:
            UnauthenticatedCall: no valid token or certificate.
            UnavailableCall: the keys that verify tokens cannot be fetched.
        """
        caller = call.caller
        identity = caller.identity
        if identity is not None and self._guard.authenticator.is_current(identity):
            return
        try:
            caller.identity = await self._identify(caller)
        except errors.Unauthenticated as error:
            reason = str(error)
            self._guard.log_refusal(
                Refusal(UNAUTHENTICATED, call.where, UNKNOWN, caller.peer, rule=reason)
            )
            raise UnauthenticatedCall(reason) from error
        except errors.KeysUnavailable as error:
            raise UnavailableCall(str(error)) from error

    async def authorise(self, call: Call) -> None:
        """Check that the caller has a required operation on every group that the call names.

        Raises:
            Denied: no rule allows it.
        """
        operations, peer = call.kind.operations, call.caller.peer
        principal = call.caller.principal
        if call.kind.is_closed:
            rule = "none: no such line"
            self._guard.log_refusal(Refusal(DENIED, call.where, principal, peer, rule=rule))
            raise Denied(f"{call.where} is open to nobody")
        slices = Slices()
        for number, group in enumerate(call.groups, 1):
            if number % PART == 0:
                await slices.pause()
            decision = self._guard.decide(principal, operations, group)
            if decision.is_allowed:
                continue
            operation = " or ".join(operations)
            who, which = shown(principal), None if group is None else shown(group)
            self._guard.log_refusal(
                Refusal(DENIED, call.where, who, peer, operation, which, decision.rule)
            )
            where = "groups '*'" if which is None else f"group '{which}'"
            rule = (
                f'principal = "{who}", operations = ["{operations[0]}"], groups = "{which or "*"}"'
            )
            raise Denied(
                f"{who} may not {operation} on {where}, which {call.kind.name} takes ("
                f"{shown(decision.rule)}): ask for a rule in auth_rules_file that allows it: {rule}"
            )

    def sees_all(self, caller: CallingPeer) -> bool:
        """True if no group has to be hidden from a caller."""
        return self._guard.may_read_everything(caller.principal)

    def may_read(self, caller: CallingPeer, group: str) -> bool:
        """True if a caller may read a group."""
        return self.may(caller, Operation.READ, group)

    def may(self, caller: CallingPeer, operation: Operation, group: str) -> bool:
        """True if a caller has an operation on a group."""
        return self._guard.decide(caller.principal, (operation,), group).is_allowed

    async def _identify(self, caller: CallingPeer) -> Identity:
        credential = caller.show()
        if credential.token is not None:
            authenticator = self._guard.authenticator
            known = authenticator.remembered(credential.token)
            if known is not None:
                return known
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(
                self._threads, authenticator.of_token, credential.token
            )
        if credential.principal is None:
            raise errors.Unauthenticated(f"nobody knows who calls: {WHAT_TO_DO}")
        return Identity(credential.principal)
