"""One connection: what takes effect when, what is kept, what is closed, and what others notice."""

from __future__ import annotations

import asyncio
import struct

import pytest

from coordinator.core.values.events import MemberLeft, RebalanceStarted
from coordinator.kafka import apis
from coordinator.service.kafka import dispatch
from coordinator.service.kafka.connection import AT_ONCE, READ_AHEAD_BYTES
from coordinator.service.topics import TopicView
from tests.kit.kafka.messages import frame
from tests.unit.service.kafka_wire import HIGH_WATER, node
from tests.unit.service.test_kafka_apis import RULES, joined, joining, stable

pytestmark = pytest.mark.virtual_time
assert RULES


async def settle(rounds=50):
    for _ in range(rounds):
        await asyncio.sleep(0)


def beat_of(member, **more):
    return {
        "group_id": "g",
        "generation_id": member.generation_id,
        "member_id": member.member_id,
    } | more


async def parked(server):
    """A stable member, and a second one that waits for it in JoinGroup."""
    first, second = server.connect(port=1), server.connect(port=2)
    member = await stable(first)
    asked = await second.ask("JoinGroup", 9, **joining())
    second.send("JoinGroup", 9, **joining(member_id=asked.member_id))
    await settle()
    return first, member, second


def receive_until_paused(client, data) -> int:
    """Send until the server reads no more; return how many times."""
    for sent in range(10_000):
        if client.transport.is_paused:
            return sent
        client.receive(data)
    raise AssertionError("everything is read")


# --- One request at a time ---


async def test_pipelined_beats_are_answered_in_one_write_and_in_their_order():
    async with node() as server:
        client = server.connect()
        member = await stable(client)
        before = len(client.transport.writes)
        sent = [
            client.bytes_of(
                "Heartbeat", number % 5, **beat_of(member, generation_id=1 + number % 2)
            )
            for number in range(20)
        ]
        client.receive(b"".join(sent))
        assert len(client.transport.writes) == before + 1
        answers = client.answers()[-20:]
        assert [item for item, _ in answers] == [*range(answers[0][0], answers[0][0] + 20)]
        assert [int(answer.error_code) for _, answer in answers] == [0, 22] * 10
        assert server.pipeline.heartbeats == 20


async def test_an_idle_connection_has_no_task():
    async with node() as server:
        before = asyncio.all_tasks()
        client = server.connect()
        member = await stable(client)
        await client.ask("Heartbeat", 4, **beat_of(member))
        await settle()
        assert asyncio.all_tasks() == before


async def test_a_parked_join_holds_back_what_was_sent_behind_it():
    async with node() as server:
        first, member, second = await parked(server)
        answered = len(second.answers())
        second.send("ListGroups", 4)
        second.send("Heartbeat", 4, group_id="g", generation_id=1, member_id="x")
        second.send("LeaveGroup", 5, group_id="none", members=[])
        await settle()
        assert len(second.answers()) == answered
        # Another connection of the same client goes on.
        assert (await server.connect(port=3).ask("ListGroups", 4)).error_code == 0
        await first.ask("JoinGroup", 9, **joining(member_id=member.member_id))
        await settle()
        join, listed, beat, left = (answer for _, answer in second.answers()[answered:])
        assert (join.error_code, join.generation_id) == (0, 2)
        assert (listed.error_code, beat.error_code, left.error_code) == (0, 25, 0)


async def test_a_hang_up_takes_a_parked_join_back():
    async with node() as server:
        first, member, second = await parked(server)
        second.send("Heartbeat", 4, group_id="g", generation_id=1, member_id="x")
        second.hang_up()
        await settle()
        assert server.pipeline.quotas.parked == 0
        # The generation has the first member alone: nobody waits for the other.
        again = await first.ask("JoinGroup", 9, **joining(member_id=member.member_id))
        assert [each.member_id for each in again.members] == [member.member_id]
        assert server.listener.connections == 1


async def test_what_is_sent_ahead_is_kept_up_to_a_bound_and_then_not_read():
    async with node() as server:
        first, member, second = await parked(server)
        beat = {"group_id": "g", "generation_id": 1, "member_id": "x"}
        data = second.bytes_of("Heartbeat", 4, **beat)
        sent = receive_until_paused(second, data)
        assert READ_AHEAD_BYTES < sent * len(data) <= READ_AHEAD_BYTES + len(data)
        answered = len(second.answers())
        await first.ask("JoinGroup", 9, **joining(member_id=member.member_id))
        await settle(sent)
        assert not second.transport.is_paused
        assert [a.error_code for _, a in second.answers()[answered + 1 :]] == [25] * sent


