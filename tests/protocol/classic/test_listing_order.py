"""Pages of the list of groups: orders, skipped groups, lag, the last rebalance."""

import pytest

from coordinator.service.refusals import Malformed
from coordinator.v1 import admin_pb2 as admin
from coordinator.v1 import group_pb2 as pb
from tests.kit.classic_scenario import ClassicScenario

ORDERS = admin.ListGroupsRequest


@pytest.fixture
def s() -> ClassicScenario:
    return ClassicScenario(group_rebalance_journal=True)


def listing(s: ClassicScenario, **request) -> dict[str, admin.ListGroupsResponse.Group]:
    reply = s.send(admin.ListGroupsRequest(**request)).response
    return {group.group_id: group for group in reply.groups}


def stable(s: ClassicScenario, group: str) -> str:
    """A group of one member that has synced; its member id."""
    call = s.join(group=group, srt=600_000, rt=600_000)
    s.advance(50)
    joined = call.response
    s.sync(joined.member_id, joined.generation_id, {joined.member_id: b"all"}, group=group)
    return joined.member_id


def report(s: ClassicScenario, group: str, member_id: str, ends: dict[int, int]) -> None:
    topics = [
        {
            "name": "t",
            "partitions": [{"partition_index": p, "log_end_offset": e} for p, e in ends.items()],
        }
    ]
    s.send(
        pb.ReportLogEndsRequest(group_id=group, generation_id=1, member_id=member_id, topics=topics)
    )


@pytest.fixture
def four(s) -> ClassicScenario:
    """a and b: Stable, b further behind; c: Empty; d: rebalancing, since before b was Stable."""
    first = stable(s, "a")
    s.advance(1_000)
    s.join(group="d", srt=600_000, rt=600_000)
    s.commit({("t", 0): 5}, group="c")
    second = stable(s, "b")
    s.join(group="d", srt=600_000, rt=600_000)
    s.commit({("t", 0): 40, ("t", 1): 120}, group="a", member_id=first, generation=1)
    report(s, "a", first, {0: 50, 1: 100})
    report(s, "b", second, {0: 30, 1: 7})
    return s


def test_a_listing_shows_assignor_lag_and_the_last_rebalance(four):
    groups = listing(four, with_lag=True)
    assert {name: group.lag for name, group in groups.items()} == {
        "a": 10,
        "b": 37,
        "c": -1,
        "d": -1,
    }
    assert groups["a"].protocol_data == "range"
    assert groups["c"].protocol_data == ""
    assert groups["a"].last_rebalance_ms == 50
    assert groups["c"].last_rebalance_ms == -1
    assert {name: group.lag for name, group in listing(four).items()} == dict.fromkeys("abcd", -1)


def test_a_listing_shows_since_when_a_group_rebalances(s):
    stable(s, "a")
    s.advance(1_000)
    s.join(group="a", srt=600_000, rt=600_000)
    s.advance(200)
    (group,) = listing(s).values()
    assert (group.group_state, group.rebalancing_since_ms) == ("PreparingRebalance", 1_050)
    assert group.last_rebalance_ms == 50


@pytest.mark.parametrize(
    ("order", "ids"),
    [
        (ORDERS.ORDER_GROUP_ID, "abcd"),
        (ORDERS.ORDER_STATE, "dabc"),
        (ORDERS.ORDER_LAG, "bacd"),
        (ORDERS.ORDER_LAST_REBALANCE, "bdac"),
        (ORDERS.ORDER_MEMBERS, "dabc"),
    ],
)
def test_groups_are_sorted_by_what_operators_look_for(four, order, ids):
    assert list(listing(four, order=order)) == list(ids)
    pages = [listing(four, order=order, skip=skip, limit=2) for skip in (0, 2, 4)]
    assert [list(page) for page in pages] == [list(ids[:2]), list(ids[2:]), []]


def test_an_order_that_is_none_is_refused(s):
    with pytest.raises(Malformed, match="ORDER_LAG"):
        s.send(admin.ListGroupsRequest(order=99))


def test_a_page_of_a_large_node_holds_its_own_groups_only(s):
    for number in range(1_000):
        s.c.send(
            pb.OffsetCommitRequest(
                group_id=f"g{number:04}",
                generation_id=-1,
                topics=[{"name": "t", "partitions": [{"partition_index": 0}]}],
            )
        )
    reply = s.send(admin.ListGroupsRequest(skip=900, limit=50, order=ORDERS.ORDER_LAG)).response
    assert [group.group_id for group in reply.groups] == [f"g{n:04}" for n in range(900, 950)]
    assert reply.matching == 1_000
