"""The member's machine alone, told the time: leases, orders, streams."""

from __future__ import annotations

import pytest

from coordinator.v1 import session_pb2 as pb
from tests.kit.session_member import ACTIVE, LOST
from tests.unit.client.sessions.kit import P, Played, Q, Resumed, orders_message


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
    it.receive(orders_message(5, (0, ACTIVE, 1), (1, ACTIVE, 2)), 1_100)
    it.receive(orders_message(7, (1, LOST, 2), based_on=4), 1_200)
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
        heartbeat_interval_ms=2_500,
        orders=orders_message(1, (0, ACTIVE, 1), epoch=9, is_part=True),
    )  # fmt: skip
    it.receive(pb.SessionResponse(attached=first), 10_700)
    assert it.machine.partitions.held[P].is_suspended
    it.machine.set_ready(True, 10_710)
    [beat] = it.take()
    assert (beat.heartbeat.applied_epoch, beat.heartbeat.applied_version) == (9, 0)
    it.receive(orders_message(1, (1, ACTIVE, 2), epoch=9), 10_800)
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
