"""The member's machine alone, told the time: leases, orders, streams."""

from __future__ import annotations

import pytest

from coordinator.assignors import TopicPartition
from coordinator.v1 import errors_pb2
from coordinator.v1 import session_pb2 as pb
from tests.client.sessions.kit import (
    ACTIVE,
    LOST,
    WARM,
    Granted,
    Lost,
    P,
    Played,
    Q,
    Resumed,
    Warming,
    wanted,
)


def test_what_every_ack_lists_as_not_renewed_ends_when_the_first_one_said():
    it = Played()
    it.at(3_500)
    it.ack(1, 3_600, 0)
    for number, at_ms in enumerate((6_000, 8_500), start=2):
        it.at(at_ms)
        it.ack(number, at_ms + 100, 0)
    assert it.valid(P, 1_000 + 8_999)
    assert not it.valid(P, 1_000 + 9_000)
    assert it.valid(Q, 8_500 + 8_999)


def test_what_a_whole_state_does_not_name_is_lost_and_released():
    it = Played()
    it.changes()
    it.hear(wanted(2, (1, ACTIVE, 2)), 2_000)
    [lost] = it.changes()
    assert (lost.partition, lost.token) == (P, 1)
    assert not it.valid(P, 2_001)
    assert it.take() == [], "the owner releases it first"
    it.release(P, 1)
    [ack] = it.take()
    [each] = ack.ack.partitions
    assert (each.kind, each.token) == (pb.SessionAck.RELEASED, 1)


def test_a_warming_partition_is_ready_once_and_again_when_asked():
    it = Played()
    it.changes()
    it.hear(wanted(2, (2, WARM, 0, 6), based_on=1), 2_000)
    two = TopicPartition("t", 2)
    assert it.changes() == [Warming(two, 6)]
    it.ready(two, 6)
    assert it.take()[0].ack.partitions[0].handoff_id == 6
    it.hear(wanted(3, (0, ACTIVE, 1), (1, ACTIVE, 2), (2, WARM, 0, 6)), 2_500)
    assert it.take()[0].ack.partitions[0].kind == pb.SessionAck.READY
    it.hear(wanted(4, (2, LOST, 0), based_on=3), 2_600)
    assert it.changes()[-1].was_warming
    assert two not in it.machine.partitions.warming


def test_a_state_in_pages_takes_effect_with_the_last():
    it = Played()
    it.changes()
    it.hear(wanted(2, (0, ACTIVE, 1), is_part=True), 2_000)
    assert it.changes() == []
    it.hear(wanted(2, (1, ACTIVE, 2), (2, ACTIVE, 3)), 2_001)
    assert [type(change) for change in it.changes()] == [Granted]
    assert len(it.machine.partitions.held) == 3


def test_a_new_stream_claims_what_is_held():
    it = Played()
    it.at(3_500)
    it.machine.closed(4_000)
    assert not it.machine.wants_stream(3_999)
    assert it.machine.wants_stream(4_000)
    it.machine.opened(4_100)
    [first] = it.take()
    attach = first.attach
    assert (attach.session_id, attach.stream_number) == ("s", 2)
    [claimed] = attach.held[0].partitions
    assert (claimed.first, claimed.last, claimed.first_token) == (0, 1, 1)
    assert it.valid(P, 9_999), "a stream that ends changes nothing"


def test_a_session_that_has_ended_loses_all_and_attaches_anew():
    it = Played()
    it.changes()
    refused = pb.SessionRefused(error_code=errors_pb2.UNKNOWN_MEMBER_ID)
    it.hear(pb.SessionResponse(refused=refused), 5_000)
    assert [type(change) for change in it.changes()] == [Lost, Lost]
    for partition in (P, Q):
        it.release(partition, it.machine.partitions.held[partition].holding.token)
    it.machine.opened(6_000)
    [first] = it.take()
    assert first.attach.session_id == ""
    assert not first.attach.held


