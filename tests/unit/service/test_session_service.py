"""Streams of session members at a node, without sockets: who is let in, told, moved and cut off."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from coordinator.core.values.ids import ShardId
from coordinator.core.values.session_messages import GoAwayReason
from coordinator.runtime import slices
from coordinator.security import rules, tokens
from coordinator.security.authenticator import Authenticator
from coordinator.security.guard import Guard
from coordinator.security.tokens import line_for
from coordinator.service import calls as kinds
from coordinator.service.calls import Call, CallingPeer, Credential
from coordinator.service.grpc.session_service import FIRST_MESSAGE_S, SessionService
from coordinator.service.refusals import (
    CallRefused,
    Denied,
    Exhausted,
    GaveUp,
    UnauthenticatedCall,
)
from coordinator.storage.memory import MemoryLog
from coordinator.v1 import errors_pb2
from coordinator.v1 import session_pb2 as pb
from tests.kit import requests
from tests.kit.nodes import PipelineNode
from tests.unit.storage.memory_coordination import MemoryCoordination

pytestmark = pytest.mark.virtual_time
POLICY = pb.GroupPolicy(lease_ms=10_000, join_quiet_ms=0, initial_delay_ms=0)
RULES = """
[[rule]]
principal = "token:etl"
operations = ["join"]
groups = "a*"
"""
NO_RULES = ""
END = None


class StreamCall(Call):
    """A call whose messages name their group."""

    system = "plain"
    caller = groups = None  # Set by each call; properties of `Call`.

    def __init__(self, caller: CallingPeer) -> None:
        super().__init__(kinds.SESSION)
        self.caller, self.groups = caller, ()


class SessionNode(PipelineNode):
    """A node and its service of sessions."""

    def __init__(self, guard: Guard | None = None, **more):
        super().__init__(shards=1, on_pipeline={"guard": guard}, **more)
        self.service = SessionService(self.pipeline)
        self.streams: list[Stream] = []

    def open(self, token: str | None = None) -> Stream:
        stream = Stream(self, token)
        self.streams.append(stream)
        return stream

    async def attached(self, name: str, number: int = 1, **fields) -> Stream:
        stream = self.open()
        stream.attach(name, number, **fields)
        assert (await stream.next()).HasField("attached")
        return stream

    @property
    def runner(self):
        return self.node._runners[ShardId(0)]

    @property
    def group(self):
        return self.runner.shard.machine.groups["a"]


class Stream:
    """A member's end: `seen` is what it has read, `end` what ended the stream."""

    def __init__(self, node: SessionNode, token: str | None) -> None:
        self._node = node
        self._sent: asyncio.Queue = asyncio.Queue()
        self._read: asyncio.Queue = asyncio.Queue()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self.end: BaseException | None = None
        self.call = StreamCall(CallingPeer("peer", "/host", lambda: Credential(token)))
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        """Serve as gRPC does."""
        pipeline = self._node.pipeline
        try:
            await pipeline.admit(self.call)
            await self._node.service.Session(self, self.call)
        except CallRefused as refused:
            self.end = refused
        finally:
            self._read.put_nowait(END)

    async def read(self):
        """See `Conversation`."""
        if (message := await self._sent.get()) is END:
            return None
        group = [message.attach.group_id] if message.HasField("attach") else ["a"]
        self.call.groups = group
        await self._node.pipeline.admit_message(self.call)
        return message

    async def write(self, message) -> None:
        """See `Conversation`."""
        await self._may_read.wait()
        self._read.put_nowait(message)

    def say(self, message: pb.SessionRequest) -> None:
        self._sent.put_nowait(message)

    def attach(self, name: str, number: int = 1, *, group: str = "a", **fields) -> None:
        self.say(requests.attach(name, group, number, **{"wishes": POLICY, **fields}))

    def beat(self, number: int, **fields) -> None:
        self.say(pb.SessionRequest(heartbeat=pb.SessionHeartbeat(number=number, **fields)))

    def hang_up(self) -> None:
        self._sent.put_nowait(END)

    def stop_reading(self) -> None:
        self._may_read.clear()

    def read_on(self) -> None:
        self._may_read.set()

    async def next(self):
        async with asyncio.timeout(120):  # Virtual seconds.
            return await self._read.get()

    async def last(self):
        """The last message before the end of the stream."""
        message = None
        while (found := await self.next()) is not END:
            message = found
        await asyncio.wait([self.task])
        return message


