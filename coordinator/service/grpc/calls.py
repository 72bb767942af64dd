"""Mapping of gRPC's calls to the pipeline's: the kind of each RPC, its groups, its caller.

`METHODS` has a line for every RPC that is served; an RPC without a line is closed to all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeAlias
from urllib.parse import unquote

import grpc

from coordinator.core.values.ids import TOPICS_GROUP
from coordinator.security.authenticator import bearer_token, principal_of_certificate
from coordinator.service import calls
from coordinator.service.calls import Call, CallingPeer, Credential, Kind

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"  # Any: the message types of the RPC.
Groups = Callable[[Any], Sequence[str | None]]  # Any: the request. None: no group in particular.


def _group(request: Any) -> Sequence[str | None]:
    return (request.group_id,)


def _no_group(_: Any) -> Sequence[str | None]:
    return (None,)


def _topics_group(_: Any) -> Sequence[str | None]:
    return (TOPICS_GROUP,)


def _each_beat(request: Any) -> Sequence[str | None]:
    return [beat.group_id for beat in request.heartbeats]


@dataclass(frozen=True, slots=True)
class Method:
    """Kind of an RPC. `groups`: extracts the groups that a request names."""

    kind: Kind
    groups: Groups = _no_group


class GrpcCall(Call):
    """A call by gRPC.

    Args:
        request: None: it could not be parsed, or the RPC takes a stream.
        context: gRPC's.
    """

    __slots__ = ("_caller", "_groups_of", "context", "request")
    system = "grpc"

    def __init__(self, name: str, method: Method, request: Any, context: Context) -> None:
        super().__init__(method.kind, name)
        self.request = request
        self.context = context
        self._groups_of = method.groups
        self._caller: CallingPeer | None = None

    @property
    def caller(self) -> CallingPeer:
        if self._caller is None:
            # Without a reference to the call: that would be a cycle, which keeps the request.
            show = partial(_credential, self.context)
            self._caller = CallingPeer(*_addresses(self.context.peer()), show)
        return self._caller

    @property
    def groups(self) -> Sequence[str | None]:
        return () if self.request is None else self._groups_of(self.request)

    def names(self, group_id: str) -> None:
        """Note the group that all messages of a stream are about."""
        self._groups_of = lambda _: (group_id,)

    @property
    def member_id(self) -> str:
        return getattr(self.request, "member_id", "")

    def remaining_s(self) -> float | None:
        return self.context.time_remaining()

    def trace(self) -> Mapping[str, str]:
        metadata = self.context.invocation_metadata() or ()
        return {key: value for key, value in metadata if isinstance(value, str)}


_V1 = "/coordinator.v1."
_HEALTH = "/grpc.health.v1.Health/"
_REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/"
HEARTBEAT = f"{_V1}GroupCoordinator/Heartbeat"

METHODS: dict[str, Method] = {
    f"{_V1}GroupCoordinator/FindCoordinator": Method(calls.FIND_COORDINATOR, _group),
    f"{_V1}GroupCoordinator/JoinGroup": Method(calls.JOIN_GROUP, _group),
    f"{_V1}GroupCoordinator/SyncGroup": Method(calls.SYNC_GROUP, _group),
    HEARTBEAT: Method(calls.HEARTBEAT, _group),
    f"{_V1}GroupCoordinator/HeartbeatBatch": Method(calls.HEARTBEAT_BATCH, _each_beat),
    f"{_V1}GroupCoordinator/LeaveGroup": Method(calls.LEAVE_GROUP, _group),
    f"{_V1}GroupCoordinator/OffsetCommit": Method(calls.OFFSET_COMMIT, _group),
    f"{_V1}GroupCoordinator/OffsetFetch": Method(calls.OFFSET_FETCH, _group),
    f"{_V1}GroupCoordinator/ReportLogEnds": Method(calls.REPORT_LOG_ENDS, _group),
    f"{_V1}GroupCoordinator/PutDocuments": Method(calls.PUT_DOCUMENTS, _group),
    f"{_V1}GroupCoordinator/FetchDocuments": Method(calls.FETCH_DOCUMENTS, _group),
    f"{_V1}GroupSessions/Session": Method(calls.SESSION, lambda r: (r.attach.group_id,)),
    f"{_V1}GroupAdmin/ListGroups": Method(calls.LIST_GROUPS),
    f"{_V1}GroupAdmin/DescribeGroups": Method(calls.DESCRIBE_GROUPS, lambda r: r.groups),
    f"{_V1}GroupAdmin/DeleteGroups": Method(calls.DELETE_GROUPS, lambda r: r.groups_names),
    f"{_V1}GroupAdmin/OffsetDelete": Method(calls.OFFSET_DELETE, _group),
    f"{_V1}GroupAdmin/RemoveMembers": Method(calls.REMOVE_MEMBERS, _group),
    f"{_V1}GroupAdmin/ListLogEnds": Method(calls.LIST_LOG_ENDS, _group),
    f"{_V1}GroupAdmin/ListRebalances": Method(calls.LIST_REBALANCES, _group),
    f"{_V1}GroupAdmin/DescribePhase": Method(calls.DESCRIBE_PHASE, _group),
    f"{_V1}GroupAdmin/DescribeSessionGroup": Method(calls.DESCRIBE_SESSION_GROUP, _group),
    f"{_V1}GroupAdmin/SetGroupPolicy": Method(calls.SET_GROUP_POLICY, _group),
    f"{_V1}GroupAdmin/EvictMember": Method(calls.EVICT_MEMBER, _group),
    f"{_V1}GroupAdmin/WatchRebalances": Method(calls.WATCH_REBALANCES, lambda r: r.group_ids),
    f"{_V1}ClusterAdmin/DescribeCluster": Method(calls.DESCRIBE_CLUSTER),
    f"{_V1}ClusterAdmin/ElectLeaders": Method(calls.ELECT_LEADERS),
    f"{_V1}ClusterAdmin/MoveShard": Method(calls.MOVE_SHARD),
    f"{_V1}ClusterAdmin/DrainNode": Method(calls.DRAIN_NODE),
    f"{_V1}ShardReplica/Fetch": Method(calls.FETCH),
    f"{_V1}TopicAdmin/ListTopics": Method(calls.LIST_TOPICS),
    f"{_V1}TopicAdmin/SetTopic": Method(calls.SET_TOPIC, _topics_group),
    f"{_V1}TopicAdmin/DeleteTopic": Method(calls.DELETE_TOPIC, _topics_group),
    f"{_V1}TopicReplica/FetchTopics": Method(calls.TELL_TOPICS),
    f"{_V1}TopicReplica/FetchLogEnds": Method(calls.TELL_LOG_ENDS),
    f"{_HEALTH}Check": Method(Kind("Check", is_open=True, is_throttled=False)),
    f"{_HEALTH}List": Method(Kind("List", is_open=True, is_throttled=False)),
    f"{_HEALTH}Watch": Method(Kind("Watch", is_open=True)),
    # Reflection shows the contract, to every authenticated caller.
    f"{_REFLECTION}ServerReflectionInfo": Method(Kind("ServerReflectionInfo", is_throttled=False)),
}
"""RPCs by the method's full name."""


