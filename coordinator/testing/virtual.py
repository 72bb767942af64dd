"""A coordinator on virtual time, in the caller's process.

It runs the service's own code from the translation of requests down to the log; only the clock, the
log and the transport are replaced. A parked call is an object whose `done` is False, and time
passes when the test advances it, from deadline to deadline.
"""

from __future__ import annotations

import itertools
from typing import Any

from google.protobuf.message import Message

from coordinator.core.classic.group import ClassicGroup
from coordinator.core.group import GroupState
from coordinator.core.values.commands import CallCancelled
from coordinator.core.values.events import Event
from coordinator.core.values.ids import CallId
from coordinator.core.values.replies import Reply
from coordinator.core.values.session_messages import (
    Attach,
    AttachReply,
    SessionInput,
    StreamEnded,
    ToMember,
)
from coordinator.runtime.payloads import PAYLOADS
from coordinator.service.grpc import translate
from coordinator.settings import Settings
from coordinator.shard.driver import Patience
from coordinator.shard.effects import DriverInput, HostEffects, Problem, Start
from coordinator.shard.inputs import Activate
from coordinator.shard.shard import Shard
from coordinator.storage.log import Loaded
from coordinator.storage.memory import MemoryLog
from coordinator.testing.immediate import ImmediateHost
from coordinator.testing.virtual_session import VirtualSession
from timer.clock import VirtualClock

_WHEEL_SIZE = 20
"""Kafka's wheel size. Tests have few timers, and smaller wheels are made faster."""

_AT_ONCE = Patience(ambiguous_ms=0, reloads=False)
"""Retries without delay, and no reload: a shard that is given up stays so."""