@contextlib.asynccontextmanager
async def node(guard: Guard | None = None, **settings):
    async with SessionNode(guard, **settings).running() as server:
        yield server
        for stream in server.streams:
            stream.task.cancel()
    assert server.pipeline.quotas.streams == 0


def guard(text: str = RULES) -> Guard:
    known = Authenticator(tokens.parse(line_for("etl", "etl-secret")), clock=lambda: 0.0)
    return Guard(known, rules.parse(text))


# --- The first message ------------------------------------------------------------------------


async def test_a_stream_that_says_nothing_is_ended_after_ten_seconds():
    async with node() as d:
        silent, slow = d.open(), d.open()
        await asyncio.sleep(FIRST_MESSAGE_S - 0.1)
        slow.attach("w-a")
        assert (await slow.next()).HasField("attached")
        assert not silent.task.done()
        assert await silent.last() is None
        assert isinstance(silent.end, GaveUp)
        await asyncio.sleep(2)
        assert not slow.task.done()


async def test_a_stream_that_ends_before_its_first_message_is_malformed():
    async with node() as d:
        stream = d.open()
        stream.hang_up()
        assert (await stream.last()).refused.error_code == errors_pb2.INVALID_REQUEST


async def test_the_group_that_keeps_topics_has_no_members():
    async with node() as d:
        stream = d.open()
        stream.attach("w-a", group="__coordinator_topics")
        assert "reserved" in (await stream.last()).refused.error_message


# --- Who is let in ----------------------------------------------------------------------------


async def test_a_stream_without_a_token_or_a_right_is_ended_with_a_status():
    async with node(guard()) as d:
        stranger = d.open("wrong")
        await stranger.last()
        assert isinstance(stranger.end, UnauthenticatedCall)
        other = d.open("etl-secret")
        other.attach("w-a", group="b")
        await other.last()
        assert isinstance(other.end, Denied)
        assert not d.runner.shard.machine.groups
        one = d.open("etl-secret")
        one.attach("w-a")
        assert (await one.next()).attached.member_id
        [member] = d.group.members.values()
        assert member.record.principal == "token:etl"


async def test_a_stream_is_asked_again_when_rules_change():
    secured = guard()
    async with node(secured) as d:
        stream = d.open("etl-secret")
        stream.attach("w-a")
        await stream.next()
        stream.beat(1)
        await asyncio.sleep(1)
        secured.replace(rules=rules.parse(NO_RULES))
        stream.beat(2)
        await stream.last()
        assert isinstance(stream.end, Denied)
        [member] = d.group.members.values()
        assert (member.number, member.is_suspect) == (1, True)


async def test_limits_of_the_node_hold_for_newcomers_alone():
    async with node(max_members_per_host=1, max_groups=1, max_streams=3) as d:
        one = await d.attached("w-a")
        for name, group, setting in (("w-b", "a", "max_members_per_host"), ("w-a", "b", "max_gro")):
            stream = d.open()
            stream.attach(name, group=group)
            await stream.last()
            assert isinstance(stream.end, Exhausted)
            assert setting in str(stream.end)
        await d.attached("w-a", 2)
        assert (await one.last()).go_away.reason == pb.GoAway.SUPERSEDED


# --- Slow readers and streams that end ----------------------------------------------------------


async def test_a_stream_of_one_that_reads_nothing_is_let_go_when_it_has_to_end():
    async with node() as d:
        old = d.open()
        old.stop_reading()
        old.attach("w-a")
        await asyncio.sleep(1)
        await d.attached("w-a", 2)
        await asyncio.sleep(60)
        assert old.call.groups == ["a"]
        old.attach("w-a", 3, group="b")
        await asyncio.sleep(1)
        assert old.call.groups == ["a"], "it is not heard any more"
        assert len(d.runner._streams) == 0, "nor is the other one, whose lease has ended"
        old.read_on()
        seen = []
        while (message := await old.next()) is not END:
            seen.append(message.WhichOneof("message"))
        assert seen == ["attached", "go_away"]


async def test_a_member_whose_stream_is_refused_is_suspect_before_it_has_read_that():
    async with node() as d:
        stream = d.open()
        stream.attach("w-a")
        await stream.next()
        stream.stop_reading()
        stream.beat(1)
        await asyncio.sleep(1)
        stream.attach("w-a", 2)
        await asyncio.sleep(1)
        [member] = d.group.members.values()
        assert member.is_suspect


