"""Calls of a session member: commits under tokens, releases behind them, the coordinator."""

from __future__ import annotations

from collections import deque

import pytest

from coordinator.assignors import TopicPartition
from coordinator.client.errors import FatalError, FencedToken, StaleMember
from coordinator.client.member import calls
from coordinator.client.member.events import Stopping
from coordinator.client.member.machine import MemberMachine
from coordinator.client.member.part import Leaving
from coordinator.client.member.session.part import SessionPart
from coordinator.client.offsets import Commit
from coordinator.client.settings.reading import config_of
from coordinator.v1 import errors_pb2
from coordinator.v1 import session_pb2 as pb
from tests.kit.session_member import ACTIVE, DRAIN, LOST, WARM
from tests.unit.client.sessions.kit import (
    Granted,
    P,
    Q,
    Revoking,
    Warming,
    one_by_one,
    orders_message,
)

BOTH = (0, ACTIVE, 1), (1, ACTIVE, 2)


class Driven:
    """A member that is attached at 0 with L = 10,000, holds P and Q, and has been told so."""

    def __init__(self, *orders, random=0.0) -> None:
        config = config_of("session", "g", {"t": 2}, {"client_id": "c"})
        self.machine = MemberMachine(SessionPart, config, ["a:1"], lambda: random)
        self.part = self.machine.part
        self.calls: list[calls.MemberCall] = []
        self.sent: list[pb.SessionRequest] = []
        self.logs: list[str] = []
        self.machine.start(0)
        self.turn(0)
        self.answer(calls.Found("a:1"), 0)
        self.attach(0, *orders)
        self.machine.hand_out(0)

    def turn(self, now_ms: int) -> None:
        while (action := self.machine.next_action(now_ms)) is not None:
            match action:
                case calls.MemberCall():
                    self.calls.append(action)
                case calls.OpenStream():
                    self.stream = action
                case calls.Send(_, message):
                    self.sent.append(message)
                case calls.LogMessage(level, text):
                    self.logs.append(f"{level.name} {text}")

    def answer(self, result, now_ms: int) -> None:
        self.machine.handle(calls.Answer(self.calls.pop(0), result), now_ms)
        self.turn(now_ms)

    def receive(self, now_ms: int, **message) -> None:
        heard = calls.Received(self.stream, pb.SessionResponse(**message))
        self.machine.received(heard, now_ms)
        self.turn(now_ms)

    def attach(self, now_ms: int, *orders) -> None:
        attached = pb.Attached(
            session_id="s", member_id="m", coordinator_epoch=8, lease_ms=10_000,
            heartbeat_interval_ms=2_500, orders=orders_message(1, *(orders or BOTH)),
        )  # fmt: skip
        self.receive(now_ms, attached=attached)

    def commit(self, now_ms: int, holdings=None, *, waits: bool = False):
        begun = self.machine.commit(Commit({P: 7}), holdings, now_ms, waits=waits)
        self.turn(now_ms)
        return begun

    def holding(self, partition=P):
        return self.machine.ledger.of(partition)

    def release(self, now_ms: int, holding=None, **more) -> None:
        self.machine.give_back((holding or self.holding(),), now_ms, **more)
        self.turn(now_ms)

    def acks(self) -> list[tuple[str, int]]:
        found = [
            (pb.SessionAck.Kind.Name(partition.kind), partition.token)
            for message in self.sent
            for partition in message.ack.partitions
        ]
        self.sent.clear()
        return found


@pytest.fixture
def member():
    return Driven()


def test_a_release_is_told_behind_the_answer_to_the_last_commit(member):
    member.commit(100)
    member.release(150, position=7)
    assert member.acks() == []
    with pytest.raises(StaleMember, match="released"):
        member.commit(160)
    member.answer(calls.Committed(codes=("NONE",)), 200)
    assert member.acks() == [("RELEASED", 1)]


def test_a_commit_counts_for_the_grant_that_the_owner_was_told(member):
    member.receive(100, orders=orders_message(2, (0, ACTIVE, 9), based_on=1))
    begun = member.commit(200)
    assert isinstance(begun.error, StaleMember)
    assert member.calls == [], "nothing was sent"
    assert [type(event).__name__ for event in member.machine.hand_out(250)] == ["Lost", "Granted"]
    member.commit(300)
    assert member.calls[0].request.tokens == {P: 9}


