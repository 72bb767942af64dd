"""Section C of the scenarios: leases on the member's side, by its own clock, L = 10,000."""

from __future__ import annotations

import itertools

import pytest

from coordinator.assignors import TopicPartition
from coordinator.v1 import errors_pb2
from coordinator.v1 import session_pb2 as pb
from tests.kit.session_member import ACTIVE, DRAIN, LOST, WARM
from tests.unit.client.sessions.kit import (
    Granted,
    Lost,
    P,
    Played,
    Q,
    Resumed,
    Revoking,
    Suspended,
    Warming,
    orders_message,
)

BOTH = (0, ACTIVE, 1), (1, ACTIVE, 2)


def kinds(changes):
    return [type(change) for change in changes]


@pytest.fixture
def it():
    """Attached at 0: heartbeats are due at 2,500, 5,000, …"""
    it = Played(attach_ms=0)
    it.changes()
    return it


# --- 31-33: what an acknowledgement renews ---


def test_31_a_lease_counts_from_when_the_heartbeat_was_sent(it):
    it.at(2_500)
    it.ack(1, 4_500)
    assert it.takes(P, 2_500 + 6_666)
    assert not it.takes(P, 2_500 + 6_667)
    assert it.valid(P, 2_500 + 6_667)
    assert it.valid(P, 2_500 + 8_999)
    assert not it.valid(P, 2_500 + 9_000)


def test_the_attach_counts_from_when_it_was_sent():
    it = Played(attach_ms=0)
    it.machine.closed(1_000)
    it.attach(2_000, answered_ms=5_000)
    assert it.valid(P, 2_000 + 8_999)
    assert not it.valid(P, 2_000 + 9_000)


def test_32_an_ack_of_an_older_number_moves_nothing_back(it):
    it.at(2_500)
    it.at(5_000)
    it.ack(2, 5_100)
    it.ack(1, 5_200)
    assert it.valid(P, 5_000 + 8_999)


def test_an_ack_of_a_number_that_was_never_sent_renews_nothing(it):
    it.at(2_500)
    it.ack(7, 2_600)
    assert not it.valid(P, 9_000)


def test_an_older_ack_that_lists_a_partition_is_heeded(it):
    it.at(2_500)
    it.at(5_000)
    it.ack(2, 5_100)
    it.ack(1, 5_200, 0)
    it.at(7_500)
    it.ack(3, 7_600)
    assert not it.valid(P, 5_000 + 9_000)
    assert it.valid(Q, 7_500 + 8_999)


# --- 34-36: suspended, and back ---


def test_34_the_same_if_no_timer_has_run_meanwhile(it):
    """A process that stood still hears the acknowledgement before its timers."""
    it.at(2_500)
    it.ack(1, 9_500)
    assert kinds(it.changes()) == [Suspended, Suspended]
    assert not it.valid(P, 9_500)
    assert it.take()[-1].heartbeat.whole


def test_35_a_whole_state_that_answers_a_young_heartbeat_resumes(it):
    it.machine.pass_time(10_000)
    it.changes()
    number = it.take()[-1].heartbeat.number
    it.receive(orders_message(2, *BOTH, answers=number), 10_600)
    assert it.changes() == [Resumed(P, 1), Resumed(Q, 2)]
    assert it.valid(P, 10_000 + 8_999)
    assert not it.valid(P, 10_000 + 9_000)


def test_35_one_that_answers_an_old_heartbeat_does_not(it):
    number = it.at(2_500)[-1].heartbeat.number
    it.machine.pass_time(11_500)
    it.changes()
    it.receive(orders_message(2, *BOTH, answers=number), 11_500)
    assert it.changes() == []
    assert not it.valid(P, 11_500)


def test_a_difference_never_resumes(it):
    it.machine.pass_time(10_000)
    number = it.take()[-1].heartbeat.number
    it.changes()
    it.receive(orders_message(2, *BOTH, based_on=1, answers=number), 10_600)
    assert it.changes() == []
    assert not it.valid(P, 10_600)


def test_36_it_is_lost_before_it_is_granted_whatever_is_granted_beside_it(it):
    """Grants are told in one event, which begins with another partition here."""
    it.receive(orders_message(2, (2, ACTIVE, 5), (0, ACTIVE, 9), based_on=1), 1_000)
    assert kinds(it.changes()) == [Lost, Granted, Granted]


def test_what_is_lost_is_not_revived_by_a_whole_state(it):
    it.receive(orders_message(2, (0, LOST, 1), based_on=1), 1_000)
    it.machine.pass_time(10_000)
    number = it.take()[-1].heartbeat.number
    it.changes()
    it.receive(orders_message(3, *BOTH, answers=number), 10_100)
    assert it.changes() == [Resumed(Q, 2)]
    assert not it.valid(P, 10_200)


