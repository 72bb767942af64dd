"""One connection of a Kafka client.

One request at a time: the next takes effect after the answer to the one before it, as with Kafka's
muting, so a parked join holds back what was sent behind it. Heartbeats that need nobody's
permission are answered as they are read, those of one read in one write. Every other call runs in a
task; a connection without a call has none.

What arrives during a call, or faster than it is handled, is kept as it came, up to
`READ_AHEAD_BYTES`; then nothing more is read, and a hang-up is seen only after the call. A client
that does not read its answers is not read, and is closed if that lasts.

    reading ──frame──► call in a task ──answered──► reading
       │                  │ more than READ_AHEAD_BYTES: reading is paused
       └── frame refused, undecodable, API not offered ──► closed
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any, Protocol

from structlog.contextvars import bind_contextvars

from coordinator.kafka import apis, codec
from coordinator.kafka.apis import API_VERSIONS, HEARTBEAT
from coordinator.kafka.errors import INVALID_REQUEST, UNKNOWN_SERVER_ERROR, Undecodable, wire_code
from coordinator.kafka.frames import FrameReader, FrameRefused, framed
from coordinator.kafka.headers import KEY_AND_VERSION, RequestHeader, read_header
from coordinator.kafka.heartbeats import answer_beat, read_beat
from coordinator.runtime.slices import in_slices
from coordinator.service import calls
from coordinator.service.calls import CallingPeer
from coordinator.service.kafka import dispatch
from coordinator.service.kafka.api_versions import ANSWERED_IN, NO_ROOM, unknown_version
from coordinator.service.kafka.buffers import FREE_BYTES, Buffers
from coordinator.service.kafka.calls import KafkaCall
from coordinator.service.kafka.deadlines import Deadlines, Owed
from coordinator.service.kafka.requests import Authentication, ClientSoftware, Context, KafkaRequest
from coordinator.service.kafka.traffic import UNNAMED, Ended, Traffic
from coordinator.service.refusals import Malformed, UnauthenticatedCall

READ_AHEAD_BYTES = 65_536
"""Bytes that are kept for later, while a call is under way or there is more to do at once."""
AT_ONCE = 200
"""Frames that are handled before the event loop may do other things: some 1 ms of heartbeats."""
BEAT_KEY = HEARTBEAT.key
BEAT_VERSIONS = HEARTBEAT.high
NO_SOFTWARE = ClientSoftware()
SASL = frozenset({apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE})
UNAUTHENTICATED_BYTES = 32 * 1024
"""Longest frame before a client has authenticated: twice the longest token."""

LINGER_S = 0.5
"""Seconds between the answer to a client that is turned away and the end of its connection: some
clients tell of the end alone if both come together. It hangs up by itself, or tries again later."""


class ConnectionOwner(Protocol):
    """The listener as its connections see it: shared state, and callbacks."""

    context: Context
    traffic: Traffic
    most_frame_bytes: int

    @property
    def deadlines(self) -> Deadlines[KafkaConnection]: ...
    @property
    def buffers(self) -> Buffers[KafkaConnection]: ...
    def connected(
        self, connection: KafkaConnection, transport: asyncio.Transport
    ) -> tuple[CallingPeer, Authentication]: ...
    def lost(self, connection: KafkaConnection) -> None: ...
    def refused(self, connection: KafkaConnection, why: str) -> None: ...
    def failed(self, error: BaseException) -> None: ...


class KafkaConnection(asyncio.Protocol):
    """See the top of the file."""

    __slots__ = (
        "_authentication",
        "_caller",
        "_has_read",
        "_is_ending",
        "_is_full",
        "_is_holding",
        "_is_new",
        "_is_owing",
        "_is_paused",
        "_is_resuming",
        "_listener",
        "_reader",
        "_software",
        "_tally",
        "_task",
        "_transport",
    )

    def __init__(self, listener: ConnectionOwner) -> None:
        self._listener = listener
        self._reader = FrameReader(listener.most_frame_bytes)
        self._software = NO_SOFTWARE
        self._task: asyncio.Task[None] | None = None
        self._is_full = False
        self._is_ending = False
        self._has_read = True
        self._is_new = True
        self._is_resuming = False
        self._is_owing = False
        self._is_holding = False
        self._is_paused = False

    # --- asyncio.Protocol ---

    def connection_made(self, transport: Any) -> None:
        """See `asyncio.Protocol`."""
        self._transport = transport
        listener = self._listener
        self._tally = listener.traffic.tally(UNNAMED)
        self._tally.connections += 1
        self._caller, self._authentication = listener.connected(self, transport)
        if not self._authentication.is_done:
            self._reader.most_bytes = min(UNAUTHENTICATED_BYTES, listener.most_frame_bytes)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._is_ending and self._task is None:
            return  # It lingers, and nothing is answered any more.
        self._has_read = True
        self._reader.feed(data)
        if self._task is None and not self._is_full:
            self._go()
        else:
            self._keep(self._reader.waiting_bytes)

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`: the client does not read its answers."""
        self._is_full = True
        self._listener.deadlines.expect(self, Owed.ANSWERS)

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._is_full = False
        if not self._is_ending:
            self._listener.deadlines.settle(self, Owed.ANSWERS)
        self._go_on()

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`: a parked call is taken back."""
        self._is_ending = True
        self._tally.connections -= 1
        self._listener.lost(self)
        if self._task is not None:
            self._task.cancel()

    # --- The listener ---

    @property
    def caller(self) -> CallingPeer:
        """Caller of all calls of the connection."""
        return self._caller

    @property
    def software(self) -> ClientSoftware:
        """The client's library, as far as it has been named."""
        return self._software

    def finish(self) -> None:
        """Close after the call that is under way."""
        self._is_ending = True
        if self._task is None:
            self.end()

    def has_rested(self) -> bool:
        """True if nothing has come since this was last asked, and no call is under way."""
        has_read, self._has_read = self._has_read, False
        return not has_read and self._task is None

    def end(self) -> None:
        """Close without another answer, once what was written is sent: the client has to read it
        in time."""
        self._is_ending = True
        if not self._transport.is_closing():
            self._listener.deadlines.expect(self, Owed.ANSWERS)
            self._transport.close()

    def abort(self) -> None:
        """Close at once, and drop what has not been sent."""
        self._transport.abort()

    # --- Inside ---

    def _go(self) -> None:
        """Handle the frames that are there, up to one that needs a task."""
        answers: list[bytes] = []
        handled, why = 0, ""
        try:
            while handled < AT_ONCE and not self._is_ending:
                frame = self._reader.next()
                if frame is None:
                    break
                handled += 1
                answered = self._handle(frame)
                if answered is None:
                    break
                answers.append(answered)
        except (FrameRefused, Undecodable) as error:
            why = str(error)
        if answers:
            self._transport.write(b"".join(answers))
        waiting = self._reader.waiting_bytes
        if why:
            self._close(why)
        elif handled == AT_ONCE and self._task is None:
            self._go_on()
        else:
            is_owing = waiting > 0 and self._task is None and not self._is_full
            if is_owing or self._is_owing:
                self._owe(is_owing, anew=handled > 0)
        self._keep(waiting)
        if handled and self._is_new:
            self._welcome()

    def _keep(self, waiting: int) -> None:
        """Count the bytes kept for later; pause reading while they exceed the budget.

        The rest of a frame is read whatever is kept: nothing has to be handled before it.
        """
        if waiting > FREE_BYTES or self._is_holding:
            self._is_holding = self._listener.buffers.hold(self, waiting)
        is_later = self._task is not None or self._is_full or self._is_resuming
        is_ahead = is_later and waiting > READ_AHEAD_BYTES
        if is_ahead is not self._is_paused and not self._transport.is_closing():
            self._is_paused = is_ahead
            if is_ahead:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _owe(self, is_owing: bool, *, anew: bool) -> None:
        """Begin or end the time for the rest of a frame. `anew`: another frame has begun."""
        deadlines = self._listener.deadlines
        if anew or not is_owing:
            deadlines.settle(self, Owed.REQUEST)
        if is_owing:
            deadlines.expect(self, Owed.REQUEST)
        self._is_owing = is_owing

    def _welcome(self) -> None:
        """Treat the client as established: it authenticated and sent a request."""
        if self._authentication.is_done:
            self._is_new = False
            self._reader.most_bytes = self._listener.most_frame_bytes
            self._listener.deadlines.settle(self, Owed.HELLO)

    def _go_on(self) -> None:
        """Handle bytes that arrived meanwhile, in another iteration of the loop."""
        if not self._is_resuming:
            self._is_resuming = True
            asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        self._is_resuming = False
        if self._is_ending or self._task is not None or self._is_full:
            return
        self._go()

    def _handle(self, frame: bytes) -> bytes | None:
        """Answer a frame at once, or start its call, or close the connection; then None."""
        authentication = self._authentication
        if authentication.takes_token:
            self._start(self._take_token(frame))
            return None
        key, version = KEY_AND_VERSION.unpack_from(frame)
        if key == BEAT_KEY and 0 <= version <= BEAT_VERSIONS and authentication.is_done:
            pipeline = self._listener.context.pipeline
            if pipeline.admits_all:
                beat = read_beat(frame, version)
                self._tally.requests[BEAT_KEY] += 1
                try:
                    error = pipeline.beat(*beat).error
                except Malformed as malformed:
                    pipeline.refused(KafkaCall(calls.HEARTBEAT, self._caller), malformed)
                    return answer_beat(frame, version, INVALID_REQUEST)
                return answer_beat(frame, version, wire_code(error, HEARTBEAT, version))
        api = dispatch.OFFERED.get(key)
        if api is API_VERSIONS and (authentication.has_failed or not api.offers(version)):
            self._start(self._list_versions(frame))
            return None
        if api is None or not api.offers(version):
            raise Undecodable(f"API {key} in version {version} is not offered")
        if not authentication.is_done and api is not API_VERSIONS and api not in SASL:
            raise Undecodable(f"{api.name} before authentication")
        header = read_header(frame, api, version)
        self._tally.requests[key] += 1
        self._start(self._serve(header, frame))
        return None

    def _start(self, call: Any) -> None:
        self._task = asyncio.get_running_loop().create_task(call)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if self._is_new:
            self._welcome()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._listener.failed(error)
            self._transport.abort()
        elif self._authentication.has_failed:
            self._is_ending = True
            asyncio.get_running_loop().call_later(LINGER_S, self.end)
        elif self._is_ending:
            self.end()
        else:
            self._resume()

    async def _serve(self, header: RequestHeader, frame: bytes) -> None:
        api, version, context = header.api, header.version, self._listener.context
        began_s = perf_counter()
        try:
            body = codec.decode(header, frame, context.most_items)
        except Undecodable as error:
            self._close(f"{api.name} {version}: {error}")
            return
        bind_contextvars(client_id=header.client_id, correlation_id=header.correlation_id)
        size_bytes = len(frame)
        del frame  # A parked call keeps what was made of it.
        if api is API_VERSIONS and self._software is NO_SOFTWARE:
            self._software = ClientSoftware()
        handler, kind = dispatch.HANDLERS[api], dispatch.kind_of(api)
        member_id = getattr(body, "member_id", "")
        call = KafkaCall(kind, self._caller, handler.groups(body), member_id)
        request = KafkaRequest(
            header, body, call, context, self._software, self._authentication, size_bytes
        )
        try:
            answer = await dispatch.answer(request)
            await self._write(header, answer, call.throttle_ms)
        except UnauthenticatedCall:
            # The client connects again, and is told the reason when it authenticates.
            self._listener.traffic.ended[Ended.NOT_AUTHENTICATED] += 1
            self.end()
        except Undecodable as error:
            self._close(f"{api.name} {version}: {error}")
        except codec.Unsayable as error:
            self._listener.refused(self, f"{api.name} {version} cannot say {error}")
            await self._write(header, handler.refuse(request, UNKNOWN_SERVER_ERROR))
        finally:
            context.pipeline.latency(kind).observe(perf_counter() - began_s)
        if api is API_VERSIONS:
            self._count_as(self._software.name)
        if call.throttle_ms:
            # KIP-219: the answer is out, and the next request is not looked at for so long.
            await asyncio.sleep(call.throttle_ms / 1000)

    async def _list_versions(self, frame: bytes) -> None:
        """Answer an ApiVersions of a version that is not known, or of a client that is turned away.

        The header may be unknown too, and only the answer's version 0 is read by all clients.
        """
        correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
        header = RequestHeader(API_VERSIONS, ANSWERED_IN, correlation_id, "", 0)
        is_away = self._authentication.has_failed
        await self._write(header, NO_ROOM if is_away else unknown_version(dispatch.HANDLERS))

    async def _take_token(self, frame: bytes) -> None:
        reply = await self._authentication.token(frame)
        if reply is not None:
            self._transport.write(framed(reply))

    def _count_as(self, software: str) -> None:
        self._tally.connections -= 1
        self._tally = self._listener.traffic.tally(software)
        self._tally.connections += 1

    async def _write(
        self, header: RequestHeader, answer: codec.Answer, throttle_ms: int = 0
    ) -> None:
        if throttle_ms:
            answer = {**answer, "throttle_time": throttle_ms}
        self._transport.write(await in_slices(codec.encode(header, answer)))

    def _close(self, why: str) -> None:
        """Close, with one line that says why."""
        self._listener.refused(self, why)
        self.end()