def method_of(name: str) -> Method:
    """Return the line of an RPC, by its full name; a closed kind if it has none."""
    return METHODS.get(name) or Method(Kind(name.rpartition("/")[2], is_closed=True))


@lru_cache(maxsize=1_024)
def _addresses(peer: str) -> tuple[str, str]:
    """Address of a peer as logs show it, and as groups do."""
    peer = unquote(peer)
    return peer, client_host(peer)


def client_host(peer: str) -> str:
    """Address of a peer as groups and Kafka's tools show it, `/127.0.0.1`."""
    if peer.startswith(("ipv4:", "ipv6:")):
        return "/" + peer.split(":", 1)[1].rsplit(":", 1)[0].strip("[]")
    return "/" + peer


def _credential(context: Context) -> Credential:
    metadata = context.invocation_metadata() or ()
    header = next((str(value) for key, value in metadata if key == "authorization"), None)
    token = bearer_token(header)
    if token is not None:
        return Credential(token)
    return Credential(principal=_principal_of(context))


def _principal_of(context: Context) -> str | None:
    about = context.auth_context()

    def texts(name: str) -> list[str]:
        return [value.decode(errors="replace") for value in about.get(name, ())]

    return principal_of_certificate(
        uris=texts("peer_uri"),
        common_name=next(iter(texts("x509_common_name")), ""),
        dns_names=texts("peer_dns"),
    )