@pytest.mark.parametrize(
    "message",
    [
        pb.SessionResponse(go_away=pb.GoAway(reason=pb.GoAway.SUPERSEDED)),
        pb.SessionResponse(refused=pb.SessionRefused(error_code=errors_pb2.FENCED_INSTANCE_ID)),
    ],
    ids=["superseded", "fenced"],
)
def test_another_ones_place_is_not_taken_back(message):
    it = Played()
    it.changes()
    it.hear(message, 5_000)
    assert [type(change) for change in it.changes()] == [Lost, Lost]
    assert it.machine.is_stopped
    assert it.machine.failure
    assert not it.machine.wants_stream(1_000_000)


def test_a_node_that_moves_a_group_is_left_for_another():
    it = Played()
    it.hear(pb.SessionResponse(go_away=pb.GoAway(reason=pb.GoAway.MOVED)), 5_000)
    assert it.machine.wants_stream(5_000)
    assert it.valid(P, 5_001)


def test_leaving_ends_with_going_away():
    it = Played()
    it.release(P, 1)
    it.release(Q, 2)
    it.machine.leave(pb.SessionLeave.NOW, 4_000)
    assert it.take()[-1].leave.kind == pb.SessionLeave.NOW
    it.hear(pb.SessionResponse(go_away=pb.GoAway(reason=pb.GoAway.LEFT)), 5_000)
    assert it.machine.is_stopped
    assert it.machine.failure is None


def test_the_deadline_is_the_next_heartbeat_or_the_end_of_validity():
    it = Played()
    assert it.machine.next_deadline() == 3_500
    it.at(3_500)
    assert it.machine.next_deadline() == 6_000
    it.machine.closed(6_000)
    it.machine.opened(6_000)
    it.take()
    assert it.machine.next_deadline() == 10_000


def test_a_whole_state_that_does_not_come_is_asked_for_once_an_interval():
    it = Played()
    it.at(10_500)
    sent = []
    for number in range(1, 5):  # A coordinator that acknowledges, and sends no state.
        it.ack(number, 10_500)
        sent += it.take()
    assert [each.heartbeat.whole for each in sent] == [True]
    assert [each.heartbeat.whole for each in it.at(13_000)] == [True]


def test_an_acknowledgement_of_a_heartbeat_that_was_never_sent_counts_for_nothing():
    it = Played()
    it.at(3_500)
    it.ack(1_000_000, 3_600)
    it.ack(1, 3_700)
    assert it.machine.lease.renewed_ms == 3_500


def test_a_difference_from_an_older_version_is_a_gap_too():
    it = Played()
    it.hear(wanted(5, (0, ACTIVE, 1), (1, ACTIVE, 2)), 1_100)
    it.hear(wanted(7, (1, LOST, 2), based_on=4), 1_200)
    assert [each.heartbeat.whole for each in it.take()] == [True]


def test_a_resume_that_is_answered_in_pages_renews_and_resumes():
    it = Played()
    it.at(10_500)
    it.changes()
    it.machine.closed(10_500)
    it.machine.opened(10_600)
    it.take()
    first = pb.Attached(
        session_id="s", member_id="m", coordinator_epoch=9, lease_ms=10_000,
        heartbeat_interval_ms=2_500, wanted=wanted(1, (0, ACTIVE, 1), epoch=9, is_part=True),
    )  # fmt: skip
    it.hear(pb.SessionResponse(attached=first), 10_700)
    assert it.machine.partitions.held[P].is_suspended
    it.machine.set_ready(True, 10_710)
    [beat] = it.take()
    assert (beat.heartbeat.applied_epoch, beat.heartbeat.applied_version) == (9, 0)
    it.hear(wanted(1, (1, ACTIVE, 2), epoch=9), 10_800)
    assert it.changes() == [Resumed(P, 1), Resumed(Q, 2)]
    assert it.machine.lease.renewed_ms == 10_600


@pytest.mark.parametrize("kind", [pb.SessionLeave.NOW, pb.SessionLeave.RETURN])
def test_nothing_is_valid_once_the_coordinator_was_told_that_the_member_has_stopped(kind):
    it = Played()
    it.machine.leave(pb.SessionLeave.DRAIN, 1_500, 20_000)
    assert it.valid(P, 1_500)
    it.machine.leave(kind, 2_000)
    assert not it.valid(P, 2_000)
    assert not it.takes(P, 2_000)
