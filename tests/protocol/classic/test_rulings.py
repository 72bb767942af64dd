"""Rulings R30, R33 and R35: small things in which both of Kafka's coordinators are loose."""

import pytest

from coordinator.assignors.consumer_protocol import Subscription, encode_subscription
from tests.kit.classic_scenario import ClassicScenario, partition_codes
from tests.protocol.classic.test_offsets import delete_offsets

T0, U0 = ("t", 0), ("u", 0)


@pytest.fixture
def s() -> ClassicScenario:
    return ClassicScenario()


def reads(topic: str) -> bytes:
    return encode_subscription(Subscription(topics=(topic,)))


# --- R30 ------------------------------------------------------------------------------------------


def test_nothing_is_deleted_while_nobody_knows_what_is_read(s):
    s.commit({T0: 1, U0: 2})
    call = s.join(metadata=reads("t"))
    subscribed = ["GROUP_SUBSCRIBED_TO_TOPIC"] * 2
    assert partition_codes(delete_offsets(s, T0, U0)) == subscribed
    s.advance(50)
    assert partition_codes(delete_offsets(s, T0, U0)) == ["GROUP_SUBSCRIBED_TO_TOPIC", "NONE"]
    s.leave(call.response.member_id)
    assert partition_codes(delete_offsets(s, T0)) == ["NONE"]


def test_nor_when_a_group_that_had_members_gathers_its_first_again(s):
    a = s.f1(metadata=reads("t"))
    s.commit({T0: 1, U0: 2}, member_id=a, generation=1)
    s.leave(a)
    s.join(metadata=reads("u"))
    assert partition_codes(delete_offsets(s, T0, U0)) == ["GROUP_SUBSCRIBED_TO_TOPIC"] * 2


def test_a_phase_whose_members_are_gone_keeps_nothing(s):
    s.commit({T0: 1})
    s.join(metadata=reads("t")).cancel()
    assert partition_codes(delete_offsets(s, T0)) == ["NONE"]


# --- R33 ------------------------------------------------------------------------------------------


def test_a_pending_id_that_leaves_takes_nothing_but_itself(s):
    a = s.f1()
    pending = s.join(two_phase=True).response.member_id
    assert s.leave_codes(pending) == ["NONE"]
    assert (s.state, s.generation) == ("Stable", 1)
    assert s.beat(a, 1) == "NONE"
    assert s.leave_codes(pending) == ["UNKNOWN_MEMBER_ID"]


# --- R35 ------------------------------------------------------------------------------------------


def test_who_came_in_an_earlier_first_phase_does_not_extend_the_next_one(s):
    first, second = s.join(rt=120), s.join(rt=120)
    s.until(120)
    ids = [call.response.member_id for call in (first, second)]
    s.leave(*ids)
    assert s.state == "Empty"
    again = s.join(rt=500)
    s.advance(50)
    assert again.done, "one delay: nobody else has come"


def test_nor_if_everybody_of_it_has_gone_before_it_ended(s):
    first, second = s.join(), s.join()
    first.cancel(), second.cancel()
    s.advance(500)
    assert s.state in ("Empty", None)
    again = s.join()
    s.advance(50)
    assert again.done
