"""Messages that are expensive for their size: longest slice of the event loop for one of them.

The first byte chooses the request, the second how often the rest is said again: 0 to 22 times it is
doubled, up to `BYTES_MAX`, so that few bytes make a message of many small things. Each way of
nesting has its turn: the third byte wraps the whole into a field of that number.

Cost is CPU time of this thread, in units of work that is the same on every machine: what a loop of
plain Python takes. A message may cost a part of its limit however short it is, and so much more for
a byte; one of a session member its limit. Each that is dearer than all before it is printed; a
campaign shows the last.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Sequence
from functools import cache, partial
from itertools import count
from typing import Any

from google.protobuf.message import DecodeError, Message

from coordinator.core.config import GroupConfig
from coordinator.core.ids import CallId
from coordinator.core.replies import Reply
from coordinator.core.requests import Request
from coordinator.runtime.clock import RandomIds
from coordinator.runtime.payloads import PAYLOADS
from coordinator.service.bounds import Bounds
from coordinator.service.grpc.message_limits import MessageLimits
from coordinator.service.grpc.translate import response_work, translation
from coordinator.service.refusals import Malformed
from coordinator.settings.sections import LimitsConfig
from coordinator.shard.outbox import Appended
from coordinator.shard.shard import Shard
from coordinator.v1 import group_pb2 as pb
from coordinator.v1.session_pb2 import Attach, SessionRequest
from tests.fuzz import slow_streams
from tests.fuzz.targets import requests

KINDS: list[type[Message]] = requests.KINDS
BOUNDS = Bounds(LimitsConfig())
BYTES_MAX = LimitsConfig().max_message_bytes
UNITS_MAX = 150
"""Some 100 ms where a unit takes 0.65 ms, as on the machine of the benchmarks."""
INSTRUMENTED = 6 if "atheris" in sys.modules else 1
"""Factor by which coverage slows down our code, but not a unit."""
UNITS_FREE, UNITS_A_KIB = 30, 2
"""Cost allowed for any message, and for each KiB: 80 ns a byte parsed, and as much again."""


class Worst:
    """The dearest message so far."""

    def __init__(self) -> None:
        self.units, self.what = 0.0, "none"

    def note(self, units: float, kind: type[Message], size: int) -> None:
        if units > self.units:
            self.units, self.what = units, f"{kind.__name__} of {size} bytes"
            # At once: a process that atheris drives ends without a farewell.
            print(f"the dearest at a time: {units:.1f} units, {self.what}", file=sys.stderr)


WORST = Worst()


@cache
def unit_s() -> float:
    """Seconds of a unit of work on this machine: the best of 20, to exclude other load."""
    return min(_cpu_s(_unit) for _ in range(20))


def _unit() -> None:
    seen = {}
    for number in range(8_000):
        seen[number] = (number, "x")


def _cpu_s(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


@cache
def limits() -> MessageLimits:
    return MessageLimits(LimitsConfig())


def grown(data: bytes) -> bytes:
    """The message that an input stands for."""
    doublings, number, message = data[1] % 23, data[2], data[3:]
    for _ in range(doublings):
        if 2 * len(message) > BYTES_MAX:
            break
        message += message
    if number and number < 16:
        message = _one_field(number, len(message)) + message
    return message


def _one_field(number: int, size: int) -> bytes:
    """The tag of a field of bytes, and its length as a varint of four bytes."""
    length = [size >> shift & 0x7F | 0x80 for shift in (0, 7, 14)]
    return bytes([number << 3 | 2, *length, size >> 21])


class Meter:
    """CPU time between two chances to let others in: the longest."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    def once(self, work: Callable[[], Any]) -> Any:  # Any: what the work is for.
        began = time.thread_time()
        try:
            return work()
        finally:
            self.longest_s = max(self.longest_s, time.thread_time() - began)

    def parts(self, work: Generator[None, None, Any]) -> Any:  # Any: as above.
        while True:
            try:
                self.once(lambda: next(work))
            except StopIteration as done:
                return done.value