async def test_many_beats_of_one_read_let_others_run_in_between():
    async with node() as server:
        client = server.connect()
        member = await stable(client)
        before, turns = len(client.answers()), []
        count = 4 * AT_ONCE + 1
        sent = [client.bytes_of("Heartbeat", 4, **beat_of(member)) for _ in range(count)]
        client.receive(b"".join(sent))
        while len(client.answers()) < before + count:
            turns.append(len(client.answers()) - before)
            await asyncio.sleep(0)
        assert turns == [AT_ONCE * n for n in range(1, 5)]


async def test_beats_that_come_faster_than_they_are_answered_are_not_read():
    async with node() as server:
        client = server.connect()
        member = await stable(client)
        before = len(client.answers())
        data = b"".join(
            client.bytes_of("Heartbeat", 4, **beat_of(member)) for _ in range(20 * AT_ONCE)
        )
        client.receive(data)
        assert len(data) > 2 * READ_AHEAD_BYTES
        assert client.transport.is_paused
        await settle()
        assert not client.transport.is_paused
        assert len(client.answers()) == before + 20 * AT_ONCE


async def test_the_rest_of_a_long_frame_is_read():
    async with node() as server:
        client = server.connect()
        name = "g" * 4 * READ_AHEAD_BYTES
        data = client.bytes_of("FindCoordinator", 4, coordinator_keys=[name], key_type=0)
        for begin in range(0, len(data), READ_AHEAD_BYTES):
            assert not client.transport.is_paused
            client.receive(data[begin : begin + READ_AHEAD_BYTES])
        await settle()
        assert len(client.answers()) == 1


# --- What a client owes ---


async def test_a_client_that_does_not_read_is_not_read_and_then_closed():
    async with node(kafka_request_timeout_ms=5_000) as server:
        client = server.connect()
        member = await stable(client)
        client.transport.is_read = False
        data = client.bytes_of("Heartbeat", 4, **beat_of(member))
        while client.transport.unread_bytes <= HIGH_WATER:
            client.receive(data * AT_ONCE)
        answered = server.pipeline.heartbeats
        receive_until_paused(client, data * AT_ONCE)
        await settle()
        assert server.pipeline.heartbeats == answered
        await asyncio.sleep(4)
        assert not client.is_closed
        await asyncio.sleep(3)
        assert client.is_closed
        assert server.malformed == [
            ("Frame", "10.0.0.1:5000", "it did not read its answers in time")
        ]


