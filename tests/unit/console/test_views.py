"""Content of the console's pages: what each shows, and that no page grows with the node."""

from __future__ import annotations

import json
from http import HTTPStatus

import pytest

from coordinator.console import server, views
from coordinator.console.session_views import plan_line, session_view
from coordinator.dial import Credentials
from coordinator.operator.admin import GroupAdmin, Rebalance
from coordinator.operator.session_admin import SessionGroup
from coordinator.testing import VirtualCoordinator
from coordinator.v1 import cluster_pb2
from coordinator.v1 import group_pb2 as pb
from coordinator.web.messages import HttpRequest
from tests.kit import requests

PAGE_BYTES = 64 * 1024
"""More than any page of rows has whose names are not long."""


class InProcess:
    """A channel whose calls a coordinator answers in this process."""

    def __init__(self, coordinator: VirtualCoordinator) -> None:
        self._coordinator = coordinator

    def unary_unary(self, method: str, *_: object, **__: object):
        return lambda request, timeout: self._coordinator.send(request).response

    unary_stream = stream_stream = unary_unary


class Admin(GroupAdmin):
    def __init__(self, coordinator: VirtualCoordinator, shards: int = 16) -> None:
        super().__init__("localhost:7400")
        self._only = InProcess(coordinator)
        self._cluster_view = cluster_pb2.DescribeClusterResponse(
            nodes=[{"node_id": 1, "host": "localhost", "port": 7400}],
            controller=-1,
            shards=[
                {"shard": n, "leader": 1 if n else -1, "replicas": [1], "in_sync": [1]}
                for n in range(shards)
            ],
        )

    def channel(self, address: str):
        return self._only

    def describe(self) -> cluster_pb2.DescribeClusterResponse:
        return self._cluster_view


@pytest.fixture
def coordinator() -> VirtualCoordinator:
    return VirtualCoordinator(group_initial_rebalance_delay_ms=50, max_partitions_per_call=100_000)


def commit(coordinator, group: str, partitions: int, offset: int = 1, **who) -> None:
    found = [{"partition_index": n, "committed_offset": offset} for n in range(partitions)]
    topics = [{"name": "t", "partitions": found}]
    request = {"group_id": group, "generation_id": -1, "topics": topics, **who}
    answer = coordinator.send(pb.OffsetCommitRequest(**request)).response
    assert {p.error_code for t in answer.topics for p in t.partitions} == {0}


def joining(coordinator, group: str, client: str, member_id: str = ""):
    return coordinator.send(
        requests.join(
            group,
            client_id=client,
            member_id=member_id,
            session_timeout_ms=600_000,
            rebalance_timeout_ms=600_000,
        )
    )


def stable(coordinator, group: str, clients: list[str], partitions: int) -> dict[str, str]:
    """A group whose first member has all partitions; member ids by client id."""
    joins = {client: joining(coordinator, group, client) for client in clients}
    coordinator.advance(100)
    ids = {client: call.response.member_id for client, call in joins.items()}
    for client, member_id in ids.items():
        is_leader = joins[client].response.leader == member_id
        assign(coordinator, group, 1, member_id, partitions if is_leader else 0)
    return ids


def assign(coordinator, group: str, generation: int, member_id: str, partitions: int) -> None:
    """A SyncGroup; a leader's gives it all partitions."""
    joined = pb.JoinGroupResponse(generation_id=generation, member_id=member_id)
    everything = {member_id: requests.assignment("t", range(partitions))} if partitions else {}
    coordinator.send(requests.sync(joined, group, everything))


def groups(admin: GroupAdmin, **ask):
    return views.groups(admin, **{"find": "", "state": "", "sort": "", "page": 1, **ask})


def group(admin: GroupAdmin, name: str, **ask):
    plain = {"members": 0, "partitions": 0, "find": "", "sort": ""}
    return views.group(admin, name, **{**plain, **ask})


def test_a_page_of_groups_is_as_large_for_a_thousand_as_for_fifty(coordinator):
    for number in range(1_000):
        coordinator.send(
            pb.OffsetCommitRequest(
                group_id=f"g{number:05}",
                generation_id=-1,
                topics=[{"name": "t", "partitions": [{"partition_index": 0}]}],
            )
        )
    found = groups(Admin(coordinator), sort="lag", page=20)
    assert [g["group_id"] for g in found["groups"]] == [f"g{n:05}" for n in range(950, 1_000)]
    assert (found["skip"], found["matching"]) == (950, 1_000)
    assert len(json.dumps(found)) < PAGE_BYTES
    assert groups(Admin(coordinator), page=10**30)["groups"] == []


