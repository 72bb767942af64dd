"""Session members of a coordinator on virtual time, message by message."""

from __future__ import annotations

import pytest

from coordinator.testing.virtual import VirtualCoordinator
from coordinator.testing.virtual_session import VirtualSession
from coordinator.v1 import errors_pb2
from coordinator.v1 import session_pb2 as pb
from tests.kit import requests


@pytest.fixture
def c() -> VirtualCoordinator:
    return VirtualCoordinator()


def attach(
    c: VirtualCoordinator, name: str = "w-a", number: int = 1, principal: str = "", **fields
) -> VirtualSession:
    session = c.open_session(principal=principal)
    session.send(requests.attach(name, number=number, **fields))
    return session


def beat(session: VirtualSession, number: int, **fields) -> None:
    heartbeat = pb.SessionHeartbeat(number=number, **fields)
    session.send(pb.SessionRequest(heartbeat=heartbeat))


def last(session: VirtualSession):
    message = session.received[-1]
    return getattr(message, message.WhichOneof("message"))


def test_another_caller_is_not_let_into_a_session(c):
    a = attach(c, principal="anna")
    stranger = attach(c, number=2, principal="bert", session_id=last(a).session_id)
    assert last(stranger).error_code == errors_pb2.FENCED_INSTANCE_ID
    assert not a.has_ended


def test_a_restart_cuts_the_streams_and_raises_the_epoch(c):
    a = attach(c)
    c.advance(100)
    c.restart()
    assert a.has_ended
    held = pb.HeldTopic(name="t", partitions=[pb.PartitionRange(first=0, last=3, first_token=1)])
    again = attach(c, number=2, held=[held], coordinator_epoch=1)
    attached = again.received[0].attached
    assert (attached.coordinator_epoch, c.fence_epoch) == (2, 2)
    assert attached.orders.topics[0].ranges[0].partitions.first_token == 1


def test_one_that_reads_nothing_gets_the_newest_state_once(c):
    a = attach(c)
    a.stop_reading()
    c.advance(100)
    for number in range(1, 5):
        beat(a, number)
    assert a.kinds == ["attached"]
    a.read_on()
    assert a.kinds == ["attached", "heartbeat_ack", "orders"]
    assert a.received[1].heartbeat_ack.number == 4


def test_an_attach_waits_for_the_log(c):
    c.hold_appends()
    a = attach(c)
    assert a.received == []
    c.release_appends()
    assert a.kinds == ["attached"]


def test_a_log_that_refuses_the_member_refuses_its_stream(c):
    c.fail_next_append("fenced")
    a = attach(c)
    assert (a.has_ended, last(a).error_code) == (True, errors_pb2.NOT_COORDINATOR)


RANGE = pb.PartitionRange(first=0, last=2**31 - 1)
MALFORMED = {
    "a message before Attach": [pb.SessionRequest(heartbeat=pb.SessionHeartbeat(number=1))],
    "no message": [pb.SessionRequest()],
    "two Attach": [
        requests.attach("w-b"),
        requests.attach("w-b"),
    ],
    "a held set of two thousand million partitions": [
        requests.attach("w-b", held=[pb.HeldTopic(name="t", partitions=[RANGE])])
    ],
    "a topic of a thousand million partitions": [
        requests.attach("w-b", partitions=1_000_000_000)
    ],
    "a policy that nobody knows": [
        requests.attach("w-b", wishes=pb.GroupPolicy(mode=7))
    ],
    "a capacity that is no number": [
        requests.attach("w-b", capacity=float("nan"))
    ],
    "a leave of an unknown kind": [
        requests.attach("w-b"),
        pb.SessionRequest(leave=pb.SessionLeave(kind=9)),
    ],
    "a weight that is no number": [
        requests.attach("w-b"),
        pb.SessionRequest(heartbeat=pb.SessionHeartbeat(
            number=1, loads=[pb.SessionHeartbeat.Load(topic="t", weight=float("nan"))]
        )),
    ],
    "an acknowledgement of a partition below 0": [
        requests.attach("w-b"),
        pb.SessionRequest(ack=pb.SessionAck(partitions=[
            pb.SessionAck.Partition(topic="t", partition=-1, kind=pb.SessionAck.RELEASED)
        ])),
    ],
}  # fmt: skip


@pytest.mark.parametrize("said", MALFORMED.values(), ids=MALFORMED)
def test_malformed_messages_end_their_stream_with_words_and_disturb_nobody(c, said):
    other = attach(c)
    c.advance(100)
    session = c.open_session()
    for message in said:
        assert not session.has_ended
        session.send(message)
    assert session.has_ended
    assert last(session).error_code == errors_pb2.INVALID_REQUEST
    assert last(session).error_message
    beat(other, 1)
    assert last(other).number == 1


def test_a_version_of_an_earlier_epoch_says_nothing_of_what_was_told_in_this_one(c):
    attach(c)
    c.advance(100)
    c.restart()
    held = [pb.HeldTopic(name="t", partitions=[pb.PartitionRange(first=0, last=3, first_token=1)])]
    a = attach(c, number=2, held=held)
    before = len(a.received)
    nothing = pb.SessionHeartbeat.Held()
    beat(a, 1, applied_epoch=1, applied_version=99, held=nothing)
    assert a.received[before:] == [answer(1, epoch=2)]
    beat(a, 2, applied_epoch=2, applied_version=99, held=nothing)
    assert last(a).topics  # Granted anew.


def answer(number: int, epoch: int) -> pb.SessionResponse:
    message = pb.SessionHeartbeatAck(number=number, coordinator_epoch=epoch)
    return pb.SessionResponse(heartbeat_ack=message)


def test_a_process_that_waits_is_given_the_whole_state_that_it_asks_for(c):
    attach(c)
    queued = c.open_session()
    queued.send(requests.attach(incarnation={"id": b"2"}))
    assert last(queued).standing == pb.Attached.WAITING
    beat(queued, 1, whole=True)
    assert (last(queued).answers, last(queued).HasField("based_on")) == (1, False)
