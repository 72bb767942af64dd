"""Bounds of connections of Kafka clients: room, time, length, rate, sessions."""

from __future__ import annotations

import asyncio
import struct

import pytest

from coordinator.security import rules, tokens
from coordinator.security.authenticator import Authenticator
from coordinator.security.errors import Unauthenticated
from coordinator.security.guard import Guard
from coordinator.security.jwt import TokenClaims
from coordinator.security.tokens import line_for
from coordinator.service.kafka.buffers import FRAMES, FREE_BYTES
from coordinator.service.kafka.connection import LINGER_S, UNAUTHENTICATED_BYTES
from coordinator.service.kafka.listener import AWAY_MAX, LOG_EVERY_S, KafkaListener
from coordinator.service.kafka.traffic import NAMES_MAX, OTHER, UNNAMED, Traffic
from coordinator.settings.sections import KafkaConfig
from tests.kit.kafka.messages import frame
from tests.unit.service.kafka_wire import Client, FixedTopics, node

pytestmark = pytest.mark.virtual_time
NO_ROOM = 89
LIMIT_S = 30.0
SOFTWARE = {"client_software_name": "librdkafka", "client_software_version": "2.1"}
JOIN = {
    "group_id": "g", "session_timeout": 60_000, "rebalance_timeout": 60_000, "member_id": "",
    "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}],
}  # fmt: skip
RULES = '[[rule]]\nprincipal = "*"\noperations = ["*"]\ngroups = "*"\n'


class Keys:
    """A verifier of tokens `SUBJECT@EXPIRY`."""

    def __init__(self, clock) -> None:
        self._clock = clock

    def verify(self, token: str) -> TokenClaims:
        subject, at, expires_s = token.partition("@")
        if not at:
            raise Unauthenticated("the token is not known")
        claims = TokenClaims(subject, float(expires_s))
        if claims.until_s <= self._clock():
            raise Unauthenticated("the token has expired")
        return claims


class Listening:
    """A listener beside that of a node, with what it tells."""

    def __init__(self, server, *, guard=None, **settings) -> None:
        self.full: list[tuple[str, str]] = []
        self.listener = KafkaListener(
            server.pipeline,
            KafkaConfig(**settings),
            FixedTopics(server.node, {"t": 4}),
            guard=guard,
            on_failure=lambda *what: server.failures.append(what),
            on_full=lambda *notice: self.full.append(notice),
        )

    @property
    def ended(self) -> dict[str, int]:
        return {why: count for why, count in self.listener.stats().ended.items() if count}

    def connect(self, host: str = "10.0.0.1") -> Client:
        return Client(self.listener, host=host)

    async def greeted(self, host: str = "10.0.0.1") -> Client:
        client = self.connect(host)
        assert (await client.ask("ApiVersions", 3, **SOFTWARE)).api_keys
        return client


def guard(clock=lambda: 0.0) -> Guard:
    known = tokens.parse("\n".join(line_for(name, f"{name}-secret") for name in ("a", "b")))
    authenticator = Authenticator(known, Keys(clock), clock=clock)
    return Guard(authenticator, rules.parse(RULES))


async def told(client: Client) -> tuple[int, int]:
    """Code and number of APIs of an answer to ApiVersions in version 0."""
    client.send("ApiVersions", 3, **SOFTWARE)
    while not client.transport.writes:  # noqa: ASYNC110  # What it waits for sets no event.
        await asyncio.sleep(0.001)
    (data,) = client.transport.writes
    _, _, code, count = struct.unpack(">iihi", data)
    return code, count


# --- Limits ---


async def test_a_client_too_many_is_told_so_and_closed_and_others_are_served():
    async with node() as server:
        side = Listening(server, kafka_max_connections=2)
        served = [await side.greeted() for _ in range(2)]
        away = side.connect()
        assert await told(away) == (NO_ROOM, 0)
        away.send("ListGroups", 4)
        await asyncio.sleep(0.1)
        assert not away.is_closed, "some clients lose an answer that comes with the end"
        await asyncio.sleep(LINGER_S)
        assert away.is_closed
        assert len(away.transport.writes) == 1
        assert side.listener.connections == 2
        assert side.ended == {"too_many": 1}
        assert "kafka_max_connections" in side.full[0][1]
        for client in served:
            assert (await client.ask("ListGroups", 4)).error_code == 0
        served[0].hang_up()
        await asyncio.sleep(0.01)
        await side.greeted()


async def test_one_address_cannot_take_the_room_of_others():
    async with node() as server:
        side = Listening(server, kafka_max_connections_per_address=2)
        for _ in range(2):
            await side.greeted()
        assert (await told(side.connect()))[0] == NO_ROOM
        await side.greeted("10.0.0.2")
        assert side.ended == {"too_many_of_address": 1}
        assert "kafka_max_connections_per_address" in side.full[0][1]


