"""Every version of the APIs of groups, offsets and administration, and how versions differ."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from coordinator.core.values.events import MemberLeft, RebalanceJournaled
from coordinator.core.values.ids import TOPICS_GROUP
from coordinator.kafka import apis
from coordinator.kafka.apis import API_VERSIONS, APIS
from coordinator.observe.explain import explain
from coordinator.security import rules
from coordinator.security.authenticator import Authenticator
from coordinator.security.errors import KeysUnavailable
from coordinator.security.guard import Guard
from coordinator.service import calls
from coordinator.service.calls import Credential
from coordinator.service.grpc.translate import response_of, translation
from coordinator.service.kafka import dispatch
from coordinator.service.kafka.calls import KafkaCall
from coordinator.storage.memory import MemoryLog
from coordinator.v1 import admin_pb2 as admin
from tests.unit.service.kafka_wire import node

pytestmark = pytest.mark.virtual_time
RANGE = [{"name": "range", "metadata": b"\0\1\0"}]
NAMED = {"protocol_type": "consumer", "protocol_name": "range"}
"""Type and name of the protocol, as a SyncGroup 5 has to say them."""
NO_OPERATIONS = -(2**31)


def versions(api):
    return pytest.mark.parametrize("version", range(api.low, api.high + 1))


def joining(group="g", member_id="", **more):
    return {
        "group_id": group,
        "session_timeout": 10_000,
        "rebalance_timeout": 20_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": RANGE,
    } | more


async def joined(client, version=9, **more):
    """Join a group with an id of its own."""
    first = await client.ask("JoinGroup", version, **joining(**more))
    if first.error_code != 79:
        return first
    return await client.ask("JoinGroup", version, **joining(**more, member_id=first.member_id))


async def stable(client, version=9, group="g", **more):
    """Join and sync as the only member; the answer to the join."""
    member = await joined(client, version, group=group, **more)
    assert member.error_code == 0
    synced = await client.ask(
        "SyncGroup",
        min(version, 5),
        group_id=group,
        generation_id=member.generation_id,
        member_id=member.member_id,
        assignments=[{"member_id": member.member_id, "assignment": b"mine"}],
        **NAMED,
    )
    assert (synced.error_code, synced.assignment) == (0, b"mine")
    return member


def committing(member, group="g", topics=None):
    return {
        "group_id": group,
        "generation_id_or_member_epoch": member.generation_id,
        "member_id": member.member_id,
        "topics": topics or [topic("t", (0, 5))],
    }


def topic(name, *offsets):
    return {
        "name": name,
        "partitions": [
            {"partition_index": p, "committed_offset": o, "committed_metadata": "m"}
            for p, o in offsets
        ],
    }


def codes(answer):
    return {
        (t.name, p.partition_index): int(p.error_code) for t in answer.topics for p in t.partitions
    }


# --- What is offered ---


def test_every_line_of_the_table_of_handlers_is_in_the_table_of_apis():
    assert set(dispatch.HANDLERS) <= set(APIS.values())


@versions(API_VERSIONS)
async def test_api_versions_lists_what_is_served(version):
    async with node() as server:
        client = server.connect()
        answer = await client.ask(
            "ApiVersions", version, client_software_name="lib", client_software_version="1.2"
        )
        found = [(a.api_key, a.min_version, a.max_version) for a in answer.api_keys]
        assert found == sorted((api.key, api.low, api.high) for api in dispatch.HANDLERS)
        assert answer.error_code == 0
        software = client.connection.software
        assert (software.name, software.version) == (("lib", "1.2") if version >= 3 else ("", ""))


@pytest.mark.parametrize("version", [5, 200, -1])
async def test_an_unknown_version_of_api_versions_is_answered_in_version_0(version):
    async with node() as server:
        client = server.connect()
        client.sent[9] = (API_VERSIONS, 0)
        key = API_VERSIONS.key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True)
        client.receive(b"\0\0\0\x0a" + key + b"\0\0\0\x09" + b"??")
        answer = await client.ask("ApiVersions", 0)
        (_, first), _ = client.answers()
        assert (first.error_code, first.api_keys) == (35, answer.api_keys)
        assert not client.is_closed


@pytest.mark.parametrize(
    ("name", "number"), [("", "1"), ("a b", "1"), ("lib", "-"), ("\u20ac", "1")]
)
async def test_a_strange_name_of_a_library_is_refused_as_kafka_does(name, number):
    async with node() as server:
        client = server.connect()
        answer = await client.ask(
            "ApiVersions", 3, client_software_name=name, client_software_version=number
        )
        assert (answer.error_code, answer.api_keys) == (42, ())
        assert client.connection.software.name == ""


# --- The life of a member, in every version ---


@versions(apis.JOIN_GROUP)
async def test_a_member_joins_syncs_beats_and_leaves(version):
    async with node() as server:
        client = server.connect()
        member = await stable(client, version)
        assert (member.generation_id, member.protocol_name) == (1, "range")
        assert member.leader == member.member_id
        assert [each.member_id for each in member.members] == [member.member_id]
        assert member.member_id.startswith("client-")
        beat = {"group_id": "g", "generation_id": 1, "member_id": member.member_id}
        for each in range(apis.HEARTBEAT.high + 1):
            assert (await client.ask("Heartbeat", each, **beat)).error_code == 0
        leaving = {"group_id": "g", "member_id": member.member_id}
        left = await client.ask("LeaveGroup", min(version, 2), **leaving)
        assert left.error_code == 0
        assert (await client.ask("Heartbeat", 4, **beat)).error_code == 25
        assert [type(e) for e in server.events].count(MemberLeft) == 1


@versions(apis.JOIN_GROUP)
async def test_a_member_without_an_id_has_to_come_back_from_version_4(version):
    async with node() as server:
        answer = await server.connect().ask("JoinGroup", version, **joining())
        assert answer.error_code == (79 if version >= 4 else 0)
        assert answer.member_id
        if version >= 4:
            assert answer.protocol_name == (None if version >= 7 else "")
            assert answer.generation_id == -1


@versions(apis.JOIN_GROUP)
async def test_an_error_names_no_protocol(version):
    async with node() as server:
        client = server.connect()
        for wrong, code in (
            ({"session_timeout": 1}, 26),
            ({"session_timeout": -1}, 26),
            ({"session_timeout": -(2**31)}, 26),
            ({"group": ""}, 24),
            ({"protocols": []}, 23),
            ({"member_id": "x"}, 25),
            ({"protocol_type": "p" * 300}, 42),
        ):
            answer = await client.ask("JoinGroup", version, **joining(**wrong))
            assert (answer.error_code, answer.member_id) == (code, wrong.get("member_id", ""))
            assert answer.protocol_name == (None if version >= 7 else "")
            assert answer.members == ()


@pytest.mark.parametrize(("version", "seconds"), [(0, 10), (1, 20)])
async def test_version_0_has_its_session_time_out_as_rebalance_time_out(version, seconds):
    async with node() as server:
        first, second = server.connect(), server.connect(port=2)
        member = await stable(first, version)
        began = asyncio.get_running_loop().time()
        second.send("JoinGroup", 0, **joining())
        # The first one beats, so that its session goes on, and does not join again.
        while not second.answers():
            beat = {"group_id": "g", "generation_id": 1, "member_id": member.member_id}
            await first.ask("Heartbeat", 0, **beat)
            await asyncio.sleep(0.5)
        assert round(asyncio.get_running_loop().time() - began) == seconds


@versions(apis.JOIN_GROUP)
async def test_a_protocol_that_is_listed_twice_counts_once_as_in_kafka(version):
    async with node() as server:
        protocols = [
            *RANGE,
            {"name": "sticky", "metadata": b"s"},
            {"name": "range", "metadata": b"?"},
        ]
        member = await joined(server.connect(), version, protocols=protocols)
        assert member.protocol_name == "range"
        assert [each.metadata for each in member.members] == [b"\0\1\0"]


@pytest.mark.parametrize("version", range(5, 10))
async def test_static_members_have_their_instance_id(version):
    async with node() as server:
        member = await joined(server.connect(), version, group_instance_id="i-1")
        assert member.error_code == 0
        assert [each.group_instance_id for each in member.members] == ["i-1"]


@pytest.mark.parametrize(("version", "is_told"), [(8, False), (9, True)])
async def test_a_leader_that_comes_back_is_told_to_assign_nothing_from_version_9(version, is_told):
    async with node() as server:
        first = await stable(server.connect(), version, group_instance_id="i")
        again = await server.connect(port=2).ask(
            "JoinGroup", version, **joining(group_instance_id="i")
        )
        assert (again.error_code, again.generation_id) == (0, first.generation_id)
        assert getattr(again, "skip_assignment", False) is is_told
        assert (again.leader == again.member_id) is is_told


@versions(apis.SYNC_GROUP)
async def test_a_sync_of_another_generation_is_refused(version):
    async with node() as server:
        client = server.connect()
        member = await stable(client)
        values = {"group_id": "g", "generation_id": 9, "member_id": member.member_id, **NAMED}
        assert (await client.ask("SyncGroup", version, **values)).error_code == 22
        values |= {"generation_id": 1, "protocol_type": "other", "protocol_name": "range"}
        answer = await client.ask("SyncGroup", version, **values)
        assert answer.error_code == (23 if version >= 5 else 0)
        if version >= 5:
            assert (answer.protocol_type, answer.protocol_name) == (None, None)


@versions(apis.SYNC_GROUP)
@pytest.mark.parametrize("unnamed", [["protocol_type"], ["protocol_name"], [*NAMED]])
async def test_a_sync_has_to_name_its_protocol_from_version_5(version, unnamed):
    async with node() as server:
        client = server.connect()
        member = await stable(client)
        values = {"group_id": "g", "generation_id": 1, "member_id": member.member_id, **NAMED}
        values |= dict.fromkeys(unnamed)
        answer = await client.ask("SyncGroup", version, **values)
        assert answer.error_code == (23 if version >= 5 else 0)
        assert answer.assignment == (b"" if version >= 5 else b"mine")
        # It is said before the group is looked at.
        answer = await client.ask("SyncGroup", version, **values | {"group_id": ""})
        assert answer.error_code == (23 if version >= 5 else 24)
        # Both count as answered, besides the one of `stable`.
        assert server.pipeline.calls["SyncGroup", "OK"] == 3


async def test_of_two_assignments_of_one_member_the_last_counts_as_in_kafka():
    async with node() as server:
        client = server.connect()
        it_is = await joined(client)
        assignments = [
            {"member_id": it_is.member_id, "assignment": each} for each in (b"first", b"last")
        ]
        answer = await client.ask(
            "SyncGroup",
            5,
            group_id="g",
            generation_id=1,
            member_id=it_is.member_id,
            assignments=assignments,
            **NAMED,
        )
        assert (answer.error_code, answer.assignment) == (0, b"last")


@versions(apis.HEARTBEAT)
async def test_beats_are_refused_with_codes_of_kafka(version):
    async with node() as server:
        client = server.connect()
        member = await stable(client)
        beat = {"group_id": "g", "generation_id": 1, "member_id": member.member_id}
        for wrong, code in (
            ({"generation_id": 7}, 22),
            ({"member_id": "x"}, 25),
            ({"group_id": ""}, 24),
            ({"group_id": "none"}, 25),
            ({"group_id": "g" * 5_000}, 42),
        ):
            assert (await client.ask("Heartbeat", version, **beat | wrong)).error_code == code
        assert server.pipeline.calls["Heartbeat", "INVALID_ARGUMENT"] == 1
        if version >= 3:
            answer = await client.ask("Heartbeat", version, **beat, group_instance_id="")
            assert answer.error_code == 42


@versions(apis.LEAVE_GROUP)
async def test_whoever_leaves_has_an_error_of_its_own_from_version_3(version):
    async with node() as server:
        client = server.connect()
        member = await stable(client)
        ids = [member.member_id, "x"]
        if version < 3:
            codes = [
                (await client.ask("LeaveGroup", version, group_id="g", member_id=each)).error_code
                for each in ids
            ]
            assert codes == [0, 25]
        else:
            members = [
                {"member_id": each, "group_instance_id": None, "reason": "r"} for each in ids
            ]
            answer = await client.ask("LeaveGroup", version, group_id="g", members=members)
            assert answer.error_code == 0
            codes = [(each.member_id, each.error_code) for each in answer.members]
            assert codes == [(member.member_id, 0), ("x", 25)]


@versions(apis.LEAVE_GROUP)
async def test_leaving_no_group_is_an_error_of_the_member(version):
    async with node() as server:
        client = server.connect()
        members = [{"member_id": "x", "group_instance_id": None}]
        values = {"group_id": "none", "member_id": "x", "members": members}
        answer = await client.ask("LeaveGroup", version, **values)
        if version < 3:
            assert answer.error_code == 25
        else:
            assert (answer.error_code, answer.members[0].error_code) == (0, 25)
        answer = await client.ask("LeaveGroup", version, **values | {"group_id": ""})
        assert answer.error_code == 24


# --- Offsets ---


@versions(apis.OFFSET_COMMIT)
async def test_a_member_commits(version):
    async with node() as server:
        client = server.connect()
        member = await stable(client)
        topics = [topic("t", (0, 5), (1, 2**62)), topic("u", (0, 0))]
        answer = await client.ask("OffsetCommit", version, **committing(member, topics=topics))
        assert codes(answer) == {("t", 0): 0, ("t", 1): 0, ("u", 0): 0}
        wrong = committing(member) | {"generation_id_or_member_epoch": 9}
        assert codes(await client.ask("OffsetCommit", version, **wrong)) == {("t", 0): 22}


@versions(apis.OFFSET_COMMIT)
async def test_a_member_of_no_group_is_of_another_generation_before_version_9(version):
    async with node() as server:
        values = {"group_id": "none", "generation_id_or_member_epoch": 3, "member_id": "x"}
        answer = await server.connect().ask(
            "OffsetCommit", version, **values, topics=[topic("t", (0, 5))]
        )
        assert codes(answer) == {("t", 0): 69 if version >= 9 else 22}


@versions(apis.OFFSET_COMMIT)
async def test_what_is_wrong_with_a_partition_is_its_error_and_the_others_are_committed(version):
    async with node() as server:
        client = server.connect()
        topics = [topic("t", (0, 5), (1, -1), (-1, 3)), topic("x" * 250, (0, 1)), topic("", (0, 1))]
        values = {"group_id": "simple", "topics": topics}
        answer = await client.ask("OffsetCommit", version, **values)
        assert codes(answer) == {
            ("t", 0): 0,
            ("t", 1): 42,
            ("t", -1): 42,
            ("x" * 250, 0): 42,
            ("", 0): 42,
        }
        fetched = await client.ask("OffsetFetch", 7, group_id="simple", topics=None)
        found = [(t.name, p.partition_index) for t in fetched.topics for p in t.partitions]
        assert found == [("t", 0)]


@versions(apis.OFFSET_COMMIT)
async def test_of_a_partition_that_is_listed_twice_the_last_offset_counts(version):
    async with node() as server:
        client = server.connect()
        topics = [topic("t", (0, 5), (0, 6)), topic("t", (0, 7))]
        answer = await client.ask("OffsetCommit", version, group_id="simple", topics=topics)
        assert [[int(p.error_code) for p in t.partitions] for t in answer.topics] == [[0, 0], [0]]
        fetched = await client.ask("OffsetFetch", 7, group_id="simple", topics=None)
        assert fetched.topics[0].partitions[0].committed_offset == 7


@pytest.mark.parametrize(("offsets", "code"), [((-1, 5), 0), ((5, -1), 42)])
async def test_of_a_partition_that_is_listed_twice_the_last_place_decides(offsets, code):
    async with node() as server:
        client = server.connect()
        topics = [topic("t", *((0, offset) for offset in offsets)), topic("u", (0, 1))]
        answer = await client.ask("OffsetCommit", 9, group_id="simple", topics=topics)
        assert [int(p.error_code) for t in answer.topics for p in t.partitions] == [code, code, 0]
        fetched = await client.ask("OffsetFetch", 7, group_id="simple", topics=None)
        found = {t.name: t.partitions[0].committed_offset for t in fetched.topics}
        assert found == ({"u": 1} if code else {"t": 5, "u": 1})


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_a_retention_time_is_ignored(version):
    async with node() as server:
        client = server.connect()
        values = {"group_id": "s", "topics": [topic("t", (0, 5))], "retention_time": timedelta(0)}
        assert codes(await client.ask("OffsetCommit", version, **values)) == {("t", 0): 0}
        fetched = await client.ask("OffsetFetch", 1, group_id="s", topics=[asked("t", 0)])
        assert fetched.topics[0].partitions[0].committed_offset == 5


def asked(name, *partitions):
    return {"name": name, "partition_indexes": partitions}


def fetching(version, topics, group="g", **more):
    if version < 8:
        return {"group_id": group, "topics": topics} | more
    return {"groups": [{"group_id": group, "topics": topics}]} | more


def fetched_of(version, answer):
    return answer if version < 8 else answer.groups[0]


async def committed(client, group="g"):
    topics = [topic("u", (1, 7)), topic("t", (2, 6), (0, 5))]
    await client.ask("OffsetCommit", 9, group_id=group, topics=topics)


@versions(apis.OFFSET_FETCH)
async def test_offsets_are_fetched(version):
    async with node() as server:
        client = server.connect()
        await committed(client)
        topics = [asked("t", 2, 3, 2), asked("none", 0), asked("t", 0)]
        answer = fetched_of(
            version, await client.ask("OffsetFetch", version, **fetching(version, topics))
        )
        found = [
            (t.name, [(p.partition_index, p.committed_offset) for p in t.partitions])
            for t in answer.topics
        ]
        assert found == [("t", [(2, 6), (3, -1), (2, 6)]), ("none", [(0, -1)]), ("t", [(0, 5)])]
        first, second = answer.topics[0].partitions[:2]
        assert (first.metadata, second.metadata, int(second.error_code)) == ("m", "", 0)


@versions(apis.OFFSET_FETCH)
async def test_a_topic_whose_name_is_too_long_is_an_error_of_its_partitions(version):
    async with node() as server:
        client = server.connect()
        await committed(client)
        topics = [asked("x" * 250, 0, 1), asked("t", 0)]
        answer = fetched_of(
            version, await client.ask("OffsetFetch", version, **fetching(version, topics))
        )
        assert codes(answer) == {("x" * 250, 0): 42, ("x" * 250, 1): 42, ("t", 0): 0}
        offsets = [[p.committed_offset for p in t.partitions] for t in answer.topics]
        assert offsets == [[-1, -1], [5]]


@versions(apis.OFFSET_FETCH)
async def test_null_asks_for_all_offsets_and_an_empty_list_for_none(version):
    async with node() as server:
        client = server.connect()
        await committed(client)
        answer = fetched_of(
            version, await client.ask("OffsetFetch", version, **fetching(version, []))
        )
        assert answer.topics == ()
        if version >= 2:
            answer = await client.ask("OffsetFetch", version, **fetching(version, None))
            topics = fetched_of(version, answer).topics
            found = [(t.name, [p.partition_index for p in t.partitions]) for t in topics]
            assert found == [("t", [0, 2]), ("u", [1])]


@versions(apis.OFFSET_FETCH)
async def test_an_error_of_the_group_is_in_its_partitions_in_version_1_alone(version):
    async with node() as server:
        client = server.connect()
        values = fetching(version, [asked("t", 0, 1)], group="g" * 5_000)
        answer = fetched_of(version, await client.ask("OffsetFetch", version, **values))
        found = [int(p.error_code) for t in answer.topics for p in t.partitions]
        assert found == ([42, 42] if version == 1 else [])
        if version > 1:
            assert answer.error_code == 42


@pytest.mark.parametrize("version", [8, 9])
async def test_several_groups_are_fetched_each_with_its_own_error(version):
    async with node() as server:
        client = server.connect()
        await committed(client)
        groups = [
            {"group_id": "g", "topics": [asked("t", 0)]},
            {"group_id": "x" * 5_000, "topics": None},
            {"group_id": "none", "topics": None},
            {"group_id": "g", "topics": None},
            {"group_id": "g", "topics": None},
        ]
        answer = await client.ask("OffsetFetch", version, groups=groups)
        found = [(g.group_id[:4], int(g.error_code), len(g.topics)) for g in answer.groups]
        assert found == [("g", 0, 1), ("xxxx", 42, 0), ("none", 0, 0), ("g", 0, 2)]


async def test_offsets_are_deleted():
    async with node() as server:
        client = server.connect()
        await committed(client)
        topics = [
            {"name": "t", "partitions": [{"partition_index": p} for p in (0, 9, 0)]},
            {"name": "x" * 250, "partitions": [{"partition_index": 0}]},
        ]
        answer = await client.ask("OffsetDelete", 0, group_id="g", topics=topics)
        found = {("t", 0): 0, ("t", 9): 0, ("x" * 250, 0): 42}
        assert (answer.error_code, codes(answer)) == (0, found)
        left = await client.ask("OffsetFetch", 9, **fetching(9, [asked("t", 0, 2)]))
        offsets = [p.committed_offset for p in left.groups[0].topics[0].partitions]
        assert offsets == [-1, 6]
        for group, code in (("none", 69), ("", 24)):
            answer = await client.ask("OffsetDelete", 0, group_id=group, topics=topics)
            assert (answer.error_code, answer.topics) == (code, ())


# --- Administration ---


@versions(apis.LIST_GROUPS)
async def test_groups_are_listed(version):
    async with node() as server:
        client = server.connect()
        await stable(client)
        await committed(client, group="offsets")
        answer = await client.ask("ListGroups", version)
        assert answer.error_code == 0
        found = {g.group_id: g for g in answer.groups}
        assert {name: g.protocol_type for name, g in found.items()} == {
            "g": "consumer",
            "offsets": "",
        }
        if version >= 4:
            assert found["g"].group_state == "Stable"
            empty = await client.ask("ListGroups", version, states_filter=["empty"])
            assert [g.group_id for g in empty.groups] == ["offsets"]
        if version >= 5:
            assert found["g"].group_type == "classic"
            none = await client.ask("ListGroups", version, types_filter=["consumer"])
            assert none.groups == ()


@versions(apis.DESCRIBE_GROUPS)
async def test_groups_are_described(version):
    async with node() as server:
        client = server.connect()
        member = await stable(client)
        groups = ["g", "none", "g", TOPICS_GROUP, "x" * 5_000]
        answer = await client.ask("DescribeGroups", version, groups=groups)
        first, unknown, *wrong = answer.groups
        assert (first.group_state, first.protocol_type, first.protocol_data) == (
            "Stable",
            "consumer",
            "range",
        )
        (described,) = first.members
        assert (described.member_id, described.client_id) == (member.member_id, "client")
        assert (described.client_host, described.member_assignment) == ("/10.0.0.1", b"mine")
        assert (unknown.group_id, unknown.group_state) == ("none", "Dead")
        assert unknown.error_code == (69 if version >= 6 else 0)
        assert [(each.error_code, each.group_state) for each in wrong] == [(42, ""), (42, "")]
        if version >= 3:
            assert first.authorized_operations == NO_OPERATIONS


@versions(apis.DELETE_GROUPS)
async def test_groups_are_deleted(version):
    async with node() as server:
        client = server.connect()
        await stable(client)
        await committed(client, group="offsets")
        names = ["g", "offsets", "none", "x" * 5_000, TOPICS_GROUP, "offsets"]
        answer = await client.ask("DeleteGroups", version, groups_names=names)
        assert [int(result.error_code) for result in answer.results] == [68, 0, 69, 42, 42]
        assert [result.group_id for result in answer.results] == names[:5]
        listed = await client.ask("ListGroups", 4)
        assert [g.group_id for g in listed.groups] == ["g"]


# --- Coordinators ---


@versions(apis.FIND_COORDINATOR)
async def test_the_coordinator_of_a_group_is_found(version):
    async with node() as server:
        client = server.connect()
        for key, kind, code in (("g", 0, 0), ("", 0, 24), ("tx", 1, 42), ("x" * 5_000, 0, 42)):
            values = {"key": key, "key_type": kind, "coordinator_keys": [key]}
            answer = await client.ask("FindCoordinator", version, **values)
            found = answer.coordinators[0] if version >= 4 else answer
            if version == 0 and kind:
                continue  # It has only keys of groups.
            assert found.error_code == code
            assert (found.node_id, found.host, found.port) == (
                (1, "here", 9092) if code == 0 else (-1, "", -1)
            )


# --- Who may do what ---

RULES = """
[[rule]]
principal = "cert:etl"
operations = ["join", "commit", "read", "admin"]
groups = "a*"
"""


def guarded():
    """A guard by which everybody is `cert:etl`."""
    return Guard(Authenticator(), rules.parse(RULES))


async def test_each_group_of_a_call_is_authorised_by_itself():
    async with node(guard=guarded()) as server:
        client = server.connect()
        client.connection.caller.show = lambda: Credential(principal="cert:etl")
        await committed(client, group="a1")
        described = await client.ask("DescribeGroups", 6, groups=["a1", "b1"])
        assert [int(g.error_code) for g in described.groups] == [0, 30]
        reply = await client.ask("FindCoordinator", 4, key_type=0, coordinator_keys=["a1", "b1"])
        assert [int(coordinator.error_code) for coordinator in reply.coordinators] == [0, 30]
        fetched = await client.ask(
            "OffsetFetch", 9, groups=[{"group_id": g, "topics": None} for g in ("a1", "b1")]
        )
        assert [int(g.error_code) for g in fetched.groups] == [0, 30]
        answer = await client.ask(
            "DescribeGroups", 3, groups=["a1"], include_authorized_operations=True
        )
        read, delete, describe = 1 << 3, 1 << 6, 1 << 8
        assert answer.groups[0].authorized_operations == read | delete | describe
        deleted = await client.ask("DeleteGroups", 2, groups_names=["b1", "a1"])
        assert [int(result.error_code) for result in deleted.results] == [30, 0]


async def test_what_a_caller_may_not_do_is_refused_in_the_place_for_errors_of_each_api():
    async with node(guard=guarded()) as server:
        client = server.connect()
        client.connection.caller.show = lambda: Credential(principal="cert:etl")
        ask = client.ask
        group = {"group_id": "b", "generation_id": 1, "member_id": "m"}
        assert (await ask("JoinGroup", 9, **joining(group="b"))).error_code == 30
        assert (await ask("SyncGroup", 5, **group)).error_code == 30
        assert (await ask("Heartbeat", 4, **group)).error_code == 30
        assert (await ask("LeaveGroup", 5, **group)).error_code == 30
        topics = [topic("t", (0, 1))]
        assert codes(await ask("OffsetCommit", 9, group_id="b", topics=topics)) == {("t", 0): 30}
        assert (await ask("OffsetDelete", 0, group_id="b", topics=[])).error_code == 30
        assert (await ask("OffsetFetch", 5, group_id="b", topics=None)).error_code == 30
        assert (await ask("FindCoordinator", 2, key="b")).error_code == 30
        assert (await ask("DescribeGroups", 6, groups=["b"])).groups[0].error_code == 30
        assert (await ask("DeleteGroups", 2, groups_names=["b"])).results[0].error_code == 30
        listed = await ask("ListGroups", 5)
        assert (listed.error_code, listed.groups) == (0, ())


class Unreachable:
    """A verifier of tokens whose keys cannot be fetched."""

    def verify(self, token):
        raise KeysUnavailable("no answer")


async def test_without_keys_clients_are_told_to_try_again_by_a_code_that_they_know():
    secured = Guard(Authenticator(None, Unreachable()), rules.parse(RULES))
    async with node(guard=secured) as server:
        client = server.connect()
        client.connection.caller.show = lambda: Credential("token")
        member = {"group_id": "g", "member_id": "m", "generation_id": 1}
        assert (await client.ask("Heartbeat", 4, **member)).error_code == 15
        assert (await client.ask("ListGroups", 4)).error_code == 15
        parts = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
        topics = [{"topic": "t", "partitions": [parts]}]
        fetched = await client.ask("Fetch", 6, topics=topics)
        assert fetched.responses[0].partitions[0].error_code == 6
        assert (await client.ask("Fetch", 12, topics=topics)).error_code == 6
        topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
        listed = await client.ask("ListOffsets", 5, topics=topics)
        assert listed.topics[0].partitions[0].error_code == 6
        before = len(client.answers())
        client.send("Produce", 8, acks=0, timeout=1_000, topic_data=[])
        await asyncio.sleep(0.01)
        assert client.is_closed
        assert len(client.answers()) == before, "nobody waits for one"


# --- Rows ---


@versions(apis.PRODUCE)
async def test_produced_rows_are_refused_for_good(version):
    rows = {
        "acks": 1,
        "timeout": 1_000,
        "topic_data": [{"name": "t", "partition_data": [{"index": 2, "records": b""}]}],
    }
    async with node() as server:
        answer = await server.connect().ask("Produce", version, **rows)
        (refused,) = answer.responses[0].partition_responses
        assert (refused.index, refused.error_code, refused.base_offset) == (2, 44, -1)
        if version >= 8:
            assert "stores no rows" in refused.error_message
        unacknowledged = server.connect()
        unacknowledged.send("Produce", version, **rows | {"acks": 0})
        await asyncio.sleep(0.01)
        assert unacknowledged.is_closed
        assert unacknowledged.answers() == []


# --- Limits ---


async def test_a_request_about_too_many_groups_is_refused_in_each_of_them():
    async with node(max_groups_per_call=3) as server:
        client = server.connect()
        for count, code in ((3, 0), (4, 42)):
            names = [f"g{number}" for number in range(count)]
            reply = await client.ask("FindCoordinator", 6, coordinator_keys=names)
            assert {int(coordinator.error_code) for coordinator in reply.coordinators} == {code}
            groups = [{"group_id": name, "topics": None} for name in names]
            fetched = await client.ask("OffsetFetch", 9, groups=groups)
            assert {int(group.error_code) for group in fetched.groups} == {code}
            described = await client.ask("DescribeGroups", 5, groups=names)
            assert {int(group.error_code) for group in described.groups} == {code}
            deleted = await client.ask("DeleteGroups", 2, groups_names=names)
            assert {int(result.error_code) for result in deleted.results} == {code or 69}
            assert len(reply.coordinators) == len(fetched.groups) == len(described.groups) == count


@pytest.mark.parametrize("version", [2, 9])
async def test_a_commit_of_too_many_partitions_is_refused_in_each_of_them(version):
    async with node(max_partitions_per_call=3) as server:
        client = server.connect()
        for count, code in ((3, 0), (4, 42)):
            topics = [topic("t", *((number, 1) for number in range(count)))]
            answer = await client.ask("OffsetCommit", version, group_id="g", topics=topics)
            assert list(codes(answer).values()) == [code] * count


async def test_other_limits_map_to_codes_by_whether_it_helps_to_try_again():
    async with node(max_groups=1, max_member_metadata_bytes=1_024) as server:
        client = server.connect()
        long = [{"name": "range", "metadata": b"x" * 2_000}]
        assert (await client.ask("JoinGroup", 3, **joining(protocols=long))).error_code == 81
        assert (await client.ask("JoinGroup", 3, **joining())).error_code == 0
        assert (await client.ask("JoinGroup", 3, **joining(group="other"))).error_code == 81
        answer = await client.ask("OffsetCommit", 9, group_id="new", topics=[topic("t", (0, 1))])
        assert codes(answer) == {("t", 0): 15}


# --- The client's library, as operators see it ---


async def shown(server, client):
    """The only member of group g as our own DescribeGroups shows it."""
    asked = admin.DescribeGroupsRequest(groups=["g"])
    call = KafkaCall(calls.DESCRIBE_GROUPS, client.connection.caller, ("g",), "")
    replies = await server.pipeline.answer(call, partial(translation, asked, client_host=""))
    ((member,),) = (group.members for group in response_of(asked, replies).groups)
    return member


async def named(server, version, port=5_000):
    """A client that has said what its library is."""
    client = server.connect(port=port)
    said = {"client_software_name": "librdkafka", "client_software_version": version}
    await client.ask("ApiVersions", 3, **said)
    return client


async def test_members_and_explanations_show_what_the_client_said_of_its_library():
    async with node(group_rebalance_journal=True) as server:
        client = await named(server, "2.16.1")
        member = await stable(client)
        found = await shown(server, client)
        assert (found.client_software, found.client_host) == ("librdkafka 2.16.1", "/10.0.0.1")
        (record,) = (e.record for e in server.events if isinstance(e, RebalanceJournaled))
        assert "because client (librdkafka 2.16.1, 10.0.0.1) joined." in explain(record)[1]
        other = [{"name": "range", "metadata": b"\0\1\1"}]
        newer = await named(server, "2.17.0", port=5_001)
        await newer.ask(
            "JoinGroup", 9, **joining(member_id=member.member_id, protocols=other)
        )  # fmt: skip
        assert (await shown(server, newer)).client_software == "librdkafka 2.17.0"


async def test_explanations_name_the_library_of_a_member_that_left():
    async with node(group_rebalance_journal=True) as server:
        client = await named(server, "2.16.1")
        member = await stable(client)
        leaving = {"member_id": member.member_id, "reason": "the consumer is being closed"}
        await client.ask("LeaveGroup", 5, group_id="g", members=[leaving])
        record = [e.record for e in server.events if isinstance(e, RebalanceJournaled)][-1]
        assert record.removed[0].client_software == "librdkafka 2.16.1"
        assert "because client (librdkafka 2.16.1, 10.0.0.1) left" in explain(record)[1]


async def test_a_client_that_did_not_name_its_library_has_none():
    async with node() as server:
        client = server.connect()
        await client.ask("ApiVersions", 2)
        await stable(client)
        assert (await shown(server, client)).client_software == ""


@pytest.mark.parametrize("instance", [None, "i"])
async def test_the_library_of_a_member_is_known_after_a_fail_over(instance):
    log = MemoryLog()
    async with node(log=log) as server:
        await stable(await named(server, "2.16.1"), group_instance_id=instance)
        if instance is not None:  # A process of a newer version takes its place.
            newer = await named(server, "2.17.0", port=5_001)
            await newer.ask("JoinGroup", 9, **joining(group_instance_id=instance))
            assert (await shown(server, newer)).client_software == "librdkafka 2.17.0"
    async with node(log=log) as server:
        found = await shown(server, server.connect())
        assert found.client_software == f"librdkafka {'2.16.1' if instance is None else '2.17.0'}"


# --- Offsets whose fate is not known yet ---


class HeldLog(MemoryLog):
    """A log whose appends wait for `go`."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    async def append(self, *args, **kwargs):
        await self.go.wait()
        return await super().append(*args, **kwargs)