async def test_a_client_that_reads_late_is_answered():
    async with node(kafka_request_timeout_ms=5_000) as server:
        client = server.connect()
        member = await stable(client)
        client.transport.is_read = False
        data = client.bytes_of("Heartbeat", 4, **beat_of(member))
        sent = AT_ONCE * receive_until_paused(client, data * AT_ONCE)
        await asyncio.sleep(4)
        client.transport.read_all()
        await settle(2 * sent // AT_ONCE)
        assert server.pipeline.heartbeats == sent
        await asyncio.sleep(20)
        assert not client.is_closed
        assert not client.transport.is_paused


async def test_a_request_has_to_be_finished_in_time():
    async with node(kafka_request_timeout_ms=5_000) as server:
        slow, idle = server.connect(port=1), server.connect(port=2)
        data = slow.bytes_of("ListGroups", 4)
        for client in (slow, idle):
            await client.ask("ListGroups", 4)
        for byte in data[:6]:
            slow.receive(bytes([byte]))
            await asyncio.sleep(1)
        await asyncio.sleep(1)
        assert slow.is_closed
        assert not idle.is_closed
        assert server.malformed == [
            ("Frame", "10.0.0.1:1", "it did not finish its request in time")
        ]


async def test_each_request_has_its_own_time():
    async with node(kafka_request_timeout_ms=5_000) as server:
        client = server.connect()
        member = await stable(client)
        data = client.bytes_of("Heartbeat", 4, **beat_of(member))
        # Each read ends in the middle of a beat, for longer than one may take.
        client.receive(data[:10])
        for _ in range(10):
            await asyncio.sleep(2)
            client.receive(data[10:] + data[:10])
        assert not client.is_closed
        client.receive(data[10:])
        await asyncio.sleep(20)
        assert not client.is_closed
        assert server.pipeline.heartbeats == 11


async def test_time_spent_in_a_parked_call_is_not_the_client_s():
    async with node(kafka_request_timeout_ms=1_000) as server:
        _, _, second = await parked(server)
        second.receive(second.bytes_of("ListGroups", 4)[:9])
        await asyncio.sleep(5)
        assert not second.is_closed


async def test_a_connection_ends_though_its_client_never_reads_the_last_answers():
    async with node(kafka_request_timeout_ms=5_000) as server:
        client = server.connect()
        member = await stable(client)
        client.transport.is_read = False
        client.send("Heartbeat", 4, **beat_of(member))
        client.receive(struct.pack(">i", 5))
        await settle()
        assert client.is_closed
        assert server.listener.connections == 1
        await asyncio.sleep(7)
        assert server.listener.connections == 0


async def test_a_join_behind_many_beats_owes_nothing():
    async with node(kafka_request_timeout_ms=1_000) as server:
        _, member, _ = await parked(server)
        third = server.connect(port=3)
        beats = [third.bytes_of("Heartbeat", 4, **beat_of(member)) for _ in range(AT_ONCE - 1)]
        asked = await third.ask("JoinGroup", 9, **joining())
        join = third.bytes_of("JoinGroup", 9, **joining(member_id=asked.member_id))
        third.receive(beats[0][:7])
        third.receive(beats[0][7:] + b"".join(beats[1:]) + join)
        await asyncio.sleep(5)
        assert not third.is_closed


# --- What is refused ---


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (frame(struct.pack(">hhihi", 11, 5, 9, -1, 3)), "JoinGroup 5: it is shorter than its"),
        (frame(struct.pack(">hhih", 12, 4, 9, -1)), "it is shorter than its fields"),
        (frame(struct.pack(">hhihh", 16, 9, 9, -1, 0)), "API 16 in version 9 is not offered"),
        (frame(struct.pack(">hhih", 68, 0, 9, -1)), "API 68 in version 0 is not offered"),
        (frame(struct.pack(">hhih", 0, 9, 9, -1)), "API 0 in version 9 is not offered"),
        (frame(struct.pack(">hhih", -1, -1, 9, -1)), "API -1 in version -1 is not offered"),
        (frame(struct.pack(">hhih", 12, 5, 9, -1)), "API 12 in version 5 is not offered"),
        (frame(struct.pack(">hhih", 16, 0, 9, 7)), "the client id is longer than the frame"),
        (struct.pack(">i", 5), "a frame of 5 bytes; 8 to 4194304 are taken"),
        (struct.pack(">i", 2**31 - 1), "a frame of 2147483647 bytes; 8 to"),
        (b"GET / HTTP/1.1\r\n\r\n", "a frame of 1195725856 bytes; 8 to"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "a frame of 369295618 bytes; 8 to"),
    ],
)
async def test_what_is_no_request_closes_its_connection_with_one_line_and_nothing_else(data, why):
    async with node() as server:
        client, other = server.connect(port=1), server.connect(port=2)
        member = await stable(client)
        answered = len(client.answers())
        beat = client.bytes_of("Heartbeat", 4, **beat_of(member))
        client.receive(beat + data + beat)
        await settle()
        # The beat before it is answered, the one behind it is not.
        assert len(client.answers()) == answered + 1
        assert client.is_closed
        ((kind, peer, what),) = server.malformed
        assert (kind, peer) == ("Frame", "10.0.0.1:1")
        assert why in what
        assert (await other.ask("ListGroups", 4)).error_code == 0


async def test_a_frame_may_be_as_long_as_the_setting_says():
    async with node(kafka_max_frame_bytes=2_000) as server:
        client = server.connect()
        values = {"group_id": "g", "topics": [], "member_id": "m" * 1_900}
        assert len(client.bytes_of("OffsetCommit", 2, **values)) < 2_000
        await client.ask("OffsetCommit", 2, **values)
        client.send("OffsetCommit", 2, **values | {"member_id": "m" * 2_000})
        assert client.is_closed


