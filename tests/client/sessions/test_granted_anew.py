"""A partition that is lost and comes again, as the owner of the member hears of it."""

from __future__ import annotations

from coordinator.assignors import TopicPartition
from coordinator.client.member.session.changes import Granted, Lost, Warming
from coordinator.client.member.session.member import SessionMember
from coordinator.client.member.session.member_machine import SessionMemberMachine
from coordinator.client.member.session.partitions import Held, Holding, Preparation
from coordinator.client.settings.reading import config_of
from coordinator.client.worker.session_member import LentLeasedMember

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


def machine() -> SessionMemberMachine:
    made = SessionMemberMachine(config_of("session", "g", {"t": 2}, {}), ("x:1",), lambda: 0.0)
    made.session.changes += [
        Granted(P, 10), Lost(P, 10, "another has it"), Granted(Q, 11), Granted(P, 15),
    ]  # fmt: skip
    made.session.partitions.held = {P: Held(15, Holding.ACTIVE), Q: Held(11, Holding.ACTIVE)}
    return made


def test_the_new_holding_is_handed_out_after_the_lost_one():
    it = machine()
    assert [type(change) for change in it.hand_out()] == [Granted, Lost, Granted]
    assert it.known == {Q: 11}
    assert it.has_news
    assert it.hand_out() == [Granted(P, 15)]
    assert it.known == {P: 15, Q: 11}


def test_releasing_the_lost_one_keeps_the_new_one():
    it = machine()
    it.hand_out()
    it.release(P, 15)  # The owner names the partition alone.
    it.hand_out()
    assert not it._releases
    it.release(P, 15)
    assert P in it._releases


def warming() -> SessionMemberMachine:
    """The owner prepares for hand-off 6, which has been replaced by 7."""
    made = SessionMemberMachine(config_of("session", "g", {"t": 2}, {}), ("x:1",), lambda: 0.0)
    made.session.changes.append(Warming(P, 6))
    made.hand_out()
    made.session.changes += [Lost(P, 0, "another", was_warming=True), Warming(P, 7)]
    made.session.partitions.warming = {P: Preparation(7)}
    return made


def test_an_answer_by_partition_is_for_the_hand_off_that_the_owner_was_told():
    it = warming()
    it.prepared(P)
    assert not it.session.partitions.warming[P].is_ready
    assert [type(change) for change in it.hand_out()] == [Lost]
    it.prepared(P)
    assert not it.session.partitions.warming[P].is_ready, "the owner was told that it is over"
    assert it.hand_out() == [Warming(P, 7)]
    it.prepared(P)
    assert it.session.partitions.warming[P].is_ready


def test_an_answer_that_names_its_hand_off_counts_for_that_one_alone():
    it = warming()
    it.hand_out()
    it.hand_out()
    it.prepared(P, 6)
    it.prepared(P, 6, "no disk")
    assert not it.session.partitions.warming[P].is_ready
    it.prepared(P, 7, "no disk")
    assert P not in it.session.partitions.warming


def test_what_is_granted_after_it_was_prepared_in_vain_comes_in_a_later_call():
    it = warming()
    it.session.changes[-1] = Granted(P, 15)
    assert [type(change) for change in it.hand_out()] == [Lost]
    assert it.hand_out() == [Granted(P, 15)]


async def test_a_refusal_of_a_hand_off_gives_no_holding_up():
    member = SessionMember("x:1", "g", {"t": 2})
    it, _, _ = member.parts()
    it.session.changes += [Warming(P, 6), Granted(P, 15)]
    it.session.partitions.held = {P: Held(15, Holding.ACTIVE)}
    it.hand_out()
    member.refuse(Warming(P, 6), "no disk")
    assert it.known == {P: 15}
    member.refuse(P, "no disk")
    assert it.known == {}


async def test_a_member_that_was_asked_to_prepare_is_lent_with_the_question():
    member = SessionMember("x:1", "g", {"t": 2})
    it, _, _ = member.parts()
    it.session.changes += [Warming(P, 6), Granted(Q, 15)]
    it.hand_out()
    assert Warming(P, 6) in LentLeasedMember(member, lambda: None).take_events()