def test_38_a_partition_lost_during_a_commit_is_no_success(member):
    begun = member.commit(100)
    member.receive(150, orders=orders_message(2, (0, LOST, 1), based_on=1))
    member.answer(calls.Committed(codes=("NONE",)), 200)
    assert isinstance(begun.error, StaleMember)
    assert "stored" in str(begun.error)
    assert member.acks() == [], "the owner releases it"


def test_a_suspended_partition_is_not_committed(member):
    begun = member.commit(9_000)
    assert isinstance(begun.error, StaleMember)
    assert "suspended" in str(begun.error)
    assert member.calls == []


def test_all_that_is_suspended_at_one_time_is_one_line(member):
    member.logs.clear()
    member.turn(9_000)
    [line] = [text for text in member.logs if "in doubt" in text]
    assert "t-0…1" in line


def test_all_that_is_lost_for_one_reason_is_one_line(member):
    member.logs.clear()
    member.receive(1_000, orders=orders_message(2))
    [line] = [text for text in member.logs if "lost" in text]
    assert "t-0…1" in line


def test_a_worker_waits_until_it_is_resumed(member):
    begun = member.commit(9_000, [member.holding()], waits=True)
    assert member.calls == []
    member.machine.received(calls.StreamClosed(member.stream, calls.CallUnanswered("cut")), 20_000)
    member.turn(60_000)
    assert not begun.is_done, "the time does not count"
    member.answer(calls.Found("a:1"), 60_000)
    member.attach(60_100)
    assert member.calls[-1].request.tokens == {P: 1}


def test_a_commit_pauses_for_a_heartbeat_interval_at_most():
    """A worker stands still for as long, however long the coordinator was away."""
    member = Driven(random=0.999)
    begun = member.commit(100)
    now_ms, pauses = 100, []
    for _ in range(6):
        member.answer(calls.Dropped("the log is unavailable"), now_ms)
        pauses.append(begun.due_ms - now_ms)
        now_ms = begun.due_ms
        member.turn(now_ms)
    assert pauses == [100, 200, 400, 799, 1_598, 2_498]


def test_a_fenced_commit_names_the_holder(member):
    begun = member.commit(100)
    reply = calls.Committed(codes=("FENCED_TOKEN",), holders={P: ("m2", "w-b")})
    member.answer(reply, 200)
    assert isinstance(begun.error, FencedToken)
    assert begun.error.holders == {P: ("m2", "w-b")}
    assert "t-0 held by w-b" in str(begun.error)


def test_a_group_that_has_moved_is_looked_for_at_the_node_that_was_named(member):
    gone = pb.GoAway(reason=pb.GoAway.MOVED, host="b", port=2)
    member.receive(100, go_away=gone)
    member.turn(200)
    assert member.calls[-1].request == calls.FindCoordinator("g", "b:2")
    member.answer(calls.CallUnanswered("nobody is there"), 300)
    member.turn(400)
    assert member.calls[-1].request == calls.FindCoordinator("g", "a:1")


def test_a_redirect_to_an_ipv6_address_is_dialled_in_brackets(member):
    member.receive(100, go_away=pb.GoAway(reason=pb.GoAway.MOVED, host="fd00::1", port=2))
    member.turn(200)
    assert member.calls[-1].request == calls.FindCoordinator("g", "[fd00::1]:2")


def test_a_server_without_session_groups_is_named_with_both_ways_out(member):
    unknown = calls.Unimplemented("Method not found!")
    member.machine.received(calls.StreamClosed(member.stream, unknown), 100)
    member.turn(110)
    message = str(member.machine.failure)
    assert "older version" in message
    assert "update all nodes" in message
    assert 'protocol="classic"' in message
    assert isinstance(member.machine.failure, FatalError)


def test_messages_of_a_former_stream_are_dropped(member):
    former = member.stream
    member.machine.received(calls.StreamClosed(former, calls.CallUnanswered("cut")), 100)
    lost = pb.SessionResponse(orders=orders_message(2, (0, LOST, 1), based_on=1))
    member.machine.received(calls.Received(former, lost), 150)
    assert member.part.holdings.ends_ms(member.holding()) > 160