async def test_a_bug_of_ours_ends_its_connection_and_is_reported(monkeypatch):
    async def fail(request):
        raise ZeroDivisionError("a bug")

    broken = dispatch.ApiHandler(fail)
    monkeypatch.setitem(dispatch.HANDLERS, apis.LIST_GROUPS, broken)
    async with node() as server:
        client, other = server.connect(port=1), server.connect(port=2)
        client.send("ListGroups", 4)
        await settle()
        assert client.is_closed
        ((_, error),) = server.failures
        assert isinstance(error, ZeroDivisionError)
        server.failures.clear()
        assert (await other.ask("FindCoordinator", 0, key="g")).error_code == 0


async def test_what_a_version_has_no_room_for_is_an_error_of_the_server():
    async with node(offset_metadata_max_bytes=100_000) as server:
        client = server.connect()
        partition = {
            "partition_index": 0,
            "committed_offset": 1,
            "committed_metadata": "m" * 40_000,
        }
        topics = [{"name": "t", "partitions": [partition]}]
        await client.ask("OffsetCommit", 9, group_id="g", topics=topics)
        asked = [{"name": "t", "partition_indexes": [0]}]
        answer = await client.ask("OffsetFetch", 5, group_id="g", topics=asked)
        assert answer.error_code == -1
        answer = await client.ask("OffsetFetch", 6, group_id="g", topics=asked)
        assert len(answer.topics[0].partitions[0].metadata) == 40_000
        (line,) = server.malformed
        assert "OffsetFetch 5 cannot say a text of 40000 bytes" in line[2]


# --- Connections ---


async def test_a_stopping_node_answers_parked_calls_with_16_and_closes():
    async with node() as server:
        first, _, second = await parked(server)
        idle = server.connect(port=3)
        server.listener.leave()
        await server.node.stop()
        await server.listener.stop(1.0)
        assert second.answers()[-1][1].error_code == 16
        assert all(client.is_closed for client in (first, second, idle))
        assert server.listener.connections == 0


async def test_stopping_waits_for_calls_and_not_for_ever():
    async with node() as server:
        first, _, second = await parked(server)
        idle = server.connect(port=3)
        stopping = asyncio.create_task(server.listener.stop(3.0))
        await settle()
        assert [c.is_closed for c in (first, second, idle)] == [True, False, True]
        began = asyncio.get_running_loop().time()
        await stopping
        assert asyncio.get_running_loop().time() - began == pytest.approx(3.0)
        assert second.is_closed


async def test_a_call_that_is_answered_while_the_listener_stops_reaches_its_client():
    async with node() as server:
        _, _, second = await parked(server)
        stopping = asyncio.create_task(server.listener.stop(60.0))
        await settle()
        # The first member's session ends, so the second one's join is answered.
        await stopping
        assert second.answers()[-1][1].error_code == 0
        assert [type(e) for e in server.events].count(RebalanceStarted) == 2
        assert MemberLeft not in [type(e) for e in server.events]


async def test_a_stopping_node_waits_for_no_topics():
    async with node() as server:
        client = server.connect()
        server.listener.context.topics.view = TopicView({}, is_complete=False)
        client.send("Metadata", 9, topics=[{"name": "unknown"}])
        await asyncio.sleep(1)
        assert client.answers() == []
        server.listener.leave()
        await asyncio.sleep(0.5)
        ((_, answer),) = client.answers()
        assert [topic.error_code for topic in answer.topics] == [5]


# --- Throttled, counted ---


async def test_a_throttle_time_is_in_the_answer(monkeypatch):
    async def throttled(request):
        request.call.throttle_ms = 250
        return {"error_code": 0}

    monkeypatch.setitem(dispatch.HANDLERS, apis.LIST_GROUPS, dispatch.ApiHandler(throttled))
    async with node() as server:
        answer = await server.connect().ask("ListGroups", 4)
        assert answer.throttle_time.total_seconds() == 0.25


async def test_calls_are_counted_and_measured_by_kind():
    async with node() as server:
        client = server.connect()
        await joined(client)
        await client.ask("Metadata", 12, topics=None)
        assert server.pipeline.calls["JoinGroup", "OK"] == 2
        assert server.pipeline.calls["Metadata", "OK"] == 1
        assert sum(server.pipeline.latencies["JoinGroup"].counts) == 2
