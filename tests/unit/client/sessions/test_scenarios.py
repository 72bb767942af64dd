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
def member():
    """Attached at 0: heartbeats are due at 2,500, 5,000, …"""
    member = Played(attach_ms=0)
    member.changes()
    return member


# --- 31-33: what an acknowledgement renews ---


def test_31_a_lease_counts_from_when_the_heartbeat_was_sent(member):
    member.at(2_500)
    member.ack(1, 4_500)
    assert member.takes(P, 2_500 + 6_666)
    assert not member.takes(P, 2_500 + 6_667)
    assert member.valid(P, 2_500 + 6_667)
    assert member.valid(P, 2_500 + 8_999)
    assert not member.valid(P, 2_500 + 9_000)


def test_the_attach_counts_from_when_it_was_sent():
    member = Played(attach_ms=0)
    member.machine.closed(1_000)
    member.attach(2_000, answered_ms=5_000)
    assert member.valid(P, 2_000 + 8_999)
    assert not member.valid(P, 2_000 + 9_000)


def test_32_an_ack_of_an_older_number_moves_nothing_back(member):
    member.at(2_500)
    member.at(5_000)
    member.ack(2, 5_100)
    member.ack(1, 5_200)
    assert member.valid(P, 5_000 + 8_999)


def test_an_ack_of_a_number_that_was_never_sent_renews_nothing(member):
    member.at(2_500)
    member.ack(7, 2_600)
    assert not member.valid(P, 9_000)


def test_an_older_ack_that_lists_a_partition_is_heeded(member):
    member.at(2_500)
    member.at(5_000)
    member.ack(2, 5_100)
    member.ack(1, 5_200, 0)
    member.at(7_500)
    member.ack(3, 7_600)
    assert not member.valid(P, 5_000 + 9_000)
    assert member.valid(Q, 7_500 + 8_999)


# --- 34-36: suspended, and back ---


def test_34_the_same_if_no_timer_has_run_meanwhile(member):
    """A process that stood still hears the acknowledgement before its timers."""
    member.at(2_500)
    member.ack(1, 9_500)
    assert kinds(member.changes()) == [Suspended, Suspended]
    assert not member.valid(P, 9_500)
    assert member.take()[-1].heartbeat.whole


def test_35_a_whole_state_that_answers_a_young_heartbeat_resumes(member):
    member.machine.pass_time(10_000)
    member.changes()
    number = member.take()[-1].heartbeat.number
    member.receive(orders_message(2, *BOTH, answers=number), 10_600)
    assert member.changes() == [Resumed(P, 1), Resumed(Q, 2)]
    assert member.valid(P, 10_000 + 8_999)
    assert not member.valid(P, 10_000 + 9_000)


def test_35_one_that_answers_an_old_heartbeat_does_not(member):
    number = member.at(2_500)[-1].heartbeat.number
    member.machine.pass_time(11_500)
    member.changes()
    member.receive(orders_message(2, *BOTH, answers=number), 11_500)
    assert member.changes() == []
    assert not member.valid(P, 11_500)


def test_a_difference_never_resumes(member):
    member.machine.pass_time(10_000)
    number = member.take()[-1].heartbeat.number
    member.changes()
    member.receive(orders_message(2, *BOTH, based_on=1, answers=number), 10_600)
    assert member.changes() == []
    assert not member.valid(P, 10_600)


def test_36_it_is_lost_before_it_is_granted_whatever_is_granted_beside_it(member):
    """Grants are told in one event, which begins with another partition here."""
    member.receive(orders_message(2, (2, ACTIVE, 5), (0, ACTIVE, 9), based_on=1), 1_000)
    assert kinds(member.changes()) == [Lost, Granted, Granted]


def test_what_is_lost_is_not_revived_by_a_whole_state(member):
    member.receive(orders_message(2, (0, LOST, 1), based_on=1), 1_000)
    member.machine.pass_time(10_000)
    number = member.take()[-1].heartbeat.number
    member.changes()
    member.receive(orders_message(3, *BOTH, answers=number), 10_100)
    assert member.changes() == [Resumed(Q, 2)]
    assert not member.valid(P, 10_200)


def test_what_was_lost_while_it_was_suspended_is_not_resumed(member):
    member.machine.pass_time(10_000)
    number = member.take()[-1].heartbeat.number
    member.receive(orders_message(2, (0, LOST, 1), based_on=1), 10_050)
    member.changes()
    member.receive(orders_message(3, *BOTH, answers=number), 10_100)
    assert member.changes() == [Resumed(Q, 2)]