def test_what_was_lost_while_it_was_suspended_is_not_resumed(it):
    it.machine.pass_time(10_000)
    number = it.take()[-1].heartbeat.number
    it.receive(orders_message(2, (0, LOST, 1), based_on=1), 10_050)
    it.changes()
    it.receive(orders_message(3, *BOTH, answers=number), 10_100)
    assert it.changes() == [Resumed(Q, 2)]


def test_a_reattach_that_took_too_long_resumes_nothing(it):
    it.machine.closed(1_000)
    it.attach(1_500, answered_ms=10_500)
    assert kinds(it.changes()) == [Suspended, Suspended]
    [beat] = it.at(20_000)
    assert beat.heartbeat.whole


# --- 37: not renewed ---


def test_37_what_an_ack_lists_is_never_renewed_again_under_its_token(it):
    it.at(2_500)
    it.ack(1, 2_600)
    it.at(5_000)
    it.ack(2, 5_100, 0)
    it.at(7_500)
    it.ack(3, 7_600)
    assert it.valid(P, 2_500 + 8_999)
    assert not it.valid(P, 2_500 + 9_000)
    assert it.valid(Q, 7_500 + 8_999)


def test_37_neither_a_whole_state_nor_a_new_stream_renews_it(it):
    it.at(2_500)
    it.ack(1, 2_600, 0)
    number = it.at(5_000)[-1].heartbeat.number
    it.receive(orders_message(2, *BOTH, answers=number), 5_100)
    assert not it.valid(P, 9_000)
    it.machine.closed(6_000)
    it.attach(6_000)
    assert not it.valid(P, 9_000)
    assert it.valid(Q, 9_000)


# --- 38, 39: lost ---


def test_the_deadline_of_a_drain_is_kept_by_the_member_itself(it):
    it.receive(orders_message(2, (0, DRAIN, 1, 5), based_on=1, remaining_ms=2_000), 1_000)
    it.changes()
    assert it.valid(P, 2_999)
    assert not it.valid(P, 3_000), "before any timer"
    assert it.machine.next_deadline() == 2_500
    it.machine.pass_time(3_000)
    assert kinds(it.changes()) == [Lost]


def test_a_deadline_once_told_is_not_moved(it):
    it.receive(orders_message(2, (0, DRAIN, 1, 5), based_on=1, remaining_ms=2_000), 1_000)
    it.receive(orders_message(3, (0, DRAIN, 1, 6), based_on=2, remaining_ms=2_000), 2_500)
    assert not it.valid(P, 3_000)
    assert kinds(it.changes()) == [Revoking]
    it.release(P, 1)
    assert it.acks() == [("RELEASED", 0, 1, 6)], "for the newest hand-off"


def test_a_drain_without_a_limit_lasts_as_long_as_the_lease(it):
    it.receive(orders_message(2, (0, DRAIN, 1, 5), based_on=1, remaining_ms=0), 1_000)
    assert it.changes() == [Revoking(P, 1, None)]
    assert it.valid(P, 8_999)


# --- Orders ---


def test_a_drain_of_a_grant_that_never_came_is_released_at_once(it):
    """The mailbox has the newest state: a grant and its drain may come as one."""
    it.receive(orders_message(2, (2, DRAIN, 7, 5), based_on=1), 1_000)
    assert it.changes() == []
    assert it.acks() == [("RELEASED", 2, 7, 5)]


def test_a_release_that_was_lost_on_its_way_is_said_again(it):
    it.receive(orders_message(2, (0, DRAIN, 1, 5), based_on=1), 1_000)
    it.release(P, 1, 70)
    it.machine.closed(1_100)
    it.attach(1_200, (0, DRAIN, 1, 5), (1, ACTIVE, 2), version=3)
    [each] = [partition for message in it.take() for partition in message.ack.partitions]
    assert (each.kind, each.token, each.position) == (pb.SessionAck.RELEASED, 1, 70)


def test_a_refusal_that_was_lost_on_its_way_is_said_again(it):
    it.receive(orders_message(2, (2, WARM, 0, 6), based_on=1), 1_000)
    two = TopicPartition("t", 2)
    assert kinds(it.changes()) == [Warming]
    it.refuse(two, 6, "no room")
    it.machine.closed(1_100)
    it.attach(1_200, *BOTH, (2, WARM, 0, 6), version=3)
    assert ("REFUSED", 2, 0, 6) in it.acks()
    assert it.changes() == []