async def test_without_memory_no_connection_is_taken():
    async with node(max_memory_mib=1) as server:
        side = Listening(server)
        first = await side.greeted()
        server.node.probe.memory_bytes = 2 * 2**20
        assert (await told(side.connect()))[0] == NO_ROOM
        assert side.ended == {"no_memory": 1}
        assert (await first.ask("ListGroups", 4)).error_code == 0


async def test_unfinished_frames_have_a_budget_and_the_one_of_longest_ends():
    async with node() as server:
        side = Listening(server, kafka_max_frame_bytes=1_000_000)
        small, clients = side.connect(), [side.connect() for _ in range(FRAMES + 2)]
        small.receive(struct.pack(">i", 900_000) + bytes(FREE_BYTES - 4))
        for client in clients:
            client.receive(struct.pack(">i", 1_000_000) + bytes(999_900))
        assert [client.is_closed for client in clients] == [True, True] + [False] * FRAMES
        assert not small.is_closed
        assert side.listener.buffers.bytes == FRAMES * 999_904
        assert side.ended == {"no_memory": 2}
        for client in clients[2:]:
            client.hang_up()
        await asyncio.sleep(0.01)
        assert side.listener.buffers.bytes == 0


async def test_a_frame_that_is_finished_frees_the_budget():
    async with node() as server:
        side = Listening(server)
        client = side.connect()
        names = [f"group-{number:0100}" for number in range(500)]
        data = client.bytes_of("DescribeGroups", 5, groups=names)
        client.receive(data[:30_000])
        assert side.listener.buffers.bytes == 30_000
        client.receive(data[30_000:])
        assert side.listener.buffers.bytes == 0
        client.receive(data)  # Kept until the call before it is answered.
        assert side.listener.buffers.bytes == len(data)
        await asyncio.sleep(1)
        assert side.listener.buffers.bytes == 0
        assert len(client.answers()) == 2


async def test_who_has_asked_nothing_yet_makes_way():
    async with node() as server:
        side = Listening(server, kafka_max_connections=3)
        kept = await side.greeted()
        silent = [side.connect(), side.connect()]
        await side.greeted()
        assert [member.is_closed for member in silent] == [True, False]
        await side.greeted()
        assert [member.is_closed for member in silent] == [True, True]
        assert not kept.is_closed
        assert (await told(side.connect()))[0] == NO_ROOM
        assert side.ended == {"too_slow": 2, "too_many": 1}


async def test_turning_away_is_bounded_and_its_lines_are_too():
    async with node() as server:
        side = Listening(server, kafka_max_connections=1)
        await side.greeted()
        away = [side.connect() for _ in range(AWAY_MAX + 10)]
        assert len(side.full) == 1
        assert sum(member.is_closed for member in away) == 10
        await asyncio.sleep(LIMIT_S + 2)
        assert all(member.is_closed for member in away)
        await asyncio.sleep(LOG_EVERY_S)
        side.connect()
        assert len(side.full) == 2


async def test_who_is_turned_away_is_answered_nothing_else():
    async with node() as server:
        side = Listening(server, kafka_max_connections=1)
        await side.greeted()
        for name, version, values in (
            ("Heartbeat", 4, {"group_id": "g", "member_id": "m", "generation_id": 1}),
            ("Metadata", 9, {"topics": None}),
        ):
            away = side.connect()
            away.send(name, version, **values)
            assert away.is_closed
            assert away.transport.writes == []


@pytest.mark.parametrize(
    ("settings", "code"),
    [({"max_groups": 1}, 81), ({"max_members_per_host": 1}, 81), ({"max_memory_mib": 1}, 15)],
)
async def test_a_join_for_which_there_is_no_room_is_told_so_in_a_code_that_clients_report(
    settings, code
):
    async with node(**settings) as server:
        side = Listening(server)
        member, other = side.connect(), side.connect()
        assert (await member.ask("JoinGroup", 3, **JOIN)).error_code == 0
        server.node.probe.memory_bytes = 2 * 2**20
        joined = await other.ask("JoinGroup", 3, **{**JOIN, "group_id": "h"})
        assert joined.error_code == code


# --- Time ---


async def test_who_says_nothing_is_closed_in_time():
    async with node() as server:
        side = Listening(server)
        silent, greeted = side.connect(), await side.greeted()
        beating = side.connect()
        beating.send("Heartbeat", 4, group_id="g", member_id="m", generation_id=1)
        await asyncio.sleep(LIMIT_S - 1)
        assert not silent.is_closed
        await asyncio.sleep(3)
        assert silent.is_closed
        assert not greeted.is_closed
        assert not beating.is_closed
        assert side.ended == {"too_slow": 1}
        assert "did not authenticate" in server.malformed[0][2]