def test_a_reattach_that_took_too_long_resumes_nothing(member):
    member.machine.closed(1_000)
    member.attach(1_500, answered_ms=10_500)
    assert kinds(member.changes()) == [Suspended, Suspended]
    [beat] = member.at(20_000)
    assert beat.heartbeat.whole


# --- 37: not renewed ---


def test_37_what_an_ack_lists_is_never_renewed_again_under_its_token(member):
    member.at(2_500)
    member.ack(1, 2_600)
    member.at(5_000)
    member.ack(2, 5_100, 0)
    member.at(7_500)
    member.ack(3, 7_600)
    assert member.valid(P, 2_500 + 8_999)
    assert not member.valid(P, 2_500 + 9_000)
    assert member.valid(Q, 7_500 + 8_999)


def test_37_neither_a_whole_state_nor_a_new_stream_renews_it(member):
    member.at(2_500)
    member.ack(1, 2_600, 0)
    number = member.at(5_000)[-1].heartbeat.number
    member.receive(orders_message(2, *BOTH, answers=number), 5_100)
    assert not member.valid(P, 9_000)
    member.machine.closed(6_000)
    member.attach(6_000)
    assert not member.valid(P, 9_000)
    assert member.valid(Q, 9_000)


# --- 38, 39: lost ---


def test_the_deadline_of_a_drain_is_kept_by_the_member_itself(member):
    member.receive(orders_message(2, (0, DRAIN, 1, 5), based_on=1, remaining_ms=2_000), 1_000)
    member.changes()
    assert member.valid(P, 2_999)
    assert not member.valid(P, 3_000), "before any timer"
    assert member.machine.next_deadline() == 2_500
    member.machine.pass_time(3_000)
    assert kinds(member.changes()) == [Lost]


def test_a_deadline_once_told_is_not_moved(member):
    member.receive(orders_message(2, (0, DRAIN, 1, 5), based_on=1, remaining_ms=2_000), 1_000)
    member.receive(orders_message(3, (0, DRAIN, 1, 6), based_on=2, remaining_ms=2_000), 2_500)
    assert not member.valid(P, 3_000)
    assert kinds(member.changes()) == [Revoking]
    member.release(P, 1)
    assert member.acks() == [("RELEASED", 0, 1, 6)], "for the newest hand-off"


def test_a_drain_without_a_limit_lasts_as_long_as_the_lease(member):
    member.receive(orders_message(2, (0, DRAIN, 1, 5), based_on=1, remaining_ms=0), 1_000)
    assert member.changes() == [Revoking(P, 1, None)]
    assert member.valid(P, 8_999)


# --- Orders ---


def test_a_drain_of_a_grant_that_never_came_is_released_at_once(member):
    """The mailbox has the newest state: a grant and its drain may come as one."""
    member.receive(orders_message(2, (2, DRAIN, 7, 5), based_on=1), 1_000)
    assert member.changes() == []
    assert member.acks() == [("RELEASED", 2, 7, 5)]


def test_a_release_that_was_lost_on_its_way_is_said_again(member):
    member.receive(orders_message(2, (0, DRAIN, 1, 5), based_on=1), 1_000)
    member.release(P, 1, 70)
    member.machine.closed(1_100)
    member.attach(1_200, (0, DRAIN, 1, 5), (1, ACTIVE, 2), version=3)
    [each] = [partition for message in member.take() for partition in message.ack.partitions]
    assert (each.kind, each.token, each.position) == (pb.SessionAck.RELEASED, 1, 70)


def test_a_refusal_that_was_lost_on_its_way_is_said_again(member):
    member.receive(orders_message(2, (2, WARM, 0, 6), based_on=1), 1_000)
    two = TopicPartition("t", 2)
    assert kinds(member.changes()) == [Warming]
    member.refuse(two, 6, "no room")
    member.machine.closed(1_100)
    member.attach(1_200, *BOTH, (2, WARM, 0, 6), version=3)
    assert ("REFUSED", 2, 0, 6) in member.acks()
    assert member.changes() == []


def test_another_attempt_to_warm_is_another_order(member):
    member.receive(orders_message(2, (2, WARM, 0, 6), based_on=1), 1_000)
    member.ready(TopicPartition("t", 2), 6)
    member.receive(orders_message(3, (2, WARM, 0, 7), based_on=2), 1_100)
    assert kinds(member.changes()) == [Warming, Lost, Warming]
    assert member.acks() == [("READY", 2, 0, 6)]


