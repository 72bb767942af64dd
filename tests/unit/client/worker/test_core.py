"""Decisions of a worker in a session group, told the time: hooks that fail, stops, hand-offs."""

from __future__ import annotations

import pytest

from coordinator.assignors import TopicPartition
from coordinator.client import Partition, Worker
from coordinator.client.member.events import Granted, Lost, MemberEvent, Revoking, Warming
from coordinator.client.member.ledger import Holding
from coordinator.client.worker.actions import (
    CancelRun,
    GiveBack,
    LeaveMember,
    Locate,
    Ready,
    Say,
    StartDrain,
    StartHandler,
)
from coordinator.client.worker.core import WorkerCore
from coordinator.client.worker.handlers import (
    CallKind,
    ErrorPolicy,
    Function,
    Handlers,
    Limits,
    TopicHandler,
)

P = TopicPartition("t", 0)
WARM, DRAIN, LOST, HANDLER = CallKind.WARM, CallKind.DRAIN, CallKind.LOST, CallKind.HANDLER


async def nothing(p: Partition) -> None:
    """A function that is never called: the test says how it ends."""


class PlayedMember:
    """Answers of a member of a session group."""

    releases_cost_nothing = True

    def __init__(self) -> None:
        self.begins = self.drains_by_order = True

    def may_begin(self, holding: Holding) -> bool:
        return self.begins


class Worked:
    """A core whose member is played by the test; offsets are read at once."""

    def __init__(self, *hooks: CallKind, is_async: bool = True, **policy) -> None:
        handlers = Handlers()
        policy = {"on_error": "retry", "max_attempts": 5, "after_max_attempts": "release"} | policy
        handlers.add(None, TopicHandler(nothing, is_async, ErrorPolicy(**policy)))
        for kind in hooks:
            handlers.add_hook(kind, Function(nothing, is_async))
        self.core = WorkerCore(handlers, Limits())
        self.member = self.core.member = PlayedMember()
        self.calls: list = []
        self.given_back: list[tuple[int, str]] = []
        """Token, and why it was refused."""
        self.prepared: list[tuple[int, str]] = []
        """Id of the hand-off, and why it was refused."""
        self.said: list[str] = []
        self.others: list = []
        self.stored = -1
        """The committed offset, as the coordinator has it."""

    def at(self, now_ms: int) -> None:
        """Carry out what is to be done by now."""
        while (action := self.core.next_action(now_ms)) is not None:
            match action:
                case Locate(held_partitions):
                    for held in held_partitions:
                        self.core.located(held, self.stored, max(self.stored, 0), "", now_ms)
                case StartHandler(call):
                    self.calls.append(call)
                case GiveBack(held, refused):
                    self.given_back.append((held.token, refused))
                case Ready(held, refused):
                    self.prepared.append((held.holding.handoff_id, refused))
                case Say(_, text):
                    self.said.append(text)
                case CancelRun() | StartDrain() | LeaveMember():
                    self.others.append(action)
                    if isinstance(action, StartDrain):
                        self.core.draining(now_ms, by_order=self.member.drains_by_order)

    def granted(self, token: int, now_ms: int) -> None:
        self.holding = Holding(P, token=token)
        self.receive(Granted((self.holding,)), now_ms)

    def warm(self, handoff_id: int, now_ms: int) -> None:
        self.receive(Warming((Holding(P, handoff_id=handoff_id),)), now_ms)

    def lost(self, now_ms: int) -> None:
        self.receive(Lost((self.holding,), "another has it"), now_ms)

    def receive(self, event: MemberEvent, now_ms: int) -> None:
        self.core.receive(event, now_ms)
        self.at(now_ms)

    def ended(self, kind: CallKind, now_ms: int, error: BaseException | None = None) -> None:
        """The oldest run of a kind has ended."""
        call = next(call for call in self.calls if call.kind is kind and not call.has_ended)
        self.core.ended(call, error, now_ms)
        self.at(now_ms)

    def running(self) -> list[tuple[str, int]]:
        """Kind and token of what has not ended."""
        return [(str(call.kind), call.held.token) for call in self.calls if not call.has_ended]


# --- A hook that raises ---