async def test_who_owes_a_greeting_and_the_rest_of_it_is_closed_and_counted_once():
    async with node() as server:
        side = Listening(server)
        client = side.connect()
        client.receive(client.bytes_of("ApiVersions", 3, **SOFTWARE)[:20])
        await asyncio.sleep(LIMIT_S + 2)
        assert client.is_closed
        assert side.ended == {"too_slow": 1}
        assert len(server.malformed) == 1


async def test_who_does_not_authenticate_is_closed_in_time_whatever_it_asks():
    secured = guard()
    async with node(guard=secured) as server:
        side = Listening(server, guard=secured)
        client = side.connect()
        for _ in range(int(LIMIT_S) + 3):
            if client.is_closed:
                break
            assert (await client.ask("ApiVersions", 3, **SOFTWARE)).api_keys
            await asyncio.sleep(1)
        assert client.is_closed
        assert side.ended == {"too_slow": 1}


async def test_a_request_that_parks_has_its_time():
    async with node() as server:
        side = Listening(server)
        leader = side.connect()
        joined = await leader.ask("JoinGroup", 3, **JOIN)
        client = side.connect()
        data = client.bytes_of("JoinGroup", 3, **JOIN)
        client.receive(data[:20])
        await asyncio.sleep(LIMIT_S / 2)
        client.receive(data[20:])
        me = {"group_id": "g", "member_id": joined.member_id, "generation_id": 1}
        for _ in range(20):
            await leader.ask("Heartbeat", 3, **me)
            await asyncio.sleep(2)
        assert not client.is_closed, "it is the other member that is waited for"


async def test_a_connection_at_rest_is_closed_and_one_that_beats_is_not():
    async with node() as server:
        side = Listening(server, kafka_idle_timeout_ms=60_000, kafka_listen="127.0.0.1:0")
        side.listener.sweep()
        idle, beating = await side.greeted(), await side.greeted()
        for _ in range(40):
            beating.send("Heartbeat", 4, group_id="g", member_id="m", generation_id=1)
            await asyncio.sleep(3)
        assert idle.is_closed
        assert not beating.is_closed
        assert side.ended == {"idle": 1}
        await side.listener.stop(1.0)


# --- Authentication ---


async def plain(client: Client, name: str) -> None:
    await client.ask("SaslHandshake", 1, mechanism="PLAIN")
    told = await client.ask("SaslAuthenticate", 2, auth_bytes=f"\0me\0{name}-secret".encode())
    assert told.error_code == 0


async def test_frames_are_short_before_authentication_and_long_after():
    secured = guard()
    async with node(guard=secured) as server:
        side = Listening(server, guard=secured)
        client = side.connect()
        client.receive(struct.pack(">i", UNAUTHENTICATED_BYTES + 1))
        assert client.is_closed
        client = side.connect()
        await plain(client, "a")
        names = [f"group-{number:0100}" for number in range(500)]
        described = await client.ask("DescribeGroups", 5, groups=names)
        assert len(described.groups) == 500


async def test_a_session_lasts_as_long_as_its_token():
    now_s = [1_000.0]
    secured = guard(lambda: now_s[0])
    async with node(guard=secured) as server:
        side = Listening(server, guard=secured)
        client = side.connect()

        async def authenticate(token: str):
            await client.ask("SaslHandshake", 1, mechanism="OAUTHBEARER")
            message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
            return await client.ask("SaslAuthenticate", 2, auth_bytes=message)

        told = await authenticate("alice@1100")
        assert told.error_code == 0
        assert told.session_lifetime.total_seconds() == 100
        assert (await client.ask("ListGroups", 4)).error_code == 0
        now_s[0] = 1_090.0
        assert (await authenticate("alice@1200")).error_code == 0
        now_s[0] = 1_150.0
        assert (await client.ask("ListGroups", 4)).error_code == 0
        now_s[0] = 1_300.0
        client.send("ListGroups", 4)
        await asyncio.sleep(0.1)
        assert client.is_closed
        assert side.ended == {"not_authenticated": 1}


async def test_who_fails_to_authenticate_is_told_why_and_closed():
    secured = guard()
    async with node(guard=secured) as server:
        side = Listening(server, guard=secured)
        client = side.connect()
        await client.ask("SaslHandshake", 1, mechanism="PLAIN")
        client.send("SaslAuthenticate", 2, auth_bytes=b"\0me\0wrong")
        client.send("ListGroups", 4)  # Sent behind it, and never answered.
        await asyncio.sleep(1)
        ((_, _), (_, answers)) = client.answers()
        assert (int(answers.error_code), "not known" in answers.error_message) == (58, True)
        assert client.is_closed