def target(data: bytes) -> None:
    if len(data) < 3:
        return
    kind, message = KINDS[data[0] % len(KINDS)], grown(data)
    units = _longest_s(kind, message) / unit_s()
    for _ in range(10):  # Dear by itself is only what is so each time, beside whatever else runs.
        if units <= _allowed(kind, message):
            break
        now_s = min(_cpu_s(_unit) for _ in range(3))
        units = min(units, _longest_s(kind, message) / now_s)
    WORST.note(units, kind, len(message))
    assert units <= _allowed(kind, message), f"{units:.0f} units for {len(message)} bytes"


def _allowed(kind: type[Message], message: bytes) -> float:
    if kind is SessionRequest:  # A short one names many partitions; its stream rests for each.
        return INSTRUMENTED * UNITS_MAX
    return INSTRUMENTED * min(UNITS_MAX, UNITS_FREE + UNITS_A_KIB * len(message) / 1_024)


def _longest_s(kind: type[Message], data: bytes) -> float:
    meter = Meter()
    _work(kind, data, meter)
    return meter.longest_s


def _work(kind: type[Message], data: bytes, meter: Meter) -> None:
    """Do with a message what a server does, without gRPC."""
    try:
        request = meter.once(lambda: kind.FromString(data))
    except DecodeError:
        return
    try:
        if meter.once(lambda: limits().counts(request)):
            return
        if isinstance(request, SessionRequest):
            slow_streams.play(request, Meter, meter)
            return
        commands = meter.parts(translation(request, count(1).__next__, "/h"))
        if kind is not pb.HeartbeatBatchRequest:
            commands = meter.parts(BOUNDS.check(commands))
    except Malformed:
        return
    if not commands:
        return
    replies = _steps(commands, meter)
    if len(replies) < len(commands):
        return  # It is parked.
    answers = [replies[command.call_id] for command in commands]
    response = meter.parts(response_work(request, answers))
    meter.once(response.SerializeToString)


def _steps(commands: Sequence[Request], meter: Meter) -> dict[CallId, Reply]:
    """The replies of a shard whose log takes everything at once."""
    shard = Shard(GroupConfig(), RandomIds(), PAYLOADS, now_ms=0)
    shard.restore(0, sequence=0, next_offset=0)
    replies: dict[CallId, Reply] = {}
    for command in commands:
        outbox = meter.once(partial(shard.step, command, 0))
        while True:
            replies.update(outbox.replies)
            if outbox.append is None:
                break
            outbox = meter.once(partial(shard.step, Appended(outbox.append.sequence), 0))
    return replies


def seeds():
    for seed in requests.seeds():
        for doublings in (0, 8, 22):
            yield seed[:1] + bytes([doublings, 0]) + seed[1:]
    for number, kind in enumerate(KINDS):
        for field in kind.DESCRIPTOR.fields:
            if field.is_repeated:
                yield bytes([number, 22, 0, field.number << 3 | 2, 0])
                yield bytes([number, 22, field.number, 0x12, 0])
                yield bytes([number, 22, field.number, 0x0A, 0x02, 0x12, 0])
    number = KINDS.index(SessionRequest)
    many = [Attach.Topic(name=f"{n:x}", partitions=1) for n in range(9_000)]
    attach = SessionRequest()
    attach.CopyFrom(slow_streams.ATTACH)
    attach.attach.topics.extend(many)
    yield bytes([number, 0, 0]) + attach.SerializeToString()
    for part in SessionRequest.DESCRIPTOR.fields:
        for field in part.message_type.fields:
            if field.is_repeated:
                yield bytes([number, 22, part.number, field.number << 3 | 2, 0])
            elif field.message_type is not None:
                yield bytes([number, 22, part.number, field.number << 3 | 2, 2, 0x0A, 0])
