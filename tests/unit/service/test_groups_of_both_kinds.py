"""Everything that takes a group takes classic groups and session groups, whatever their state.

Each path is walked with a group of each kind that is Empty, one that has a member, and one whose
deletion is on its way to the log.
"""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import generate_latest
from prometheus_client.registry import CollectorRegistry

from coordinator.console import views
from coordinator.core.topics import ReportedTopics, reported_topics
from coordinator.core.values import requests as q
from coordinator.core.values.policy import Policy
from coordinator.core.values.session_messages import Attach, LeaveKind, SessionLeave
from coordinator.kafka import apis
from coordinator.observe.gauges import shard_metrics
from coordinator.observe.listed_groups import GroupFilter, ListedGroups
from coordinator.runtime.payloads import PAYLOADS
from coordinator.runtime.recording import state_hash
from coordinator.runtime.slices import at_once
from coordinator.testing import VirtualCoordinator
from coordinator.v1 import admin_pb2, group_pb2, session_pb2
from tests.kit import requests
from tests.kit.session_member import ScriptedMember
from tests.unit.console.test_views import Admin
from tests.unit.kafka.test_topic_apis import Client
from tests.unit.service.test_kafka_apis import HeldLog
from tests.unit.service.test_topics import machine

KINDS = "classic", "session"
STATES = "empty", "busy", "deleted"
GROUPS = [f"{kind}-{state}" for kind in KINDS for state in STATES]


def by_state(empty, busy, deleted):
    """The same for groups of both kinds."""
    return by_kind((empty, busy, deleted), (empty, busy, deleted))


def by_kind(classic, session):
    """A value for each group; of a kind: the same in all states, or one for each."""
    found = [
        expected if isinstance(expected, tuple) else (expected,) * len(STATES)
        for expected in (classic, session)
    ]
    return dict(zip(GROUPS, found[0] + found[1], strict=True))


# --- By gRPC, in the console, in metrics and in the log ---


def joined(c: VirtualCoordinator, group: str) -> str:
    """Have a classic member that is assigned three partitions; returns its id."""
    call = c.send(requests.join(group))
    c.advance(1)
    joined = call.response
    mine = {joined.member_id: requests.assignment(group, range(3))}
    c.send(requests.sync(joined, group, mine))
    return joined.member_id


def attached(c: VirtualCoordinator, group: str):
    """Have a session member that holds three partitions; returns its stream."""
    session = c.open_session()
    policy = session_pb2.GroupPolicy(join_quiet_ms=0, initial_delay_ms=0, lease_ms=60_000)
    member = ScriptedMember(group, 3, group_id=group, topic=group, member_name="", wishes=policy)
    session.send(member.attach())
    c.advance(200)
    return session


@pytest.fixture
def c() -> VirtualCoordinator:
    found = VirtualCoordinator(group_initial_rebalance_delay_ms=0)
    for group in GROUPS:
        topics = [{"name": group, "partitions": [{"partition_index": 0, "committed_offset": 7}]}]
        commit = group_pb2.OffsetCommitRequest(group_id=group, generation_id=-1, topics=topics)
        found.send(commit)
        if group.startswith("session"):
            session = attached(found, group)
            if not group.endswith("busy"):
                session.send(session_pb2.SessionRequest(leave=session_pb2.SessionLeave()))
        else:
            member_id = joined(found, group)
            if not group.endswith("busy"):
                leaving = [{"member_id": member_id}]
                found.send(group_pb2.LeaveGroupRequest(group_id=group, members=leaving))
        found.advance(2_000)
    found.hold_appends()
    for kind in KINDS:
        found.send(admin_pb2.DeleteGroupsRequest(groups_names=[f"{kind}-deleted"]))
    return found


def answers(c, request_of):
    """Each group's answer to a request, once the log has taken what is on its way."""
    calls = {group: c.send(request_of(group)) for group in GROUPS}
    c.release_appends()
    return {group: call.response for group, call in calls.items()}


def listed(c):
    reply = c.send(admin_pb2.ListGroupsRequest()).response.groups
    return {item.group_id: item.group_state for item in reply}


def described(c):
    request = admin_pb2.DescribeGroupsRequest(groups=GROUPS)
    return {
        group.group_id: (group.group_state, len(group.members))
        for group in c.send(request).response.groups
    }


def described_as_sessions(c):
    asked = answers(c, lambda group: admin_pb2.DescribeSessionGroupRequest(group_id=group))
    return {group: answer.error_code for group, answer in asked.items()}


def deleted(c):
    asked = answers(c, lambda group: admin_pb2.DeleteGroupsRequest(groups_names=[group]))
    return {group: answer.results[0].error_code for group, answer in asked.items()}


def _offset(group, **fields):
    return [{"name": group, "partitions": [{"partition_index": 0, **fields}]}]


def _codes(asked):
    return {group: answer.topics[0].partitions[0].error_code for group, answer in asked.items()}


def fetched(c):
    asked = answers(c, lambda group: group_pb2.OffsetFetchRequest(group_id=group))
    return {
        group: tuple(p.committed_offset for topic in answer.topics for p in topic.partitions)
        for group, answer in asked.items()
    }