@pytest.mark.parametrize("name", ["ListGroups", "Heartbeat"])
async def test_only_versions_are_told_before_authentication(name):
    secured = guard()
    async with node(guard=secured) as server:
        client = Listening(server, guard=secured).connect()
        assert (await client.ask("ApiVersions", 0)).error_code == 0
        client.send(name, 4)
        assert client.is_closed
        assert server.malformed[-1][2] == f"{name} before authentication"


@pytest.mark.parametrize("is_right", [True, False])
async def test_a_bare_token_is_a_frame_without_a_header(is_right):
    secured = guard()
    async with node(guard=secured) as server:
        client = Listening(server, guard=secured).connect()
        await client.ask("SaslHandshake", 0, mechanism="PLAIN")
        client.transport.writes.clear()
        token = b"\0me\0" + (b"a-secret" if is_right else b"wrong")
        client.receive(frame(token) + client.bytes_of("ListGroups", 4))
        await asyncio.sleep(1)
        if is_right:  # An empty frame is the answer that a client takes for success.
            assert client.transport.writes.pop(0) == frame(b"")
        assert [answer.error_code for _, answer in client.answers()] == [0] * is_right
        assert client.is_closed is not is_right


async def test_beats_are_authorised_where_there_are_rules():
    secured = guard()
    secured.replace(rules=rules.parse(RULES.replace('groups = "*"', 'groups = "a"')))
    async with node(guard=secured) as server:
        client = Listening(server, guard=secured).connect()
        await plain(client, "a")
        beat = {"generation_id": 1, "member_id": "m"}
        assert (await client.ask("Heartbeat", 4, group_id="b", **beat)).error_code == 30
        assert server.pipeline.heartbeats == 0
        assert (await client.ask("Heartbeat", 4, group_id="a", **beat)).error_code == 25


async def test_a_token_of_no_length_or_of_any_is_told_a_lifetime_that_clients_can_count():
    secured = guard(lambda: 1_000.0)
    async with node(guard=secured) as server:
        for expires_s, lifetime_s in ((2.0**53, 365 * 86_400), (999.0, 0.001), (1_000.0, 0.001)):
            client = Listening(server, guard=secured).connect()
            await client.ask("SaslHandshake", 1, mechanism="OAUTHBEARER")
            message = f"n,,\x01auth=Bearer a@{expires_s}\x01\x01".encode()
            told = await client.ask("SaslAuthenticate", 2, auth_bytes=message)
            assert told.session_lifetime.total_seconds() == lifetime_s


# --- Throttle ---


async def test_a_caller_that_calls_too_often_is_answered_at_once_and_then_not_heard():
    async with node(max_requests_per_second=2) as server:
        side = Listening(server)
        await asyncio.sleep(10)
        client = side.connect()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        times = [(await client.ask("ListGroups", 4)).throttle_time for _ in range(3)]
        pauses = [time.total_seconds() for time in times]
        assert pauses == pytest.approx([0, 0, 0.5], abs=0.01)
        assert loop.time() - began_s < 0.1, "answered at once"
        await client.ask("ListGroups", 4)
        assert loop.time() - began_s >= pauses[-1], "it was not heard meanwhile"


async def test_no_pause_is_so_long_that_a_session_ends():
    async with node(max_requests_per_second=1, group_min_session_timeout_ms=6_000) as server:
        side = Listening(server)
        clients = [side.connect() for _ in range(20)]
        pauses = [
            (await client.ask("ListGroups", 4)).throttle_time.total_seconds() for client in clients
        ]
        assert max(pauses) == 2.0


# --- Counts ---


async def test_requests_are_counted_by_api_and_library():
    async with node() as server:
        side = Listening(server)
        client, unnamed = await side.greeted(), side.connect()
        await client.ask("ListGroups", 4)
        for each in (client, unnamed):
            each.send("Heartbeat", 4, group_id="g", member_id="m", generation_id=1)
        stats = side.listener.stats()
        assert stats.connections == {"librdkafka": 1, "unnamed": 1}
        assert stats.requests == {
            ("ApiVersions", "unnamed"): 1,
            ("ListGroups", "librdkafka"): 1,
            ("Heartbeat", "librdkafka"): 1,
            ("Heartbeat", "unnamed"): 1,
        }
        client.hang_up()
        await asyncio.sleep(0.01)
        assert side.listener.stats().connections == {"librdkafka": 0, "unnamed": 1}


def test_names_of_libraries_are_bounded():
    traffic = Traffic()
    for number in range(1_000):
        traffic.tally(f"library-{number}").connections += 1
    connections = traffic.connections()
    assert len(connections) == NAMES_MAX + 2
    assert connections[OTHER] == 1_000 - NAMES_MAX
    assert traffic.tally("") is traffic.tally(UNNAMED)