def test_another_attempt_to_warm_is_another_order(it):
    it.receive(orders_message(2, (2, WARM, 0, 6), based_on=1), 1_000)
    it.ready(TopicPartition("t", 2), 6)
    it.receive(orders_message(3, (2, WARM, 0, 7), based_on=2), 1_100)
    assert kinds(it.changes()) == [Warming, Lost, Warming]
    assert it.acks() == [("READY", 2, 0, 6)]


def test_56_an_answer_for_one_hand_off_is_none_for_the_next(it):
    two = TopicPartition("t", 2)
    it.receive(orders_message(2, (2, WARM, 0, 6), based_on=1), 1_000)
    it.receive(orders_message(3, (2, WARM, 0, 7), based_on=2), 1_100)
    it.ready(two, 6)
    it.refuse(two, 6, "no room")
    assert it.acks() == []
    it.ready(two, 7)
    assert it.acks() == [("READY", 2, 0, 7)]


def test_ready_is_said_once(it):
    it.receive(orders_message(2, (2, WARM, 0, 6), based_on=1), 1_000)
    two = TopicPartition("t", 2)
    it.ready(two, 6)
    it.ready(two, 6)
    assert it.acks() == [("READY", 2, 0, 6)]


def test_a_release_of_an_old_token_ends_no_new_holding(it):
    it.receive(orders_message(2, (0, ACTIVE, 9), based_on=1), 1_000)
    it.release(P, 1)
    assert it.machine.partitions.held[P].holding.token == 9


def test_a_difference_of_an_older_version_is_dropped(it):
    it.receive(orders_message(2, *BOTH), 1_000)
    it.receive(orders_message(2, (0, LOST, 1), based_on=1), 1_100)
    assert it.changes() == []
    assert it.take() == []


def test_a_difference_of_a_newer_epoch_asks_for_the_whole(it):
    it.receive(orders_message(2, (0, LOST, 1), based_on=1, epoch=9), 1_000)
    assert it.changes() == []
    assert it.take()[-1].heartbeat.whole


def test_pages_of_two_versions_are_not_mixed(it):
    it.receive(orders_message(2, (0, ACTIVE, 1), is_part=True), 1_000)
    it.receive(orders_message(3, (0, ACTIVE, 1), (1, ACTIVE, 2), (2, ACTIVE, 3)), 1_001)
    assert it.changes() == [Granted(TopicPartition("t", 2), 3)]


# --- Streams ---


def test_a_stream_that_does_not_answer_is_given_up(it):
    it.at(2_500)
    assert not it.machine.is_silent(2_500 + 3_332)
    assert it.machine.is_silent(2_500 + 3_333)
    it.at(5_000)
    assert it.machine.is_silent(2_500 + 3_333), "the oldest one counts"
    it.ack(1, 5_800)
    assert not it.machine.is_silent(5_900)


def test_an_attach_that_nobody_answers_is_given_up_while_there_is_time(it):
    it.machine.closed(3_000)
    it.machine.opened(3_000)
    assert not it.machine.is_silent(7_999)
    assert it.machine.is_silent(8_000)


def test_retries_are_spread_over_a_tenth_of_the_lease(it):
    it.machine._random = lambda: 0.999
    waited = []
    now_ms = 1_000
    for _ in range(8):
        it.machine.closed(now_ms)
        now_ms = it.machine._retry_at_ms
        waited.append(now_ms)
        it.machine.opened(now_ms)
    pauses = [after - before for before, after in itertools.pairwise(waited)]
    assert max(pauses) <= 1_000
    assert pauses == sorted(pauses)


def test_leaving_is_said_again_on_the_next_stream(it):
    it.machine.leave(pb.SessionLeave.DRAIN, 1_000, 20_000, "SIGTERM")
    assert it.take()[-1].leave.within_ms == 20_000
    it.machine.closed(2_000)
    it.attach(3_000)
    [leave] = [each.leave for each in it.take() if each.HasField("leave")]
    assert (leave.kind, leave.within_ms) == (pb.SessionLeave.DRAIN, 18_000)


def test_a_new_session_counts_heartbeats_anew_and_loses_what_it_claims(it):
    it.at(2_500)
    refused = pb.SessionRefused(error_code=errors_pb2.UNKNOWN_MEMBER_ID)
    it.receive(pb.SessionResponse(refused=refused), 2_600)
    assert kinds(it.changes()) == [Lost, Lost]
    claimed = it.attach(2_700, (0, LOST, 1), (1, LOST, 2), session_id="another")
    assert claimed.session_id == ""
    [beat] = it.at(5_200)
    assert beat.heartbeat.number == 1
    it.ack(1, 5_300)
    it.release(P, 1)
    assert it.acks() == [("RELEASED", 0, 1, 0)]