def reset(c):
    def request(group):
        topics = _offset(group, committed_offset=1)
        return group_pb2.OffsetCommitRequest(
            group_id=group, generation_id=-1, topics=topics, requires_empty_group=True, atomic=True
        )

    return _codes(answers(c, request))


def offsets_deleted(c):
    def request(group):
        return admin_pb2.OffsetDeleteRequest(group_id=group, topics=_offset(group))

    return _codes(answers(c, request))


def members_removed(c):
    def request(group):
        return admin_pb2.RemoveMembersRequest(group_id=group, members=[{"member_id": "no-such"}])

    return {group: answer.error_code for group, answer in answers(c, request).items()}


def log_ends(c):
    asked = answers(c, lambda group: admin_pb2.ListLogEndsRequest(group_id=group))
    return {group: answer.error_code for group, answer in asked.items()}


def rebalances(c):
    asked = answers(c, lambda group: admin_pb2.ListRebalancesRequest(group_id=group))
    return {group: answer.error_code for group, answer in asked.items()}


def phases(c):
    asked = answers(c, lambda group: admin_pb2.DescribePhaseRequest(group_id=group))
    return {group: answer.error_code for group, answer in asked.items()}


def heartbeats(c):
    def request(group):
        return group_pb2.HeartbeatRequest(group_id=group, generation_id=1, member_id="no-such")

    assert not c.shard.beat(GROUPS[-1], "no-such", None, 1, c.now_ms)
    return {group: answer.error_code for group, answer in answers(c, request).items()}


def topics_told(c):
    groups = list(c.shard.machine.groups.values())
    return dict(at_once(reported_topics(groups, PAYLOADS.partitions, ReportedTopics())).counts)


def metrics(c):
    registry = CollectorRegistry()
    registry.register(ListedGroups(GroupFilter(["*"]), c.shard.group_stats))
    text = generate_latest(registry).decode()
    assert list(shard_metrics([c.shard.stats()], 0.0, 0.0))
    name = "coordinator_group_members"
    return {
        group: float(text.split(f'{name}{{group="{group}"}} ')[1].split("\n")[0])
        for group in GROUPS
    }


def pages(c):
    admin = Admin(c)
    rows = {expected["group_id"]: expected for expected in _groups_page(admin)["groups"]}
    plain = {"members": 0, "partitions": 0, "find": "", "sort": ""}
    found = {}
    for group in GROUPS:
        views.rebalances(admin, group)
        page = views.group(admin, group, **plain)
        assert page["state"] == rows[group]["state"]
        found[group] = page["state"], rows[group]["members"]
    return found


def _groups_page(admin):
    return views.groups(admin, find="", state="", sort="", page=1)


def snapshots(c):
    """Groups are read from a snapshot as they were, but for a deletion that was on its way."""
    assert state_hash(c.shard)
    c.release_appends()
    c.take_snapshot()
    c.restart()
    return {
        group: expected.response.groups[0].group_state
        for group in GROUPS
        for expected in [c.send(admin_pb2.DescribeGroupsRequest(groups=[group]))]
    }


OK, OTHER_KIND, UNKNOWN_MEMBER, NOT_EMPTY, SUBSCRIBED = 0, 23, 25, 68, 86
STATE = by_state("Empty", "Stable", "Empty")
MEMBERS = by_state(0, 1, 0)
PATHS = {
    listed: STATE,
    described: {group: (STATE[group], MEMBERS[group]) for group in GROUPS},
    described_as_sessions: by_kind(OTHER_KIND, OK),
    deleted: by_state(OK, NOT_EMPTY, OK),
    fetched: dict.fromkeys(GROUPS, (7,)),
    reset: by_state(OK, NOT_EMPTY, OK),
    offsets_deleted: by_state(OK, SUBSCRIBED, OK),
    members_removed: by_kind(OK, OTHER_KIND),
    log_ends: dict.fromkeys(GROUPS, OK),
    rebalances: dict.fromkeys(GROUPS, OK),
    phases: dict.fromkeys(GROUPS, OK),
    heartbeats: by_kind(UNKNOWN_MEMBER, OTHER_KIND),
    topics_told: by_state(1, 3, 1),
    metrics: MEMBERS,
    pages: {group: (STATE[group], MEMBERS[group]) for group in GROUPS},
    snapshots: by_kind(("Empty", "Stable", "Dead"), ("Empty", "Assigning", "Dead")),
}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
def test_whatever_takes_a_group_takes_one_of_each_kind_in_each_state(c, path):
    assert path(c) == PATHS[path]


# --- Over Kafka's wire ---

