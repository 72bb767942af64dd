"""The node that is asked: the first that answers, a group's coordinator, the controller, or all."""

from __future__ import annotations

import grpc
import pytest

from coordinator.operator import ClusterAdmin, GroupAdmin, TopicAdmin
from coordinator.testing import VirtualCoordinator
from coordinator.v1 import admin_pb2, cluster_pb2, group_pb2, topics_pb2
from coordinator.v1.errors_pb2 import ErrorCode

ONE, TWO, THREE = ADDRESSES = [f"n{number}:7400" for number in (1, 2, 3)]
FIND, LIST = group_pb2.FindCoordinatorRequest, admin_pb2.ListGroupsRequest
BOTH = cluster_pb2.DescribeClusterResponse(
    nodes=[{"node_id": n, "host": f"n{n}", "port": 7400} for n in (1, 2)], controller=2
)


def answering(*responses):
    """A node that answers each request with the response whose type goes with it."""
    by_request = {
        type(response).__name__.replace("Response", "Request"): response for response in responses
    }
    return lambda request: by_request[type(request).__name__]


def coordinating(address: str) -> group_pb2.FindCoordinatorResponse:
    host, port = address.split(":")
    return group_pb2.FindCoordinatorResponse(host=host, port=int(port))


def test_the_first_node_that_answers_describes_the_cluster(network):
    network.nodes = {TWO: answering(BOTH), THREE: answering(cluster_pb2.DescribeClusterResponse())}
    with ClusterAdmin(",".join(ADDRESSES)) as admin:
        assert admin.addresses() == {1: ONE, 2: TWO}
        network.nodes = {}
        with pytest.raises(grpc.RpcError):
            admin.describe()


def test_a_node_that_knows_no_coordinator_is_passed_over(network):
    nobody = answering(group_pb2.FindCoordinatorResponse())
    network.nodes = {ONE: nobody, TWO: answering(coordinating(THREE))}
    with GroupAdmin(f"{ONE},{TWO}") as admin:
        assert admin.coordinator_of("g") == THREE
        network.nodes = {TWO: nobody}
        with pytest.raises(LookupError, match="Nobody coordinates group 'g' at present; try again"):
            admin.coordinator_of("g")
        network.nodes = {ONE: nobody}
        with pytest.raises(grpc.RpcError):
            admin.coordinator_of("g")


@pytest.mark.parametrize(("remember", "times"), [(True, 1), (False, 3)])
def test_a_coordinator_is_remembered_if_that_is_wanted(network, remember, times):
    network.nodes = {ONE: answering(coordinating(TWO))}
    with GroupAdmin(ONE, remember=remember) as admin:
        assert {admin.coordinator_of("g") for _ in range(3)} == {TWO}
    assert len(network.requests(FIND)) == times


def test_coordinators_are_known_from_a_list(network):
    listed = admin_pb2.ListGroupsResponse(groups=[{"group_id": "g"}])
    nothing = admin_pb2.ListGroupsResponse()
    network.nodes = {ONE: answering(BOTH, nothing), TWO: answering(listed)}
    with GroupAdmin(ONE, remember=True) as admin:
        admin.list_groups()
        assert admin.coordinator_of("g") == TWO
    assert not network.requests(FIND)


def test_changes_of_the_cluster_go_to_the_controller_and_draining_to_the_node(network):
    done = cluster_pb2.MoveShardResponse()
    network.nodes = {
        ONE: answering(BOTH, cluster_pb2.DrainNodeResponse()),
        TWO: answering(done, cluster_pb2.ElectLeadersResponse()),
    }
    with ClusterAdmin(ONE) as admin:
        admin.move(3, [1, 2])
        admin.elect()
        admin.drain(1)
        with pytest.raises(LookupError, match="there is no node 7"):
            admin.drain(7)
    kinds = {type(request).__name__: address for address, request in network.asked}
    assert kinds["MoveShardRequest"] == kinds["ElectLeadersRequest"] == TWO
    assert kinds["DrainNodeRequest"] == ONE