@pytest.mark.parametrize("version", [6, 7, 8, 9])
async def test_a_stable_offset_is_waited_for_from_version_7(version):
    # Kafka answers UNSTABLE_OFFSET_COMMIT, upon which clients ask again.
    log = HeldLog()
    async with node(log=log) as server:
        first, second = server.connect(port=1), server.connect(port=2)
        first.send("OffsetCommit", 9, group_id="g", topics=[topic("t", (0, 5))])
        await asyncio.sleep(0.01)
        values = fetching(version, [asked("t", 0, 1)], require_stable=True)
        second.send("OffsetFetch", version, **values)
        await asyncio.sleep(0.01)
        assert len(second.answers()) == (1 if version < 7 else 0)
        log.go.set()
        await asyncio.sleep(0.01)
        answer = fetched_of(version, second.answers()[0][1])
        found = [p.committed_offset for p in answer.topics[0].partitions]
        assert found == [-1 if version < 7 else 5, -1]
        assert codes(first.answers()[0][1]) == {("t", 0): 0}


@pytest.mark.parametrize(
    ("operations", "bits"), [("read", 1 << 8), ("read, join", 1 << 8 | 1 << 3), ("*", 0b101001000)]
)
async def test_what_a_caller_may_do_is_told_if_it_asks(operations, bits):
    listed = '", "'.join(operations.split(", "))
    text = f"""
        [[rule]]
        principal = "cert:etl"
        operations = ["{listed}"]
        groups = "*"
        """
    async with node(guard=Guard(Authenticator(), rules.parse(text))) as server:
        client = server.connect()
        client.connection.caller.show = lambda: Credential(principal="cert:etl")
        answer = await client.ask(
            "DescribeGroups", 6, groups=["g"], include_authorized_operations=True
        )
        assert answer.groups[0].authorized_operations == bits
        answer = await client.ask("DescribeGroups", 6, groups=["g"])
        assert answer.groups[0].authorized_operations == NO_OPERATIONS