def test_acknowledgements_of_one_turn_share_a_message(it):
    it.receive(orders_message(2, (0, DRAIN, 1, 5), (1, DRAIN, 2, 6), based_on=1), 1_000)
    it.release(P, 1)
    it.release(Q, 2)
    [message] = it.take()
    assert len(message.ack.partitions) == 2


# --- A machine that slept, and a store that was put back ---


def test_after_a_sleep_nothing_is_valid_before_any_timer_and_a_drain_is_over(it):
    it.receive(orders_message(2, (0, DRAIN, 1, 5), based_on=1), 1_000)
    it.at(2_500)
    it.changes()
    hour_ms = 3_600_000
    assert not it.valid(P, hour_ms)
    assert not it.valid(Q, hour_ms)
    it.ack(1, hour_ms)  # It was received while the machine slept.
    assert kinds(it.changes()) == [Lost, Suspended]
    assert it.machine.is_silent(hour_ms + 3_333), "the connection is gone, or is a relay's"
    it.machine.closed(hour_ms + 4_000)
    it.attach(hour_ms + 5_000, (1, ACTIVE, 2), version=9)
    assert it.changes() == [Resumed(Q, 2)]
    assert it.valid(Q, hour_ms + 5_000 + 8_999)


def test_after_a_sleep_a_session_that_has_ended_is_lost_and_begun_anew(it):
    hour_ms = 3_600_000
    it.machine.pass_time(hour_ms)
    refused = pb.SessionRefused(error_code=errors_pb2.UNKNOWN_MEMBER_ID)
    it.receive(pb.SessionResponse(refused=refused), hour_ms + 100)
    assert kinds(it.changes()) == [Suspended, Suspended, Lost, Lost]


def test_17_a_new_session_begins_in_a_lower_epoch_and_loses_what_was_held(it):
    it.machine.closed(1_000)
    orders = (0, LOST, 1), (1, LOST, 2), (2, ACTIVE, 77)
    claimed = it.attach(1_100, *orders, session_id="another", epoch=5)
    assert claimed.coordinator_epoch == 8
    assert kinds(it.changes()) == [Lost, Lost, Granted]
    it.at(3_600)
    it.ack(1, 3_700, epoch=5)
    assert it.valid(TopicPartition("t", 2), 3_600 + 8_999)


def test_17_the_same_session_in_a_lower_epoch_is_no_answer(it):
    it.machine.closed(1_000)
    it.attach(1_100, (0, LOST, 1), epoch=7)
    assert it.changes() == []
    assert it.valid(P, 8_999)
    assert not it.valid(P, 9_000), "it renews nothing"
    assert it.machine.is_silent(1_100 + 5_000), "the stream is given up, and another one opened"
    it.machine.closed(6_100)
    assert it.attach(6_200, epoch=9).coordinator_epoch == 8
    assert it.valid(P, 6_200 + 8_999)


# --- A member that holds nothing ---


def test_a_member_that_holds_nothing_for_an_hour_remembers_no_heartbeat_and_takes_a_grant(it):
    for partition, token in ((P, 1), (Q, 2)):
        it.release(partition, token)
    it.take()
    now_ms = 0
    for number in range(1, 1_441):
        now_ms = it.machine.next_deadline()
        [beat] = it.at(now_ms)
        assert beat.heartbeat.number == number
        it.ack(number, now_ms + 10)
    assert now_ms == 3_600_000
    assert len(it.machine.lease.sent) <= 5
    it.receive(orders_message(2, (0, ACTIVE, 9), based_on=1), now_ms + 20)
    assert it.changes() == [Granted(P, 9)]
    assert it.valid(P, now_ms + 8_999)


def test_a_member_that_holds_nothing_takes_a_grant_after_an_hour_without_a_coordinator(it):
    for partition, token in ((P, 1), (Q, 2)):
        it.release(partition, token)
    it.machine.closed(1_000)
    it.machine.pass_time(3_600_000)
    it.attach(3_600_000, (0, ACTIVE, 9), version=4)
    assert it.changes() == [Granted(P, 9)]
    assert it.valid(P, 3_600_000 + 8_999)


def test_a_grant_that_comes_while_the_lease_is_over_waits_for_a_fresh_state(it):
    it.release(P, 1)
    it.release(Q, 2)
    it.take()
    it.receive(orders_message(2, (0, ACTIVE, 9), based_on=1), 20_000)
    assert it.changes() == [Granted(P, 9)]
    assert not it.valid(P, 20_000)
    number = it.at(20_000)[-1].heartbeat.number
    assert it.changes() == [Suspended(P, 9)]
    it.receive(orders_message(3, (0, ACTIVE, 9), answers=number), 20_100)
    assert it.changes() == [Resumed(P, 9)]
