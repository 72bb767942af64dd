"""Any message of a session member, to a coordinator that has another one: nobody is disturbed."""

from __future__ import annotations

from coordinator.service.grpc.message_limits import MessageLimits
from coordinator.settings.sections import LimitsConfig
from coordinator.testing.virtual import VirtualCoordinator
from coordinator.testing.virtual_session import VirtualSession
from coordinator.v1 import session_pb2 as pb

LIMITS = MessageLimits(LimitsConfig())
POLICY = pb.GroupPolicy(join_quiet_ms=0, initial_delay_ms=0)


def _member(c: VirtualCoordinator, name: str) -> VirtualSession:
    session = c.open_session()
    topics = [pb.Attach.Topic(name="t", partitions=4)]
    attach = pb.Attach(
        group_id="g", member_name=name, incarnation={"id": name.encode()}, stream_number=1,
        topics=topics, wishes=POLICY,
    )  # fmt: skip
    session.send(pb.SessionRequest(attach=attach))
    return session


def play(message: pb.SessionRequest) -> None:
    """Say it on a new stream and on one that is attached; the other member goes on."""
    if LIMITS.counts(message):
        return
    c = VirtualCoordinator()
    one, bystander = _member(c, "w-a"), _member(c, "w-b")
    c.advance(100)
    before = bystander.received[-1].wanted.SerializeToString()
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


def seeds() -> list[pb.SessionRequest]:
    """One message of each kind, with most of its fields."""
    held = [pb.HeldTopic(name="t", partitions=[pb.PartitionRange(first=0, last=1, first_token=1)])]
    acks = [
        pb.SessionAck.Partition(
            topic="t", partition=0, kind=kind, token=1, handoff_id=1, position=7
        )
        for kind in (pb.SessionAck.RELEASED, pb.SessionAck.READY, pb.SessionAck.REFUSED)
    ]
    return [
        pb.SessionRequest(attach=pb.Attach(
            group_id="g", member_name="w-c", incarnation={"id": b"3", "started_at_ms": 5},
            session_id="s", stream_number=2, client_id="c", rack="r", capacity=0.5,
            topics=[pb.Attach.Topic(name="t", partitions=4)], max_partitions=3, drain_ms=5_000,
            revision="v2", deployment="d", ready=True, wishes=POLICY, held=held,
            coordinator_epoch=1,
        )),
        pb.SessionRequest(heartbeat=pb.SessionHeartbeat(
            number=1, applied_epoch=1, applied_version=2, whole=True, progress=1, ready=False,
            held={"topics": held}, loads=[{"topic": "t", "partition": 1, "weight": 0.5}],
            log_ends=[{"topic": "t", "partition": 1, "log_end_offset": 9}],
        )),
        pb.SessionRequest(ack=pb.SessionAck(partitions=acks)),
        pb.SessionRequest(leave=pb.SessionLeave(kind="DRAIN", within_ms=9, reason="r")),
    ]  # fmt: skip
