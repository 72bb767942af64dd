"""The member's machine alone, told the time: leases, orders, streams."""

from __future__ import annotations

import pytest

from coordinator.v1 import session_pb2 as pb
from tests.kit.session_member import ACTIVE, LOST
from tests.unit.client.sessions.kit import P, Played, Q, Resumed, orders_message


def test_what_every_ack_lists_as_not_renewed_ends_when_the_first_one_said():
    member = Played()
    member.at(3_500)
    member.ack(1, 3_600, 0)
    for number, at_ms in enumerate((6_000, 8_500), start=2):
        member.at(at_ms)
        member.ack(number, at_ms + 100, 0)
    assert member.valid(P, 1_000 + 8_999)
    assert not member.valid(P, 1_000 + 9_000)
    assert member.valid(Q, 8_500 + 8_999)


def test_the_deadline_is_the_next_heartbeat_or_the_end_of_validity():
    member = Played()
    assert member.machine.next_deadline() == 3_500
    member.at(3_500)
    assert member.machine.next_deadline() == 6_000
    member.machine.closed(6_000)
    member.machine.opened(6_000)
    member.take()
    assert member.machine.next_deadline() == 10_000


def test_a_whole_state_that_does_not_come_is_asked_for_once_an_interval():
    member = Played()
    member.at(10_500)
    sent = []
    for number in range(1, 5):  # A coordinator that acknowledges, and sends no state.
        member.ack(number, 10_500)
        sent += member.take()
    assert [message.heartbeat.whole for message in sent] == [True]
    assert [each.heartbeat.whole for each in member.at(13_000)] == [True]


def test_an_acknowledgement_of_a_heartbeat_that_was_never_sent_counts_for_nothing():
    member = Played()
    member.at(3_500)
    member.ack(1_000_000, 3_600)
    member.ack(1, 3_700)
    assert member.machine.lease.renewed_ms == 3_500


def test_a_difference_from_an_older_version_is_a_gap_too():
    member = Played()
    member.receive(orders_message(5, (0, ACTIVE, 1), (1, ACTIVE, 2)), 1_100)
    member.receive(orders_message(7, (1, LOST, 2), based_on=4), 1_200)
    assert [message.heartbeat.whole for message in member.take()] == [True]


def test_a_resume_that_is_answered_in_pages_renews_and_resumes():
    member = Played()
    member.at(10_500)
    member.changes()
    member.machine.closed(10_500)
    member.machine.opened(10_600)
    member.take()
    first = pb.Attached(
        session_id="s", member_id="m", coordinator_epoch=9, lease_ms=10_000,
        heartbeat_interval_ms=2_500,
        orders=orders_message(1, (0, ACTIVE, 1), epoch=9, is_part=True),
    )  # fmt: skip
    member.receive(pb.SessionResponse(attached=first), 10_700)
    assert member.machine.partitions.held[P].is_suspended
    member.machine.set_ready(True, 10_710)
    [beat] = member.take()
    assert (beat.heartbeat.applied_epoch, beat.heartbeat.applied_version) == (9, 0)
    member.receive(orders_message(1, (1, ACTIVE, 2), epoch=9), 10_800)
    assert member.changes() == [Resumed(P, 1), Resumed(Q, 2)]
    assert member.machine.lease.renewed_ms == 10_600


@pytest.mark.parametrize("kind", [pb.SessionLeave.NOW, pb.SessionLeave.RETURN])
def test_nothing_is_valid_once_the_coordinator_was_told_that_the_member_has_stopped(kind):
    member = Played()
    member.machine.leave(pb.SessionLeave.DRAIN, 1_500, 20_000)
    assert member.valid(P, 1_500)
    member.machine.leave(kind, 2_000)
    assert not member.valid(P, 2_000)
    assert not member.takes(P, 2_000)