def test_leaving_is_given_up_after_two_seconds(member):
    member.machine.close(Leaving("closed"), 100)
    member.turn(100)
    assert member.sent[-1].leave.reason == "closed"
    assert not member.machine.is_closed
    member.turn(2_100)
    assert member.machine.is_closed


def test_a_refusal_for_good_is_the_owners_to_hear(member):
    refused = pb.SessionRefused(
        error_code=errors_pb2.INVALID_REQUEST, error_message="topics: too many"
    )
    member.receive(100, refused=refused)
    assert "too many" in str(member.machine.failure)
    assert member.machine.failure.code == "INVALID_REQUEST"


def test_a_lease_that_ends_while_a_coordinator_is_looked_for_is_told_at_once(member):
    member.machine.received(calls.StreamClosed(member.stream, calls.CallUnanswered("gone")), 7_000)
    member.turn(7_000)
    member.turn(member.machine.next_deadline() or 7_000)
    assert [type(call.request) for call in member.calls] == [calls.FindCoordinator]
    assert member.machine.next_deadline() == 9_000


def test_no_commit_is_begun_once_the_member_closes(member):
    under_way = member.commit(10)
    member.machine.close(Leaving("done"), 20)
    member.turn(20)
    with pytest.raises(StaleMember, match="closes"):
        member.commit(30)
    assert not under_way.is_done


def test_a_release_ends_what_the_owner_knows_and_no_grant_that_it_was_not_told_of(member):
    member.receive(100, orders=orders_message(2, (0, ACTIVE, 9), based_on=1))
    member.release(110)  # The owner has not been told yet.
    assert member.acks() == []
    lost, granted = member.machine.hand_out(120)
    assert [held.token for held in (*lost.holdings, *granted.holdings)] == [1, 9]
    assert member.part.partitions.held[P].holding is granted.holdings[0]


def test_a_release_names_its_holding_also_after_the_partition_was_granted_again(member):
    first = member.holding()
    member.receive(100, orders=orders_message(2, (0, ACTIVE, 9), based_on=1))
    member.machine.hand_out(110)
    member.release(120, first)
    assert member.acks() == []
    assert member.machine.ledger.lasts(member.holding())
    member.release(130)
    assert member.acks() == [("RELEASED", 9)]


def test_an_answer_counts_for_the_hand_off_that_it_names(member):
    member.receive(100, orders=orders_message(2, (2, WARM, 0, 6), based_on=1))
    [first] = member.machine.hand_out(110)
    member.receive(120, orders=orders_message(3, (2, WARM, 0, 7), based_on=2))
    lost, second = member.machine.hand_out(130)
    assert lost.was_warming
    member.part.holdings.ready(*first.holdings)
    member.release(140, *first.holdings, refused="no disk")
    assert member.acks() == []
    member.part.holdings.ready(*second.holdings)
    member.turn(150)
    assert member.acks() == [("READY", 0)]
    member.release(160, *second.holdings, refused="no disk")
    assert member.acks() == [("REFUSED", 0)]


def test_a_refusal_of_a_hand_off_gives_no_holding_up(member):
    member.receive(100, orders=orders_message(2, (2, WARM, 0, 6), based_on=1))
    [warming] = member.machine.hand_out(110)
    third = TopicPartition("t", 2)
    member.receive(120, orders=orders_message(3, (2, ACTIVE, 15), based_on=2))
    member.machine.hand_out(130)
    member.release(140, *warming.holdings, refused="no disk")
    assert member.machine.ledger.lasts(member.holding(third))
    member.release(150, member.holding(third), refused="no disk")
    assert not member.machine.ledger.lasts(member.machine.ledger.of(third))


def test_what_the_owner_was_told_can_be_told_again_to_another_one(member):
    member.receive(100, orders=orders_message(2, (0, DRAIN, 1), (2, WARM, 0, 6), based_on=1))
    member.machine.hand_out(110)
    told = [each for event in member.machine.standing_events() for each in one_by_one(event)]
    third = TopicPartition("t", 2)
    assert told == [Granted(P, 1), Granted(Q, 2), Revoking(P, 1, 30_100), Warming(third, 6)]