def test_a_warm_hook_that_raises_refuses_its_hand_off():
    worker = Worked(WARM)
    worker.warm(6, 0)
    assert worker.prepared == []
    worker.ended(WARM, 10, ValueError("no disk"))
    assert worker.prepared == [(6, "ValueError: no disk")]
    assert any("warm hook failed for t-0" in text for text in worker.said)
    worker.granted(9, 20)
    assert worker.running() == [("warm", 9)], "it is prepared again, under the token"


def test_a_warm_hook_that_raises_after_the_grant_is_called_again_under_the_token():
    worker = Worked(WARM)
    worker.warm(6, 0)
    worker.granted(9, 10)
    assert worker.running() == [("warm", 0)], "one run of a partition at a time"
    worker.ended(WARM, 20, ValueError("no disk"))
    assert worker.prepared == []
    assert worker.running() == [("warm", 9)]
    worker.ended(WARM, 30)
    assert worker.running() == [("handler", 9)]


def test_a_warm_hook_that_raises_again_and_again_under_the_token_refuses_the_partition():
    worker = Worked(WARM, max_attempts=2, retry_backoff_ms=100)
    worker.granted(9, 0)
    worker.ended(WARM, 10, ValueError("no disk"))
    worker.at(110)
    worker.ended(WARM, 120, ValueError("no disk"))
    assert worker.given_back == [(9, "ValueError: no disk")]


def test_a_drain_hook_that_raises_keeps_nothing_back():
    worker = Worked(DRAIN)
    worker.granted(9, 0)
    worker.receive(Revoking((worker.holding,), 30_000), 10)
    worker.ended(DRAIN, 20, ValueError("no disk"))
    assert worker.given_back == [], "its handler runs still"
    worker.ended(HANDLER, 30)
    assert worker.given_back == [(9, "")]
    assert any("drain hook failed for t-0" in text for text in worker.said)


def test_a_lost_hook_that_raises_keeps_nothing_back():
    worker = Worked(LOST)
    worker.granted(9, 0)
    worker.lost(10)
    assert worker.given_back == [], "its handler runs still"
    worker.ended(HANDLER, 20)
    assert worker.given_back == [(9, "")]
    worker.ended(LOST, 30, ValueError("no disk"))
    assert worker.given_back == [(9, "")]
    assert any("the lost of t-0 failed after its holding" in text for text in worker.said)


# --- What ends ---


@pytest.mark.parametrize(
    "event", [Lost((Holding(P, token=8),), "late"), Revoking((Holding(P),), 5)]
)
def test_an_event_of_a_former_holding_changes_nothing(event):
    worker = Worked()
    worker.granted(9, 0)
    worker.receive(event, 10)
    assert worker.running() == [("handler", 9)]
    (held,) = worker.core.held_partitions.values()
    assert not held.is_revoking


def test_a_lost_partition_is_given_back_though_its_handler_does_not_end():
    worker = Worked()
    worker.granted(9, 0)
    worker.lost(10)
    worker.at(1_009)
    assert worker.given_back == []
    worker.at(1_010)
    assert worker.given_back == [(9, "")]
    worker.granted(12, 1_020)
    assert worker.running() == [("handler", 9)], "the partition is blocked here"
    worker.ended(HANDLER, 5_000)
    assert worker.running() == [("handler", 12)]


def test_a_partition_that_is_granted_in_doubt_begins_when_the_lease_is_confirmed():
    worker = Worked()
    worker.member.begins = False
    worker.granted(9, 0)
    assert worker.running() == []
    worker.member.begins = True
    worker.at(10)
    assert worker.running() == [("handler", 9)]


def test_what_prepares_when_the_worker_stops_is_refused():
    worker = Worked(WARM)
    worker.warm(6, 0)
    worker.core.stop("SIGTERM", 20_000, 10)
    worker.at(10)
    assert worker.prepared == [(6, "the worker stops")]
    worker.warm(7, 20)
    assert worker.prepared == [(6, "the worker stops"), (7, "the worker stops")]


def test_a_second_stop_leaves_at_once():
    worker = Worked()
    worker.granted(9, 0)
    worker.core.stop("SIGTERM", 20_000, 10)
    worker.at(10)
    assert [other.within_ms for other in worker.others] == [19_990]
    worker.core.stop("SIGTERM", 20, 20)
    worker.at(20)
    assert worker.core.held_partitions == {}, "its handler was told to end"
    worker.ended(HANDLER, 30)
    assert isinstance(worker.others[-1], LeaveMember)