@pytest.mark.parametrize(
    ("message", "expected"), [("", "COORDINATOR_NOT_AVAILABLE"), ("no controller", "no controller")]
)
def test_a_cluster_without_a_controller_says_why(network, message, expected):
    refusal = cluster_pb2.ElectLeadersResponse(
        error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message=message
    )
    network.nodes = {ONE: answering(cluster_pb2.DescribeClusterResponse(controller=-1), refusal)}
    with ClusterAdmin(ONE) as admin, pytest.raises(LookupError, match=f"^{expected}$"):
        admin.elect()


def test_topics_are_listed_by_the_first_node_that_answers(network):
    listed = topics_pb2.ListTopicsResponse(topics=[{"name": "t"}])
    network.nodes = {THREE: answering(BOTH), TWO: answering(listed)}
    with TopicAdmin(THREE) as admin:
        assert [topic.name for topic in admin.list_topics()] == ["t"]
        listed.error_code, listed.error_message = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "a while"
        with pytest.raises(LookupError, match="topics cannot be listed at present: a while"):
            admin.list_topics()
        network.nodes = {THREE: answering(BOTH)}
        with pytest.raises(grpc.RpcError):
            admin.list_topics()


# --- Groups of several nodes ---


@pytest.fixture
def groups(network):
    """Two nodes, of which one coordinates the groups a, c, e and the other one b, d."""
    for address, names in ((ONE, "ace"), (TWO, "bd")):
        coordinator = VirtualCoordinator()
        for name in names:
            topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
            coordinator.send(
                group_pb2.OffsetCommitRequest(group_id=name, generation_id=-1, topics=topics)
            )
        network.nodes[address] = lambda request, node=coordinator: (
            BOTH
            if isinstance(request, cluster_pb2.DescribeClusterRequest)
            else node.send(request).response
        )
    with GroupAdmin(ONE) as admin:
        yield admin


def test_groups_of_all_nodes_are_listed_in_order(groups):
    assert [group.group_id for group in groups.list_groups()] == list("abcde")


@pytest.mark.parametrize(
    ("skip", "limit", "page"),
    [(0, 2, "ab"), (1, 3, "bcd"), (4, 3, "e"), (5, 1, ""), (0, 9, "abcde")],
)
def test_a_page_of_groups_of_several_nodes(groups, skip, limit, page):
    groups_found, matching = groups.find_groups(skip=skip, limit=limit)
    assert ("".join(group.group_id for group in groups_found), matching) == (page, 5)


def test_one_node_alone_leaves_groups_out_by_itself(groups, network):
    network.nodes[TWO] = network.nodes[ONE]
    alone = cluster_pb2.DescribeClusterResponse(nodes=BOTH.nodes[:1])
    answer = network.nodes[ONE]
    network.nodes[ONE] = lambda request: (
        alone if isinstance(request, cluster_pb2.DescribeClusterRequest) else answer(request)
    )
    page, matching = groups.find_groups(skip=1, limit=1)
    assert ([group.group_id for group in page], matching) == (["c"], 3)
    (call,) = network.requests(LIST)
    assert (call[1].skip, call[1].limit) == (1, 1)


@pytest.mark.parametrize(
    ("message", "expected"), [("", "COORDINATOR_LOAD_IN_PROGRESS"), ("it loads", "it loads")]
)
def test_a_list_that_lacks_groups_is_refused_and_a_page_is_not(network, message, expected):
    lacking = admin_pb2.ListGroupsResponse(
        error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error_message=message
    )
    some = admin_pb2.ListGroupsResponse(groups=[{"group_id": "g"}], matching=1)
    network.nodes = {ONE: answering(BOTH, lacking), TWO: answering(some)}
    with GroupAdmin(ONE) as admin:
        with pytest.raises(
            LookupError, match=f"The groups cannot be listed at present: {expected}."
        ):
            admin.list_groups()
        assert [group.group_id for group in admin.find_groups(limit=1)[0]] == ["g"]