MEMBER = {"group_id": "", "generation_id": 1, "member_id": "no-such"}
ONE = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
KAFKA = {
    apis.JOIN_GROUP: (
        lambda group: {
            "group_id": group, "session_timeout": 60_000, "rebalance_timeout": 60_000,
            "member_id": "no-such", "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        lambda reply: reply.error_code,
        by_kind(UNKNOWN_MEMBER, (UNKNOWN_MEMBER, OTHER_KIND, UNKNOWN_MEMBER)),
    ),
    apis.SYNC_GROUP: (
        lambda group: {
            **MEMBER, "group_id": group, "protocol_type": "consumer", "protocol_name": "range",
            "assignments": [],
        },
        lambda reply: reply.error_code,
        by_kind(UNKNOWN_MEMBER, OTHER_KIND),
    ),
    apis.HEARTBEAT: (
        lambda group: {**MEMBER, "group_id": group},
        lambda reply: reply.error_code,
        by_kind(UNKNOWN_MEMBER, OTHER_KIND),
    ),
    apis.LEAVE_GROUP: (
        lambda group: {"group_id": group, "members": [{"member_id": "no-such"}]},
        lambda reply: reply.error_code,
        by_kind(OK, OTHER_KIND),
    ),
    apis.OFFSET_FETCH: (
        lambda group: {"groups": [{"group_id": group, "topics": None}]},
        lambda reply: tuple(
            p.committed_offset for t in reply.groups[0].topics for p in t.partitions
        ),
        dict.fromkeys(GROUPS, (7,)),
    ),
    apis.OFFSET_COMMIT: (
        lambda group: {"group_id": group, "topics": [{"name": group, "partitions": ONE}]},
        lambda reply: reply.topics[0].partitions[0].error_code,
        by_state(OK, UNKNOWN_MEMBER, OK),
    ),
    apis.OFFSET_DELETE: (
        lambda group: {
            "group_id": group,
            "topics": [{"name": group, "partitions": [{"partition_index": 0}]}],
        },
        lambda reply: reply.topics[0].partitions[0].error_code,
        by_state(OK, SUBSCRIBED, OK),
    ),
    apis.DESCRIBE_GROUPS: (
        lambda group: {"groups": [group]},
        lambda reply: (reply.groups[0].group_state, len(reply.groups[0].members)),
        PATHS[described],
    ),
    apis.LIST_GROUPS: (
        lambda group: {},
        lambda reply: {group.group_id: group.group_state for group in reply.groups},
        dict.fromkeys(GROUPS, STATE),
    ),
    apis.DELETE_GROUPS: (
        lambda group: {"groups_names": [group]},
        lambda reply: reply.results[0].error_code,
        by_state(OK, NOT_EMPTY, OK),
    ),
    apis.FIND_COORDINATOR: (
        lambda group: {"coordinator_keys": [group]},
        lambda reply: reply.coordinators[0].error_code,
        dict.fromkeys(GROUPS, OK),
    ),
    apis.METADATA: (
        lambda group: {"topics": [{"name": group}]},
        lambda reply: len(reply.topics[0].partitions),
        PATHS[topics_told],
    ),
    apis.LIST_OFFSETS: (
        lambda group: {
            "topics": [{"name": group, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        },
        lambda reply: reply.topics[0].partitions[0].error_code,
        dict.fromkeys(GROUPS, OK),
    ),
}  # fmt: skip
"""Request by API, with what of its answer counts and what that is to be."""


async def populate(served) -> None:
    """Have the six groups on a node; the deletions wait for its log."""
    node = served.node
    for group in GROUPS:
        await served.commit(group, (group, 0), offset=7)
        runner = node.runner_of(group)
        if group.startswith("classic"):
            member_id = await served.consumer(group, group, 3)
            leave = q.LeaveGroup(
                call_id=node.new_call_id(), group_id=group, members=(q.LeavingMember(member_id),)
            )
            if not group.endswith("busy"):
                await served.ask(leave)
            continue
        attach = Attach(
            call_id=node.new_call_id(), group_id=group, incarnation=group, topics=((group, 3),),
            wishes=Policy(join_quiet_ms=0, initial_delay_ms=0, lease_ms=60_000), stream_number=1,
        )  # fmt: skip
        await node.ask([attach])
        await asyncio.sleep(0.2)
        if not group.endswith("busy"):
            leave = SessionLeave(stream_id=attach.call_id, group_id=group, kind=LeaveKind.NOW)
            runner.receive(leave)
        await asyncio.sleep(2)


@pytest.mark.virtual_time
@pytest.mark.parametrize("api", KAFKA, ids=lambda api: api.name)
async def test_whatever_kafka_clients_ask_takes_groups_of_each_kind_in_each_state(api):
    request_of, told_by, wanted = KAFKA[api]
    log = HeldLog()
    log.go.set()
    async with machine(logs=[log]) as [served]:
        await populate(served)
        await served.topics.refresh()
        log.go.clear()
        client = Client(served)
        async with asyncio.TaskGroup() as tasks:
            for kind in KINDS:
                deletion = client.ask(apis.DELETE_GROUPS, 2, groups_names=[f"{kind}-deleted"])
                tasks.create_task(deletion)
            await asyncio.sleep(0.01)
            asked = {
                g: tasks.create_task(client.ask(api, api.high, **request_of(g))) for g in GROUPS
            }
            await asyncio.sleep(0.01)
            log.go.set()
        client.context.waits.close()
    assert {group: told_by(answer.result()) for group, answer in asked.items()} == wanted