async def test_a_slow_reader_gets_the_newest_and_the_last_message():
    async with node() as d:
        old = d.open()
        old.attach("w-a")
        await old.next()
        old.stop_reading()
        for number in range(1, 9):
            old.beat(number)
            await asyncio.sleep(0.2)
        await d.attached("w-a", 2)
        await asyncio.sleep(1)
        old.read_on()
        seen = []
        while (message := await old.next()) is not END:
            seen.append(message.WhichOneof("message"))
        assert seen.count("heartbeat_ack") <= 2
        assert seen[-1] == "go_away"


async def test_nothing_is_left_of_streams_that_come_and_go():
    async with node() as d:
        for number in range(1, 30):
            stream = await d.attached(f"w-{number % 10}", number)  # More often is too often.
            if number % 3 == 0:
                stream.hang_up()
            elif number % 3 == 1:
                stream.task.cancel()
            await asyncio.sleep(0.01)
        await asyncio.sleep(20)
        assert not d.group.members, "nobody was heard for a lease"
        assert not d.runner._streams
        assert not d.runner._calls
        assert not d.runner.shard.streams()


async def test_a_client_that_goes_away_while_the_log_is_slow_leaves_a_suspect():
    log = MemoryLog()
    async with node(log=log) as d:
        append, may_append = log.append, asyncio.Event()

        async def held(fence, entry):
            await may_append.wait()
            await append(fence, entry)

        log.append = held
        stream = d.open()
        stream.attach("w-a")
        await asyncio.sleep(0.1)
        stream.task.cancel()
        await asyncio.sleep(0.1)
        may_append.set()
        await asyncio.sleep(0.1)
        [member] = d.group.members.values()
        assert member.is_suspect
        assert not d.runner._streams


# --- Nodes that go ------------------------------------------------------------------------------


async def test_a_shutdown_says_so():
    async with node() as d:
        stream = await d.attached("w-a")
        await d.node.stop()
        assert (await stream.last()).go_away.reason == pb.GoAway.SHUTTING_DOWN
        late = d.open()
        late.attach("w-a", 2)
        assert (await late.last()).refused.error_code == errors_pb2.NOT_COORDINATOR


async def test_members_of_a_shard_with_a_bug_are_sent_to_attach_again():
    async with node() as d:
        stream = await d.attached("w-a")
        d.runner.fail(ZeroDivisionError("a bug of ours"))
        last = (await stream.last()).go_away
        assert (last.reason, last.host) == (pb.GoAway.MOVED, "")
        early = d.open()
        early.attach("w-a", 2)
        assert (await early.last()).refused.error_code == errors_pb2.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(5)
        await d.attached("w-a", 3)
        assert len(d.group.members) == 1
        assert d.failures
        d.failures.clear()


async def test_a_bug_met_while_news_is_taken_ends_the_shard():
    async with node() as d:
        stream = await d.attached("w-a")
        shard = d.runner.shard
        shard.take = lambda *_: 1 / 0
        stream.beat(1)
        assert (await stream.last()).go_away.reason == pb.GoAway.MOVED
        assert d.runner.shard is not shard
        assert d.failures
        d.failures.clear()


class Pair:
    """Two nodes on one store, in one process."""

    def __init__(self) -> None:
        self.store, self.log = MemoryCoordination(), MemoryLog()
        self.nodes = {
            number: SessionNode(log=self.log, coordination=self.store, node_id=number, replicas=1)
            for number in (1, 2)
        }
        self.renewed = {1, 2}

    async def renew(self) -> None:
        """Keep the sessions of the nodes that are to live."""
        while True:
            now_s = asyncio.get_running_loop().time()
            for number, session in list(self.store._sessions.items()):
                if number in self.renewed:
                    session.renewed_at = now_s
            await asyncio.sleep(0.2)

    @property
    def leader(self) -> int:
        return self.nodes[1].node.coordinator_of("a").node_id


@pytest.fixture
async def pair():
    pair = Pair()
    renewing = asyncio.create_task(pair.renew())
    for number, node in pair.nodes.items():
        await node.node.start("host", 7_000 + number)
    await asyncio.sleep(30)
    yield pair
    for node in pair.nodes.values():
        for stream in node.streams:
            stream.task.cancel()
        await node.node.stop()
    renewing.cancel()