class CountingIds:
    """Member ids that are the same in every run: `<prefix>-<number in the form of a uuid>`."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def new_member_id(self, prefix: str) -> str:
        return f"{prefix}-00000000-0000-4000-8000-{next(self._numbers):012x}"

    def new_session_id(self) -> str:
        return f"{next(self._numbers):032x}"


class VirtualCall:
    """A request that was sent. It may be several commands, answered one by one."""

    def __init__(self, owner: VirtualCoordinator, request: Message) -> None:
        self.request = request
        self.client_gone = False
        self._owner = owner
        self._call_ids: list[CallId] = []
        self._replies: dict[CallId, Reply] = {}
        self._response: Any = None

    @property
    def done(self) -> bool:
        """True once the call is answered."""
        return self._response is not None

    @property
    def response(self) -> Any:  # Any: the response message that belongs to the request.
        """The answer.

        Raises:
            RuntimeError: the call is still parked, or will never be answered.
        """
        if self._response is None:
            raise RuntimeError(f"{type(self.request).__name__} has not been answered")
        return self._response

    def cancel(self) -> None:
        """Cancel the call, as when its client goes away."""
        if not self.done and not self.client_gone:
            self.client_gone = True
            self._owner.cancel_commands(self._call_ids)


class VirtualCoordinator:
    """One coordinator with its clock at 0 and an empty log.

    Args:
        settings: the service's, by name, as in `coordinator.settings.Settings`.
    """

    def __init__(self, **settings: Any) -> None:  # Any: the settings' own types.
        self.settings = Settings.of(**settings)
        self.log = MemoryLog()
        self.events: list[tuple[int, Event]] = []
        self._clock = VirtualClock()
        self._ids = CountingIds()
        self._call_ids = itertools.count(1)
        self._calls: dict[CallId, VirtualCall] = {}
        self._sessions: dict[CallId, VirtualSession] = {}
        self._load()

    # --- Time ---

    @property
    def now_ms(self) -> int:
        """Milliseconds since the clock started."""
        return self._clock.now_ms()

    def advance(self, ms: int) -> None:
        """Let time pass, stopping at every deadline on the way to run what is due."""
        self._clock.advance(ms, self._host)

    # --- Calls ---

    def send(self, request: Message, client_host: str = "/127.0.0.1") -> VirtualCall:
        """Send any request of GroupCoordinator or GroupAdmin.

        Raises:
            coordinator.service.refusals.Malformed: a real call would be refused with
                INVALID_ARGUMENT.
        """
        call = VirtualCall(self, request)
        commands = translate.commands_of(
            request, self._new_call_id, client_host, self.settings.limits
        )
        call._call_ids = [command.call_id for command in commands]
        for command in commands:
            self._calls[command.call_id] = call
        for command in commands:
            self._step(command)
        if not commands:
            call._response = translate.response_of(request, [])
        return call

    def open_session(
        self, *, principal: str = "", client_host: str = "/127.0.0.1"
    ) -> VirtualSession:
        """Open a stream of GroupSessions; the first message to `send` is an Attach.

        Args:
            principal: name of the caller, as a node with authentication knows it.
        """
        stream_id = self._new_call_id()
        session = VirtualSession(self, stream_id, principal, client_host)
        self._sessions[stream_id] = session
        return session

    def receive(self, message: Attach | SessionInput) -> None:
        """Hand in what a session member has said."""
        if isinstance(message, StreamEnded):
            self._sessions.pop(message.stream_id, None)
        self._step(message)

    def take(self, stream_id: CallId) -> ToMember | None:
        """Take what there is to be told on a stream; None: nothing."""
        return self.shard.take(stream_id, self.now_ms)

    @property
    def fence_epoch(self) -> int:
        """Epoch in which this process has fenced the log: one more with each `restart`."""
        return self._host.driver.fence_epoch

    def cancel_commands(self, call_ids: list[CallId]) -> None:
        """Tell the shard that the client of these commands has gone."""
        for call_id in call_ids:
            if self._calls.pop(call_id, None) is not None:
                self._step(CallCancelled(call_id))

    # --- What the group looks like ---

    @property
    def shard(self) -> Shard:
        """The shard, for a look at its state."""
        return self._shard

    def state(self, group_id: str) -> GroupState | None:
        """The group's state; None if there is no such group."""
        group = self.shard.machine.groups.get(group_id)
        return None if group is None else group.state

    def generation(self, group_id: str) -> int:
        """The group's generation; 0 if there is no such group."""
        group = self.shard.machine.groups.get(group_id)
        return group.generation if isinstance(group, ClassicGroup) else 0

    @property
    def is_loaded(self) -> bool:
        """False once the shard was given up, which the service would then load again."""
        return self._host.driver.shard is not None

    def stored(self) -> Loaded:
        """Load the log."""
        return self._host.stored()

    # --- Faults ---

    def restart(self) -> None:
        """Kill the process, and start another on the same log.

        Parked calls, streams and held appends are lost.
        """
        self._calls.clear()
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            session.has_ended = True
        self._load()

    def fail_next_append(self, kind: str) -> None:
        """Let the next append fail: "fenced", "ambiguous", "unavailable" or "too_large".

        After "unavailable" the append is retried with a back-off on this clock, for at most
        `offset_commit_timeout_ms`; "full" is an "unavailable" that is refused at once.
        """
        self.log.fail_next_append(kind)

    def take_snapshot(self) -> None:
        """Replace the log's entries by a snapshot."""
        self._host.take_snapshot()

    def hold_appends(self) -> None:
        """Hold appends back: none is acknowledged until `release_appends`."""
        self._host.hold()

    def release_appends(self, *, hold_on: bool = False) -> None:
        """Write the held appends; with `hold_on`, hold the next ones again."""
        self._host.release(hold_on=hold_on)

    # --- Inside ---

    def _new_call_id(self) -> CallId:
        return CallId(next(self._call_ids))

    def _load(self) -> None:
        self._host = ImmediateHost(
            self.log, self._clock, self._new_shard, self._carry_out, _AT_ONCE
        )
        self._step(Start())
        assert self._host.driver.shard is not None, "the log does not let itself be loaded"
        self._shard = self._host.driver.shard
        while not self._shard.is_active:
            self._step(Activate())

    def _step(self, event: DriverInput) -> None:
        self._host.handle(event)

    def _new_shard(self) -> Shard:
        return Shard(
            self.settings.groups, self._ids, PAYLOADS, now_ms=self.now_ms, wheel_size=_WHEEL_SIZE
        )

    def _carry_out(self, effects: HostEffects) -> None:
        for notice in effects.notices:
            if isinstance(notice, Problem) and notice.error is not None:
                raise notice.error
        self.events += [(self.now_ms, event) for event in effects.events]
        for call_id, reply in effects.replies:
            self._answer(call_id, reply)
        for stream_id in effects.wakes:
            if (session := self._sessions.get(stream_id)) is not None:
                session.wake()
        for stream_id, last in effects.ended:
            if (session := self._sessions.pop(stream_id, None)) is not None:
                session.end(last)

    def _answer(self, call_id: CallId, reply: Reply) -> None:
        session = self._sessions.get(call_id)
        if session is not None:
            assert isinstance(reply, AttachReply)
            session.answer(reply)
            if session.has_ended:
                del self._sessions[call_id]
            return
        call = self._calls.pop(call_id, None)
        if call is None:
            return
        assert call_id not in call._replies, "a command was answered twice"
        call._replies[call_id] = reply
        if len(call._replies) == len(call._call_ids):
            replies = [call._replies[call_id] for call_id in call._call_ids]
            call._response = translate.response_of(call.request, replies)
