"""Commands through the pipeline, by no transport: what is let in, answered, refused and counted."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

import pytest

from coordinator.core.values import requests as c
from coordinator.core.values.errors import ErrorCode
from coordinator.runtime.slices import at_once
from coordinator.security import rules, tokens
from coordinator.security.authenticator import Authenticator
from coordinator.security.guard import Guard
from coordinator.security.tokens import line_for
from coordinator.service import calls as kinds
from coordinator.service.calls import Call
from coordinator.service.pipeline import ALIVE, TIMED_HEARTBEATS
from coordinator.service.refusals import (
    Denied,
    Exhausted,
    GaveUp,
    Malformed,
    UnauthenticatedCall,
)
from coordinator.service.validation.commands import REASON, CommandValidator
from coordinator.settings.sections import LimitsConfig
from tests.kit import commands
from tests.kit.nodes import KINDS, PipelineNode, PlainCall, caller, translated

pytestmark = pytest.mark.virtual_time
RULES = """
[[rule]]
principal = "token:etl"
operations = ["join", "commit", "read"]
groups = "a*"

[[rule]]
principal = "token:op"
operations = ["*"]
groups = "*"
"""


@dataclass
class Spans:
    """A tracer that remembers what it was told."""

    told: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def call(self, call: Call):
        self.told.append(f"{call.system} {call.kind.name} {call.group_id}")
        yield self

    def parked(self) -> None:
        self.told.append("parked")

    def answered(self, error: str) -> None:
        self.told.append(error)


class SpannedNode(PipelineNode):
    """A node whose calls are traced, and whose deletions are noted."""

    def __init__(self, guard: Guard | None = None, **settings) -> None:
        self.deleted: list[tuple[str, str, str, bool]] = []
        self.spans = Spans()
        told = lambda *what: self.deleted.append(what)  # noqa: E731
        on_pipeline = {"guard": guard, "tracer": self.spans, "on_deleted": told}
        super().__init__(shards=4, on_pipeline=on_pipeline, **settings)

    def join(self, group_id: str = "a", **more) -> c.JoinGroup:
        return commands.join(self.new(), group_id, **more)

    def commit(self, group_id: str = "a", *, offset: int = 7, topic: str = "t") -> c.CommitOffsets:
        return commands.commit(self.new(), offset, group_id, ((topic, 0),))

    def fetch(self, group_id: str = "a") -> c.FetchOffsets:
        return c.FetchOffsets(call_id=self.new(), group_id=group_id)


class Time:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def guard(time: Time | None = None) -> Guard:
    lines = [line_for(name, f"{name}-secret") for name in ("etl", "op", "nobody")]
    known = tokens.parse("\n".join(lines))
    return Guard(Authenticator(known, clock=time or Time()), rules.parse(RULES))


def node(*args, **settings):
    """A node that runs."""
    return SpannedNode(*args, **settings).running()


async def test_one_heartbeat_in_64_is_measured():
    async with node() as d:
        member_id = await d.member()
        for _ in range(2 * TIMED_HEARTBEATS + 1):
            d.pipeline.beat("a", member_id, None, 1)
        latency = d.pipeline.latencies["Heartbeat"]
        assert (sum(latency.counts), d.pipeline.heartbeats) == (2, 2 * TIMED_HEARTBEATS + 1)


async def test_one_batch_of_heartbeats_in_64_is_measured():
    async with node() as d:
        beats = [("a", await d.member(), None, 1)] * 3
        call = PlainCall(kinds.HEARTBEAT_BATCH, caller())
        for _ in range(TIMED_HEARTBEATS + 1):
            await d.pipeline.beats(call, beats, lambda beat: d.pipeline.beat(*beat))
        assert sum(d.pipeline.latencies["HeartbeatBatch"].counts) == 2


async def test_a_member_s_life():
    async with node() as d:
        member_id = await d.member()
        assert d.pipeline.beat("a", member_id, None, 1) is ALIVE
        assert d.pipeline.beat("a", member_id, None, 2).error is ErrorCode.ILLEGAL_GENERATION
        (committed,) = await d.ask(d.commit("b"))
        assert committed.results[0].error is ErrorCode.NONE
        (fetched,) = await d.ask(d.fetch("b"))
        assert fetched.offsets[0].offset == 7
        gone = tuple(c.LeavingMember(each) for each in (member_id, *map(str, range(249))))
        (left,) = await d.ask(c.LeaveGroup(call_id=d.new(), group_id="a", members=gone))
        assert [member.member_id for member in left.members] == [each.member_id for each in gone]
        assert left.members[0].error is ErrorCode.NONE
        assert d.pipeline.answered_calls() == {
            ("JoinGroup", "OK"): 1,
            ("SyncGroup", "OK"): 1,
            ("OffsetCommit", "OK"): 1,
            ("OffsetFetch", "OK"): 1,
            ("LeaveGroup", "OK"): 1,
            ("Heartbeat", "OK"): 2,
        }
        parked = ["parked", "NONE"]
        assert d.spans.told == [
            *("plain JoinGroup a", *parked, "plain SyncGroup a", *parked),
            *("plain OffsetCommit b", *parked, "plain OffsetFetch b", "NONE"),
            *("plain LeaveGroup a", "NONE"),
        ]


async def test_a_node_that_leads_no_shard_lists_no_groups():
    async with node(share="5/5") as d:
        (listed,) = await d.ask(c.ListGroups(call_id=d.new(), limit=4))
        assert (listed.error, listed.groups, listed.matching) == (ErrorCode.NONE, (), 0)


async def test_operators_ask_of_all_shards_and_of_each_group_once():
    async with node() as d:
        for number in range(9):
            await d.ask(d.commit(f"g{number}"))
        (listed,) = await d.ask(c.ListGroups(call_id=d.new(), limit=4))
        assert [group.group_id for group in listed.groups] == ["g0", "g1", "g2", "g3"]
        assert listed.matching == 9
        request = c.ListGroups(call_id=d.new(), skip=7, limit=1, order=c.ListOrder.LAG)
        (rest,) = await d.ask(request)
        assert ([group.group_id for group in rest.groups], rest.matching) == (["g7"], 9)
        described = await d.ask(
            *(c.DescribeGroup(call_id=d.new(), group_id=g) for g in ("g1", "g2", "g1"))
        )
        assert sorted(reply.group_id for reply in described) == ["g1", "g2"]
        await d.ask(*(c.DeleteGroup(call_id=d.new(), group_id=g) for g in ("g1", "none")))
        assert d.deleted == [("g1", "", "peer", True)]


async def test_a_deletion_whose_caller_goes_away_is_told(monkeypatch):
    async with node() as d:
        asked = asyncio.Event()

        async def never(requests, on_wait):
            asked.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(d.node, "ask", never)
        asking = asyncio.ensure_future(d.ask(c.DeleteGroup(call_id=d.new(), group_id="g")))
        await asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert d.deleted == [("g", "", "peer", False)]
        assert d.pipeline.quotas.parked == 0


async def test_who_does_not_say_who_it_is_is_not_answered():
    async with node(guard()) as d:
        for token in (None, "guess"):
            with pytest.raises(UnauthenticatedCall):
                await d.ask(d.join(), token=token)
        assert d.pipeline.calls == {("JoinGroup", "UNAUTHENTICATED"): 2}


async def test_a_caller_may_do_what_the_rules_say():
    async with node(guard()) as d:
        await d.member("a-1", token="etl-secret")
        for request, words in (
            (d.join("b"), "token:etl may not join on group 'b'"),
            (d.commit("b"), "may not commit"),
            (d.fetch("b"), "may not read or commit"),
            (
                c.DeleteGroup(call_id=d.new(), group_id="a-1"),
                (
                    "may not admin on group 'a-1', which DeleteGroups takes .none: denied by "
                    "default.: ask for a rule in auth_rules_file that allows it: "
                    'principal = "token:etl", operations = ."admin"., groups = "a-1"'
                ),
            ),
        ):
            with pytest.raises(Denied, match=words):
                await d.ask(request, token="etl-secret")
        assert d.pipeline.calls["JoinGroup", "PERMISSION_DENIED"] == 1
        await d.ask(d.commit("b"), token="op-secret")


async def test_a_call_cannot_ask_for_groups_that_it_does_not_name():
    async with node(guard()) as d:
        call = d.call(d.fetch("a"), token="etl-secret")
        with pytest.raises(AssertionError, match="names other groups"):
            await d.pipeline.answer(call, lambda _: translated([d.fetch("b")]))


async def test_hidden_groups_are_neither_shown_nor_counted_nor_in_the_way_of_a_limit():
    async with node(guard()) as d:
        for group in ("a-1", "a-2", "a-3", *(f"0-{n}" for n in range(20))):
            await d.ask(d.commit(group), token="op-secret")

        async def seen(token: str, limit: int = 0, skip: int = 0) -> tuple[list[str], int]:
            request = c.ListGroups(call_id=d.new(), limit=limit, skip=skip)
            (reply,) = await d.ask(request, token=token)
            return [group.group_id for group in reply.groups], reply.matching

        assert await seen("etl-secret") == (["a-1", "a-2", "a-3"], 3)
        assert await seen("etl-secret", 2) == (["a-1", "a-2"], 3)
        assert await seen("etl-secret", 2, 1) == (["a-2", "a-3"], 3)
        assert await seen("op-secret", 2) == (["0-0", "0-1"], 23)
        assert await seen("nobody-secret") == ([], 0)


async def test_who_calls_too_often_waits_and_is_then_refused():
    async with node(max_requests_per_second=2) as d:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(4):
            await d.ask(d.fetch())
        assert loop.time() - began >= 1.0
        results = await asyncio.gather(
            *(d.ask(d.fetch()) for _ in range(9)), return_exceptions=True
        )
        refused = [error for error in results if isinstance(error, Exhausted)]
        assert refused
        assert refused[0].retry_after_s > 0
        assert d.pipeline.calls["OffsetFetch", "RESOURCE_EXHAUSTED"] == len(refused)
        assert not d.pipeline.admits_all, "heartbeats are held back too"


async def test_a_transport_that_can_stop_to_listen_serves_at_once_and_pauses():
    class PausedCall(PlainCall):
        is_paid_later = True

        def pause(self, seconds):
            pauses.append(seconds)

    pauses: list[float] = []
    async with node(max_requests_per_second=2, group_min_session_timeout_ms=6_000) as d:
        await asyncio.sleep(10)
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(20):
            await d.pipeline.admit(PausedCall(kinds.OFFSET_FETCH, caller(), ["a"]))
        assert loop.time() == began
        assert pauses[:5] == pytest.approx([0.0, 0.0, 0.5, 1.0, 1.5])
        assert max(pauses) == 2.0, "no more than a third of the shortest session"


async def test_there_is_room_for_so_much():
    async with node(max_groups=1, max_parked_calls=1) as d:
        await d.ask(d.commit("a"))
        with pytest.raises(Exhausted, match="max_groups") as refused:
            await d.ask(d.commit("b"))
        assert refused.value.retry_after_s == 1
        with (
            d.pipeline.quotas.parking(None),
            pytest.raises(Exhausted, match="max_parked_calls"),
        ):
            await d.ask(d.join("a"))
        assert d.pipeline.calls["OffsetCommit", "RESOURCE_EXHAUSTED"] == 1


async def test_a_call_that_nobody_waits_for_is_not_served():
    async with node() as d:
        with pytest.raises(GaveUp):
            await d.ask(d.fetch(), remaining_s=lambda: 0.0)
        assert d.pipeline.calls == {("OffsetFetch", "DEADLINE_EXCEEDED"): 1}


async def test_a_rebalance_waits_for_members_that_have_their_ids():
    async with node() as d:
        sync = c.SyncGroup(call_id=d.new(), group_id="a", generation=1, member_id="m")
        assert d.call(sync).is_awaited
        assert d.call(d.join(member_id="m")).is_awaited
        assert not d.call(d.join()).is_awaited
        commit = c.CommitOffsets(call_id=d.new(), group_id="a", member_id="m", partitions=())
        assert not d.call(commit).is_awaited


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda d: d.join("a\0"), "group_id"),
        (lambda d: d.join("x" * 4_097), "group_id"),
        (lambda d: d.join(instance_id=""), "group_instance_id"),
        (lambda d: d.join(session_timeout_ms=-1), "session_timeout_ms"),
        (lambda d: d.join(protocols=(("", b""),)), "protocols[0].name"),
        (lambda d: d.join(protocols=(("p", b""),) * 2), "protocols[1].name"),
        (lambda d: d.join(protocols=((("p" * 256), b""),)), "protocols[0].name"),
        (lambda d: d.join(protocols=(("p", b""),) * 101), "protocols"),
        (lambda d: d.commit(offset=-1), "topics[0].partitions[0].committed_offset"),
        (lambda d: d.commit(topic="t" * 250), "topics[0].name"),
        (
            lambda d: c.FetchOffsets(call_id=d.new(), group_id="a", partitions=(("t", 0),) * 8),
            "topics.partitions",
        ),
        (
            lambda d: c.SyncGroup(
                call_id=d.new(), group_id="a", generation=1, member_id="m",
                assignments=(("m", b""), ("m", b"")),
            ),
            "assignments[1].member_id",
        ),
        (
            lambda d: c.LeaveGroup(
                call_id=d.new(), group_id="a",
                members=(c.LeavingMember("m"), c.LeavingMember("n", "")),
            ),
            "members[1].group_instance_id",
        ),
        (lambda d: c.ListGroups(call_id=d.new(), contains="x" * 4_097), "group_id_contains"),
        (lambda d: c.ListGroups(call_id=d.new(), states=("x" * 256,)), "states_filter[0]"),
        (lambda d: c.ListGroups(call_id=d.new(), types=("x",) * 101), "types_filter"),
        (lambda d: c.DescribeGroup(call_id=d.new(), group_id="x" * 4_097), "groups[0]"),
    ],
)  # fmt: skip
async def test_what_no_client_would_send_names_its_field(make, field):
    async with node(max_partitions_per_call=7) as d:
        with pytest.raises(Malformed) as refused:
            await d.ask(request := make(d))
        assert [violation.field for violation in refused.value.violations] == [field]
        name = KINDS[type(request)].name
        assert d.pipeline.calls == {(name, "INVALID_ARGUMENT"): 1}
        assert d.malformed == [(name, "peer", str(refused.value))]
        assert d.node.group_count() == 0


async def test_so_many_groups_may_be_named_in_one_call():
    async with node(max_groups_per_call=5) as d:
        named = [c.DeleteGroup(call_id=d.new(), group_id=f"{n}") for n in range(6)]
        with pytest.raises(Malformed, match="max_groups_per_call"):
            await d.ask(*named)


async def test_reasons_are_cut_whatever_the_transport():
    requests = (
        c.JoinGroup(call_id=1, group_id="a", session_timeout_ms=1, rebalance_timeout_ms=1,
                    member_id="", protocol_type="t", protocols=(), client_host="/h",
                    reason="r" * 300),
        c.LeaveGroup(call_id=2, group_id="a", members=(
            c.LeavingMember("m", None, "r" * 300), c.LeavingMember("n", None, "short"))),
    )  # fmt: skip
    join, leave = at_once(CommandValidator(LimitsConfig()).check(requests))
    assert join.reason == "r" * REASON
    assert [member.reason for member in leave.members] == ["r" * REASON, "short"]


async def test_ids_of_groups_that_no_command_names_are_held_to_their_length():
    async with node() as d:
        assert d.pipeline.find_coordinator("g" * 4_096).host == "h"
        with pytest.raises(Malformed) as refused:
            d.pipeline.find_coordinator("g" * 4_097)
        assert [violation.field for violation in refused.value.violations] == ["group_id"]
        call = PlainCall(kinds.WATCH_REBALANCES, caller(), ["a", "g" * 4_097])
        with pytest.raises(Malformed) as refused:
            await anext(d.pipeline.watch(call))
        assert [violation.field for violation in refused.value.violations] == ["group_ids[1]"]
        assert d.pipeline.quotas.streams == 0


async def test_a_heartbeat_that_makes_no_sense_is_malformed():
    async with node() as d:
        for beat in (("a", "m", "", 1), ("a", "m" * 4_097, None, 1), ("a" * 4_097, "m", None, 1)):
            with pytest.raises(Malformed):
                d.pipeline.beat(*beat)
        call = PlainCall(kinds.HEARTBEAT_BATCH, caller(), ["a", "a"])
        beats = [("a", "m", None, 1), ("a", "m", "", 1)]
        with pytest.raises(Malformed, match=r"heartbeats\[1\]\.group_instance_id"):
            await d.pipeline.beats(call, beats, lambda beat: d.pipeline.beat(*beat))
        assert d.pipeline.calls == {("HeartbeatBatch", "INVALID_ARGUMENT"): 1}


async def test_a_batch_of_heartbeats_has_as_many_answers():
    async with node(max_members_per_call=2) as d:
        member_id = await d.member()
        call = PlainCall(kinds.HEARTBEAT_BATCH, caller(), ["a", "a"])
        beats = [("a", member_id, None, 1), ("a", "stranger", None, 1)]
        replies = await d.pipeline.beats(call, beats, lambda beat: d.pipeline.beat(*beat))
        assert replies[0] is ALIVE
        assert replies[1].error is ErrorCode.UNKNOWN_MEMBER_ID
        assert (d.pipeline.heartbeats, d.pipeline.batched) == (2, 2)
        with pytest.raises(Malformed, match="max_members_per_call"):
            await d.pipeline.beats(call, beats * 2, lambda beat: d.pipeline.beat(*beat))


async def test_a_stream_ends_with_the_token_that_opened_it():
    time = Time()
    secured = guard(time)
    async with node(secured, max_streams=1) as d:
        call = PlainCall(kinds.SESSION, caller("etl-secret"), ())

        async def live() -> None:
            async with d.pipeline.streaming(call):
                second = PlainCall(kinds.SESSION, caller("etl-secret"), ())
                with pytest.raises(Exhausted, match="max_streams"):
                    await d.pipeline.streaming(second).__aenter__()
                for _ in range(3):
                    time.now_s += 200
                    await d.pipeline.admit_message(call.naming(["a-1"]))
                with pytest.raises(Denied):
                    await d.pipeline.admit_message(call.naming(["b"]))
                await d.pipeline.admit_message(call.naming(["a-1"]))
                secured.replace(authenticator=Authenticator(tokens.parse(""), clock=time))
                await d.pipeline.admit_message(call.naming(["a-1"]))

        with pytest.raises(UnauthenticatedCall):
            await live()
        assert d.pipeline.quotas.streams == 0
        assert d.pipeline.calls == {
            ("Session", "RESOURCE_EXHAUSTED"): 1,
            ("Session", "PERMISSION_DENIED"): 1,
            ("Session", "UNAUTHENTICATED"): 1,
        }


async def test_a_watcher_sees_the_rebalances_of_groups_that_it_may_read():
    secured = guard()
    async with node(secured) as d:
        watch = d.pipeline.watch(PlainCall(kinds.WATCH_REBALANCES, caller("etl-secret"), ()))
        first = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        for group in ("b-1", "a-1"):
            await d.member(group, token="op-secret")
        assert (await first).group_id == "a-1"
        second = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        secured.replace(authenticator=Authenticator(tokens.parse(line_for("op", "op-secret"))))
        await d.member("a-2", token="op-secret")
        with pytest.raises(UnauthenticatedCall):
            await second
        with pytest.raises(UnauthenticatedCall):
            await anext(
                d.pipeline.watch(PlainCall(kinds.WATCH_REBALANCES, caller("etl-secret"), ["b"]))
            )


async def test_who_may_not_read_a_group_may_not_watch_it():
    async with node(guard()) as d:
        with pytest.raises(Denied):
            await anext(
                d.pipeline.watch(PlainCall(kinds.WATCH_REBALANCES, caller("etl-secret"), ["b"]))
            )


async def test_expensive_calls_take_turns(monkeypatch):
    async with node() as d:
        taken: list[tuple[str, str, bool]] = []

        async def take(caller, kind, remaining_s, *, is_awaited):
            taken.append((caller, kind, is_awaited))

        monkeypatch.setattr(d.pipeline.turns, "take", take)
        await d.ask(d.join(member_id="m"))
        await d.ask(d.fetch())
        await d.ask(c.LeaveGroup(call_id=d.new(), group_id="a", members=()))
        assert taken == [("peer", "JoinGroup", True), ("peer", "OffsetFetch", False)]


async def test_a_kind_that_is_closed_is_open_to_nobody():
    async with node(guard()) as d:
        closed = PlainCall(kinds.Kind("New", is_closed=True), caller("op-secret"), where="/x/New")
        with pytest.raises(Denied, match="/x/New is open to nobody"):
            await d.pipeline.admit(closed)


async def test_an_open_kind_is_open_to_all():
    async with node(guard()) as d:
        await d.pipeline.admit(PlainCall(kinds.Kind("Check", is_open=True), caller()))