def test_a_page_of_partitions_is_as_large_for_five_thousand_as_for_fifty(coordinator):
    commit(coordinator, "g", 5_000)
    folded = group(Admin(coordinator), "g")
    assert folded["partition_count"] == 5_000
    assert folded["partitions"] is None
    assert len(json.dumps(folded)) < 1_000
    found = group(Admin(coordinator), "g", partitions=100)
    rows = found["partitions"]["rows"]
    assert [row["partition"] for row in rows] == list(range(4_950, 5_000))
    assert found["partitions"]["matching"] == 5_000
    assert len(json.dumps(found)) < PAGE_BYTES


def test_members_are_paged_in_the_order_of_their_names(coordinator):
    stable(coordinator, "g", [f"c{n:02}" for n in reversed(range(60))], 4)
    first, last = (group(Admin(coordinator), "g", members=page)["members"] for page in (1, 2))
    assert [m["client_id"] for m in first["rows"]] == [f"c{n:02}" for n in range(50)]
    assert [m["client_id"] for m in last["rows"]] == [f"c{n:02}" for n in range(50, 60)]
    assert sum(m["partitions"] for m in first["rows"] + last["rows"]) == 4


def test_members_show_the_libraries_of_their_clients(coordinator):
    ids = stable(coordinator, "g", ["a", "b"], 2)
    members = coordinator.shard.machine.groups["g"].members
    members[ids["b"]].client_software = "librdkafka 2.16.1"
    rows = group(Admin(coordinator), "g", members=1)["members"]["rows"]
    assert [(m["client_id"], m["software"]) for m in rows] == [
        ("a", ""), ("b", "librdkafka 2.16.1"),
    ]  # fmt: skip


def test_partitions_are_found_by_topic_or_owner_and_sorted_by_lag(coordinator):
    ids = stable(coordinator, "g", ["a"], 12)
    who = {"group_id": "g", "member_id": ids["a"], "generation_id": 1}
    ends = [
        {"partition_index": 3, "log_end_offset": 9},
        {"partition_index": 7, "log_end_offset": 12},
    ]
    topics = [{"name": "t", "partitions": ends}]
    coordinator.send(pb.ReportLogEndsRequest(**who, topics=topics))

    def found(**ask) -> list[int]:
        rows = group(Admin(coordinator), "g", partitions=1, **ask)["partitions"]["rows"]
        return [row["partition"] for row in rows]

    assert found(sort="lag")[:3] == [7, 3, 0]
    assert found(find="T-1") == [1, 10, 11]
    assert found(find="A") == list(range(12))
    assert found(find="nobody") == []
    assert group(Admin(coordinator), "g")["lag"] == "21"


def test_offsets_above_53_bits_are_exact(coordinator):
    commit(coordinator, "g", 1, 2**62 + 1)
    (row,) = group(Admin(coordinator), "g", partitions=1)["partitions"]["rows"]
    assert row["offset"] == str(2**62 + 1)


def test_a_rebalancing_group_shows_since_when_and_whom_it_waits_for(coordinator):
    ids = stable(coordinator, "g", ["a", "b"], 2)
    assert group(Admin(coordinator), "g")["phase"] is None
    coordinator.advance(1_000)
    joining(coordinator, "g", "a", ids["a"])
    phase = group(Admin(coordinator), "g", members=1)["phase"]
    assert (phase["name"], phase["since_ms"]) == ("join", 1_100)
    assert phase["deadline_ms"] == 601_100
    assert [(m["client_id"], m["last_seen_ms"]) for m in phase["awaited"]] == [("b", 100)]
    (listed,) = groups(Admin(coordinator), state="rebalancing")["groups"]
    assert listed["rebalancing_since_ms"] == 1_100


def test_of_many_awaited_members_the_longest_silent_are_shown(coordinator):
    clients = [f"c{n:02}" for n in range(60)]
    ids = stable(coordinator, "g", clients, 2)
    for client in clients[:30]:
        coordinator.advance(10)
        beat = {"group_id": "g", "generation_id": 1, "member_id": ids[client]}
        coordinator.send(pb.HeartbeatRequest(**beat))
    joining(coordinator, "g", "new")
    phase = group(Admin(coordinator), "g")["phase"]
    assert phase["awaited_count"] == 60
    assert sorted(m["client_id"] for m in phase["awaited"]) == clients[30:50]


def test_all_rebalances_that_led_to_a_generation_are_shown(coordinator):
    stable(coordinator, "g", ["a"], 2)
    found = views.generation(Admin(coordinator), "g", 1)["rebalances"]
    assert [(r["generation"], r["outcome"]) for r in found] == [(1, "completed")]
    assert views.generation(Admin(coordinator), "g", 7)["rebalances"] == []


