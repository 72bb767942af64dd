"""Any message of a session member, to a coordinator that has another one: nobody is disturbed."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from coordinator.service.validation.messages import MessageLimits
from coordinator.settings.sections import LimitsConfig
from coordinator.testing.virtual import VirtualCoordinator
from coordinator.testing.virtual_session import VirtualSession
from coordinator.v1 import session_pb2 as pb
from tests.kit.requests import attach

LIMITS = MessageLimits(LimitsConfig())


def _member(c: VirtualCoordinator, name: str) -> VirtualSession:
    session = c.open_session()
    session.send(attach(name))
    return session


def target(data: bytes) -> None:
    """Say it on a new stream and on one that is attached; the other member goes on."""
    try:
        message = pb.SessionRequest.FromString(data)
    except DecodeError:
        return
    if LIMITS.counts(message):
        return
    c = VirtualCoordinator()
    one, bystander = _member(c, "w-a"), _member(c, "w-b")
    c.advance(100)
    before = bystander.received[-1].orders.SerializeToString()
    assert before, "it has partitions"
    new = c.open_session()
    for session in (new, one):
        session.send(message)
    assert new.has_ended or new.received, "it is refused or answered"
    c.advance(100)
    assert c.is_loaded
    assert not bystander.has_ended
    bystander.send(pb.SessionRequest(heartbeat=pb.SessionHeartbeat(number=1)))
    assert any(m.heartbeat_ack.number == 1 for m in bystander.received)
    assert c.shard.machine.numbers.last_token < 2**53, "JSON holds every token"