def test_the_same_topics_leave_the_stream_as_it_is(member):
    member.sent.clear()
    member.machine.subscribe(dict(member.machine.topics), 100)
    member.turn(100)
    assert member.sent == []
    assert member.part.stream.has_stream


def test_new_topics_end_the_stream_before_them(member):
    before = member.stream
    member.machine.subscribe({"t": 3}, 100)
    closed = []
    while (action := member.machine.next_action(100)) is not None:
        closed += [action.stream] if isinstance(action, calls.CloseStream) else []
    assert closed == [before]


class CountedDict(dict):
    """A dict that counts the entries that are looked at."""

    looked_at = 0

    def get(self, key, default=None):
        self.looked_at += 1
        return super().get(key, default)

    def __getitem__(self, key):
        self.looked_at += 1
        return super().__getitem__(key)

    def __iter__(self):
        for key in super().__iter__():
            self.looked_at += 1
            yield key

    def items(self):
        return ((key, self[key]) for key in super().__iter__())

    def values(self):
        return (self[key] for key in super().__iter__())


class CountedDeque(deque):
    """A deque that counts the changes that are looked at."""

    looked_at = 0

    def __iter__(self):
        for each in super().__iter__():
            self.looked_at += 1
            yield each


def looked_at_by_a_commit(held):
    member = Driven(*((partition, ACTIVE, partition + 1) for partition in range(held)))
    partitions = member.part.partitions
    member.machine.next_deadline()
    partitions.held = CountedDict(partitions.held)
    member.machine.events = CountedDeque([Stopping("no reason")] * held)
    begun = member.commit(100)
    member.machine.next_deadline()
    member.answer(calls.Committed(codes=("NONE",)), 200)
    member.machine.next_deadline()
    assert begun.is_done
    assert begun.error is None
    return partitions.held.looked_at + member.machine.events.looked_at


def test_a_commit_looks_at_its_own_partitions_however_many_are_held():
    assert looked_at_by_a_commit(1_000) == looked_at_by_a_commit(2) <= 10


def test_a_member_is_revoking_until_the_last_drain_is_released(member):
    member.receive(100, orders=orders_message(2, (0, DRAIN, 1, 5), (1, DRAIN, 2, 6), based_on=1))
    assert member.machine.state == "revoking"
    member.release(110)
    assert member.machine.state == "revoking"
    member.receive(120, orders=orders_message(3, (1, LOST, 2, 6), based_on=2))
    assert member.machine.state == "stable"


@pytest.fixture
def waits():
    """A member that has nothing until the next plan."""
    member = Driven()
    nothing = orders_message(2)
    nothing.why = "window"
    member.receive(100, orders=nothing)
    member.machine.hand_out(100)
    member.part.poll_begins(150, gives_back=True)
    member.turn(150)
    assert not member.part.status().is_assigned
    return member


def test_a_member_knows_its_assignment_once_a_difference_tells_what_it_prepares(waits):
    member = waits
    member.receive(200, orders=orders_message(3, (0, WARM, 0, 5), based_on=2))
    assert member.part.status().is_assigned


def test_a_member_knows_its_assignment_once_its_owner_was_told_of_it(waits):
    """Else whoever polls before and asks after that would take it for nothing."""
    member = waits
    member.receive(200, orders=orders_message(3, (0, ACTIVE, 7), based_on=2))
    assert not member.part.status().is_assigned
    member.machine.hand_out(200)
    assert member.part.status().is_assigned


def test_what_is_granted_and_drained_is_told_in_a_line_each(member):
    assert member.logs[-1] == "INFO member m of group g: granted t-0…1"
    member.logs.clear()
    member.receive(100, orders=orders_message(2, (0, DRAIN, 1), (1, DRAIN, 2), based_on=1))
    assert member.logs == ["INFO member m of group g: draining t-0…1, to be given back"]


def test_what_ends_because_the_member_leaves_is_no_warning(member):
    member.logs.clear()
    member.machine.close(Leaving("done", return_within_ms=5_000), 100)
    member.turn(100)
    member.receive(200, go_away=pb.GoAway(reason=pb.GoAway.LEFT))
    assert "INFO member m of group g: lost t-0…1: it has left" in member.logs
    assert [line for line in member.logs if line.startswith("WARNING")] == []