def test_a_stop_by_order_hands_over_by_itself_after_half_of_the_time():
    worker = Worked()
    worker.granted(9, 0)
    worker.core.stop("SIGTERM", 20_000, 0)
    worker.at(0)
    worker.at(9_999)
    (held,) = worker.core.held_partitions.values()
    assert not held.is_revoking, "the group asks for it"
    worker.at(10_000)
    assert (held.is_revoking, held.ends_ms) == (True, 19_000)


def test_a_stop_without_orders_hands_over_at_once():
    worker = Worked()
    worker.member.drains_by_order = False
    worker.granted(9, 0)
    worker.core.stop("SIGTERM", 20_000, 10)
    worker.at(10)
    (held,) = worker.core.held_partitions.values()
    assert (held.is_revoking, held.ends_ms) == (True, 20_000)


def test_an_idle_partition_is_given_back_by_a_stop_without_time():
    worker = Worked(LOST)
    worker.granted(9, 0)
    worker.ended(HANDLER, 10)
    worker.core.stop("SIGTERM", 20, 20)
    worker.at(20)
    assert worker.given_back == [(9, "")]
    assert worker.running() == [], "it was not lost"


def test_an_answer_for_one_hand_off_is_none_for_the_next():
    worker = Worked(WARM)
    worker.warm(6, 0)
    first = worker.calls[0]
    worker.core.ended(first, None, 10)  # Its answer is on its way, when the next one is ordered.
    worker.core.receive(Warming((Holding(P, handoff_id=7, position=70),)), 10)
    worker.at(10)
    assert worker.prepared == [(6, "")]
    worker.ended(WARM, 20)
    assert worker.prepared == [(6, ""), (7, "")]


# --- The settings of a worker ---


@pytest.mark.parametrize(
    ("settings", "decisions"),
    [
        ({}, ["retry"] * 4 + ["release"]),
        ({"max_failures": 2}, ["retry", "release"]),
        ({"max_attempts": 3, "max_failures": 2}, ["retry", "retry", "release"]),
        ({"after_max_attempts": "stop"}, ["retry"] * 4 + ["stop"]),
        ({"after_max_attempts": "stop", "max_failures": 1}, ["stop"]),
        ({"on_error": "stop"}, ["stop"]),
    ],
)
def test_after_the_last_attempt_a_worker_does_as_it_was_told(settings, decisions):
    worker = Worker("a:1", "g", {"t": 1}, protocol="session", **settings)
    worker.handler(nothing)
    policy = worker._handlers.of("t").policy
    numbers = range(1, len(decisions) + 1)
    assert [policy.decide(n, in_session_group=True) for n in numbers] == decisions


def test_a_worker_of_the_classic_protocol_stops_after_the_last_attempt():
    worker = Worker("a:1", "g", {"t": 1}, max_attempts=1)
    worker.handler(nothing)
    assert worker._handlers.of("t").policy.decide(1, in_session_group=False) == "stop"


def test_in_a_classic_group_attempts_have_no_limit_unless_one_is_set():
    worker = Worker("a:1", "g", {"t": 1})
    worker.handler(nothing)
    assert worker._handlers.of("t").policy.decide(1_000, in_session_group=False) == "retry"


# --- A committed offset that is lower than this process has committed ---


@pytest.mark.parametrize(
    ("stored", "message"), [(-1, "no offset"), (9, "offset 9"), (10, ""), (11, "")]
)
def test_a_committed_offset_below_what_was_committed_here_is_warned_of_once(stored, message):
    worker = Worked()
    worker.granted(1, 0)
    worker.core.committed(worker.calls[-1].held, 10, "", 5)
    for token in (2, 3):
        worker.lost(10 * token)
        worker.ended(HANDLER, 10 * token + 1)
        worker.stored = stored
        worker.granted(token, 10 * token + 2)
    warnings = [text for text in worker.said if "this process has committed 10" in text]
    assert len(warnings) == bool(message)
    assert all(f"the coordinator has {message} of" in text for text in warnings)