async def test_a_drained_node_sends_its_members_to_the_next_one(pair):
    old = pair.leader
    new = 3 - old
    stream = await pair.nodes[old].attached("w-a")
    elsewhere = pair.nodes[new].open()
    elsewhere.attach("w-b")
    refused = (await elsewhere.last()).refused
    assert refused.error_code == errors_pb2.NOT_COORDINATOR
    assert f"host:{7_000 + old}" in refused.error_message
    pair.nodes[old].node.cluster.drain()
    last = (await stream.last()).go_away
    assert (last.reason, last.host, last.port) == (pb.GoAway.MOVED, "host", 7_000 + new)
    assert pair.leader == new
    await asyncio.sleep(1)  # It loads the shard; members ask again meanwhile.
    again = await pair.nodes[new].attached("w-a", 2)
    assert not again.task.done()
    assert len(pair.nodes[new].group.members) == 1


async def test_a_node_whose_session_ends_acknowledges_nothing(pair):
    old = pair.leader
    stream = await pair.nodes[old].attached("w-a")
    pair.renewed.discard(old)
    acks = number = 0
    while not stream.task.done():
        number += 1
        stream.beat(number)
        await asyncio.sleep(0.1)
        acks += pair.nodes[old].node.may_answer()
        assert number < 1_000
    assert acks < number
    assert not pair.nodes[old].node.may_answer()
    seen = []
    while (message := await stream.next()) is not END:
        seen.append(message)
    assert seen[-1].go_away.reason == pb.GoAway.MOVED
    numbers = [item.heartbeat_ack.number for item in seen if item.HasField("heartbeat_ack")]
    assert len(numbers) <= acks + 1


def test_every_reason_to_go_has_its_word_in_the_contract():
    names = set(pb.GoAway.Reason.keys()) - {"REASON_UNSPECIFIED"}
    assert names == {reason.name for reason in GoAwayReason}


# --- Messages that name many partitions -----------------------------------------------------------


def claims(count: int) -> pb.SessionHeartbeat.Held:
    claimed = [pb.PartitionRange(last=count - 1, first_token=1)]
    return pb.SessionHeartbeat.Held(topics=[pb.HeldTopic(name="t", partitions=claimed)])


async def seconds_of(stream: Stream, **fields) -> float:
    """Time until the last of six heartbeats in a row is acknowledged."""
    began_s = asyncio.get_running_loop().time()
    for number in range(1, 7):
        stream.beat(number, **fields)
    while (await stream.next()).heartbeat_ack.number < 6:
        pass
    return asyncio.get_running_loop().time() - began_s


async def test_a_member_that_names_many_partitions_is_not_read_for_a_while():
    async with node() as d:
        small, large = await d.attached("w-a"), await d.attached("w-b")
        assert await seconds_of(small, held=claims(900)) < 0.1
        assert 5 * 0.09 < await seconds_of(large, held=claims(5_000)) < 5 * 0.2


async def test_no_rest_is_longer_than_the_interval_of_the_shortest_lease():
    async with node(group_min_lease_ms=2_000) as d:
        stream = await d.attached("w-a")
        assert 5 * 0.5 <= await seconds_of(stream, held=claims(100_000)) < 5 * 0.6


async def test_a_member_that_asks_for_a_large_state_again_and_again_is_not_read_for_a_while():
    async with node() as d:
        stream = await d.attached("w-a", topics=[pb.Attach.Topic(name="t", partitions=5_000)])
        await asyncio.sleep(1)
        began_s = asyncio.get_running_loop().time()
        for number in range(1, 7):
            stream.beat(number, whole=True)
            while (await stream.next()).orders.answers < number:
                pass
        assert 0.3 < asyncio.get_running_loop().time() - began_s < 1


async def test_a_message_that_takes_several_slices_waits_for_its_turns(monkeypatch):
    monkeypatch.setattr(slices, "SLICE_S", 0)
    async with node() as d:
        stream, turns = await d.attached("w-a"), 0
        take = d.pipeline.turns.take

        async def counted(caller: str, *args, **fields) -> None:
            nonlocal turns
            turns += 1
            await take(caller, *args, **fields)

        monkeypatch.setattr(d.pipeline.turns, "take", counted)
        await seconds_of(stream)
        assert turns <= 12, "a short message takes none, or one for each of its commands"
        before = turns
        ack = [{"topic": "t", "partition": n, "kind": "READY"} for n in range(5_000)]
        stream.say(pb.SessionRequest(ack=pb.SessionAck(partitions=ack)))
        stream.beat(7)
        while (await stream.next()).heartbeat_ack.number < 7:
            pass
        assert turns - before >= 5_000 // slices.PART