def test_56_an_answer_for_one_hand_off_is_none_for_the_next(member):
    two = TopicPartition("t", 2)
    member.receive(orders_message(2, (2, WARM, 0, 6), based_on=1), 1_000)
    member.receive(orders_message(3, (2, WARM, 0, 7), based_on=2), 1_100)
    member.ready(two, 6)
    member.refuse(two, 6, "no room")
    assert member.acks() == []
    member.ready(two, 7)
    assert member.acks() == [("READY", 2, 0, 7)]


def test_ready_is_said_once(member):
    member.receive(orders_message(2, (2, WARM, 0, 6), based_on=1), 1_000)
    two = TopicPartition("t", 2)
    member.ready(two, 6)
    member.ready(two, 6)
    assert member.acks() == [("READY", 2, 0, 6)]


def test_a_release_of_an_old_token_ends_no_new_holding(member):
    member.receive(orders_message(2, (0, ACTIVE, 9), based_on=1), 1_000)
    member.release(P, 1)
    assert member.machine.partitions.held[P].holding.token == 9


def test_a_difference_of_an_older_version_is_dropped(member):
    member.receive(orders_message(2, *BOTH), 1_000)
    member.receive(orders_message(2, (0, LOST, 1), based_on=1), 1_100)
    assert member.changes() == []
    assert member.take() == []


def test_a_difference_of_a_newer_epoch_asks_for_the_whole(member):
    member.receive(orders_message(2, (0, LOST, 1), based_on=1, epoch=9), 1_000)
    assert member.changes() == []
    assert member.take()[-1].heartbeat.whole


def test_pages_of_two_versions_are_not_mixed(member):
    member.receive(orders_message(2, (0, ACTIVE, 1), is_part=True), 1_000)
    member.receive(orders_message(3, (0, ACTIVE, 1), (1, ACTIVE, 2), (2, ACTIVE, 3)), 1_001)
    assert member.changes() == [Granted(TopicPartition("t", 2), 3)]


# --- Streams ---


def test_a_stream_that_does_not_answer_is_given_up(member):
    member.at(2_500)
    assert not member.machine.is_silent(2_500 + 3_332)
    assert member.machine.is_silent(2_500 + 3_333)
    member.at(5_000)
    assert member.machine.is_silent(2_500 + 3_333), "the oldest one counts"
    member.ack(1, 5_800)
    assert not member.machine.is_silent(5_900)


def test_an_attach_that_nobody_answers_is_given_up_while_there_is_time(member):
    member.machine.closed(3_000)
    member.machine.opened(3_000)
    assert not member.machine.is_silent(7_999)
    assert member.machine.is_silent(8_000)


def test_retries_are_spread_over_a_tenth_of_the_lease(member):
    member.machine._random = lambda: 0.999
    waited = []
    now_ms = 1_000
    for _ in range(8):
        member.machine.closed(now_ms)
        now_ms = member.machine._retry_at_ms
        waited.append(now_ms)
        member.machine.opened(now_ms)
    pauses = [after - before for before, after in itertools.pairwise(waited)]
    assert max(pauses) <= 1_000
    assert pauses == sorted(pauses)


def test_leaving_is_said_again_on_the_next_stream(member):
    member.machine.leave(pb.SessionLeave.DRAIN, 1_000, 20_000, "SIGTERM")
    assert member.take()[-1].leave.within_ms == 20_000
    member.machine.closed(2_000)
    member.attach(3_000)
    [leave] = [message.leave for message in member.take() if message.HasField("leave")]
    assert (leave.kind, leave.within_ms) == (pb.SessionLeave.DRAIN, 18_000)


def test_a_new_session_counts_heartbeats_anew_and_loses_what_it_claims(member):
    member.at(2_500)
    refused = pb.SessionRefused(error_code=errors_pb2.UNKNOWN_MEMBER_ID)
    member.receive(pb.SessionResponse(refused=refused), 2_600)
    assert kinds(member.changes()) == [Lost, Lost]
    claimed = member.attach(2_700, (0, LOST, 1), (1, LOST, 2), session_id="another")
    assert claimed.session_id == ""
    [beat] = member.at(5_200)
    assert beat.heartbeat.number == 1
    member.ack(1, 5_300)
    member.release(P, 1)
    assert member.acks() == [("RELEASED", 0, 1, 0)]


def test_acknowledgements_of_one_turn_share_a_message(member):
    member.receive(orders_message(2, (0, DRAIN, 1, 5), (1, DRAIN, 2, 6), based_on=1), 1_000)
    member.release(P, 1)
    member.release(Q, 2)
    [message] = member.take()
    assert len(message.ack.partitions) == 2