def test_a_generation_shows_which_partitions_went_from_whom_to_whom(coordinator):
    ids = stable(coordinator, "g", ["a", "b"], 4)
    coordinator.advance(1_000)
    leaving = [{"member_id": ids["a"], "reason": "deploy"}]
    coordinator.send(pb.LeaveGroupRequest(group_id="g", members=leaving))
    coordinator.advance(500)
    joining(coordinator, "g", "b", ids["b"])
    assign(coordinator, "g", 2, ids["b"], 4)
    (found,) = views.generation(Admin(coordinator), "g", 2)["rebalances"]
    (move,) = found["moves"]
    assert (move["partitions"], move["from"], move["to"]) == ("t-0…3", "a", "b")
    assert (move["has_moved"], move["count"], move["known_by"]) == (True, 4, "it left")
    assert "500 ms" in move["not_worked_on"]
    assert (found["partitions_moved"], found["partitions_left_out"]) == (4, 0)
    assert found["not_worked_on"]["partitions"] == 4
    (removed,) = found["removed"]
    assert (removed["client_id"], removed["removed_at_ms"]) == ("a", 1_100)


def test_shards_are_paged_and_those_without_a_leader_counted(coordinator):
    admin = Admin(coordinator, shards=120)
    admin.describe().nodes.add(node_id=2, host="fd00::1", port=7400)
    found = views.nodes(admin, page=3)
    assert [s["shard"] for s in found["shards"]["rows"]] == list(range(100, 120))
    assert (found["unled"], found["shards"]["matching"]) == (1, 120)
    addresses = [node["address"] for node in found["nodes"]]
    assert addresses == ["localhost:7400", "[fd00::1]:7400"]


@pytest.mark.parametrize("value", ["x", "-1", "1.5", "٣", "9" * 30])
def test_a_query_that_needs_a_number_says_so(value):
    request = HttpRequest(method="GET", path="/api/nodes", query={"page": [value]})
    with pytest.raises(ValueError, match="page is a number"):
        server._number(request, "page")


def test_every_file_of_the_page_is_served_with_its_type():
    console = server.Console("127.0.0.1:1", Credentials(), needs_token=False)
    index = console(HttpRequest(method="GET", path="/"))
    assert index.content_type.startswith("text/html")
    for name in ("main.js", "table.js", "console.css"):
        answer = console(HttpRequest(method="GET", path=f"/{name}"))
        assert answer.status is HTTPStatus.OK
        assert answer.content_type.startswith(("text/javascript", "text/css"))
    assert console(HttpRequest(method="GET", path="/../server.py")).status is HTTPStatus.NOT_FOUND


def test_plans_differ_by_why_how_many_and_what_they_cost():
    plan = Rebalance(
        partitions_moved=3,
        unowned_partitions=2,
        unowned_ms_max_at_least=900,
        unowned_ms_max=1_200,
        session_plan={
            "triggers": [{"cause": "member_died", "member_id": "w-a"}, {"cause": "member_came"}],
            "trigger_count": 4,
            "partitions": 12,
        },
    )
    assert plan_line(plan) == (
        "nothing was heard of member 'w-a' for its whole lease and 3 more events; "
        "3 of 12 partitions moved; 2 not worked on for between 900 ms and 1.2 s."
    )
    calm = Rebalance(session_plan={"triggers": [{"cause": "policy_changed"}], "trigger_count": 1})
    assert plan_line(calm) == "the policy was changed; 0 of 0 partitions moved."


def test_a_session_group_is_shown_with_handoffs_and_members_that_are_not_at_work():
    options = SessionGroup(
        members=[
            {"member_id": "m1", "member_name": "w-a", "ready": True, "partition_count": 3},
            {"member_id": "m2", "client_id": "c2", "ready": True, "suspect": True},
        ],
        topics=[
            {
                "name": "t",
                "free": [
                    {"partitions": {"first": 4, "last": 6}, "why": "capacity"},
                    {"partitions": {"first": 9, "last": 9}, "why": "capacity"},
                ],
            }
        ],
        handoffs=[
            {"topic": "t", "partition": n, "opened_at_ms": 100 - n, "source_member_id": "m1",
             "successor_member_id": "m2", "waits_for": "m1", "phase": "drain"}
            for n in range(30)
        ],
        policy={"lease_ms": 3_000, "mode": "WARM"},
    )  # fmt: skip
    shown = session_view(options)
    assert shown["handoff_count"] == 30
    assert len(shown["handoffs"]) == 20
    assert shown["handoffs"][0]["partition"] == "t-29"  # It is open for longest.
    assert (shown["handoffs"][0]["from"], shown["handoffs"][0]["to"]) == ("w-a", "c2")
    assert [(row["name"], row["status"]) for row in shown["notable"]] == [("c2", "suspect")]
    assert shown["free"] == {"capacity": 4}
    assert (shown["lease_ms"], shown["mode"]) == (3_000, "warm")
    assert len(json.dumps(shown)) < PAGE_BYTES