# --- A machine that slept, and a store that was put back ---


def test_after_a_sleep_nothing_is_valid_before_any_timer_and_a_drain_is_over(member):
    member.receive(orders_message(2, (0, DRAIN, 1, 5), based_on=1), 1_000)
    member.at(2_500)
    member.changes()
    hour_ms = 3_600_000
    assert not member.valid(P, hour_ms)
    assert not member.valid(Q, hour_ms)
    member.ack(1, hour_ms)  # It was received while the machine slept.
    assert kinds(member.changes()) == [Lost, Suspended]
    assert member.machine.is_silent(hour_ms + 3_333), "the connection is gone, or is a relay's"
    member.machine.closed(hour_ms + 4_000)
    member.attach(hour_ms + 5_000, (1, ACTIVE, 2), version=9)
    assert member.changes() == [Resumed(Q, 2)]
    assert member.valid(Q, hour_ms + 5_000 + 8_999)


def test_after_a_sleep_a_session_that_has_ended_is_lost_and_begun_anew(member):
    hour_ms = 3_600_000
    member.machine.pass_time(hour_ms)
    refused = pb.SessionRefused(error_code=errors_pb2.UNKNOWN_MEMBER_ID)
    member.receive(pb.SessionResponse(refused=refused), hour_ms + 100)
    assert kinds(member.changes()) == [Suspended, Suspended, Lost, Lost]


def test_17_a_new_session_begins_in_a_lower_epoch_and_loses_what_was_held(member):
    member.machine.closed(1_000)
    orders = (0, LOST, 1), (1, LOST, 2), (2, ACTIVE, 77)
    claimed = member.attach(1_100, *orders, session_id="another", epoch=5)
    assert claimed.coordinator_epoch == 8
    assert kinds(member.changes()) == [Lost, Lost, Granted]
    member.at(3_600)
    member.ack(1, 3_700, epoch=5)
    assert member.valid(TopicPartition("t", 2), 3_600 + 8_999)


def test_17_the_same_session_in_a_lower_epoch_is_no_answer(member):
    member.machine.closed(1_000)
    member.attach(1_100, (0, LOST, 1), epoch=7)
    assert member.changes() == []
    assert member.valid(P, 8_999)
    assert not member.valid(P, 9_000), "it renews nothing"
    assert member.machine.is_silent(1_100 + 5_000), "the stream is given up, and another one opened"
    member.machine.closed(6_100)
    assert member.attach(6_200, epoch=9).coordinator_epoch == 8
    assert member.valid(P, 6_200 + 8_999)


# --- A member that holds nothing ---


def test_a_member_that_holds_nothing_for_an_hour_remembers_no_heartbeat_and_takes_a_grant(member):
    for partition, token in ((P, 1), (Q, 2)):
        member.release(partition, token)
    member.take()
    now_ms = 0
    for number in range(1, 1_441):
        now_ms = member.machine.next_deadline()
        [beat] = member.at(now_ms)
        assert beat.heartbeat.number == number
        member.ack(number, now_ms + 10)
    assert now_ms == 3_600_000
    assert len(member.machine.lease.sent) <= 5
    member.receive(orders_message(2, (0, ACTIVE, 9), based_on=1), now_ms + 20)
    assert member.changes() == [Granted(P, 9)]
    assert member.valid(P, now_ms + 8_999)


def test_a_member_that_holds_nothing_takes_a_grant_after_an_hour_without_a_coordinator(member):
    for partition, token in ((P, 1), (Q, 2)):
        member.release(partition, token)
    member.machine.closed(1_000)
    member.machine.pass_time(3_600_000)
    member.attach(3_600_000, (0, ACTIVE, 9), version=4)
    assert member.changes() == [Granted(P, 9)]
    assert member.valid(P, 3_600_000 + 8_999)


def test_a_grant_that_comes_while_the_lease_is_over_waits_for_a_fresh_state(member):
    member.release(P, 1)
    member.release(Q, 2)
    member.take()
    member.receive(orders_message(2, (0, ACTIVE, 9), based_on=1), 20_000)
    assert member.changes() == [Granted(P, 9)]
    assert not member.valid(P, 20_000)
    number = member.at(20_000)[-1].heartbeat.number
    assert member.changes() == [Suspended(P, 9)]
    member.receive(orders_message(3, (0, ACTIVE, 9), answers=number), 20_100)
    assert member.changes() == [Resumed(P, 9)]
