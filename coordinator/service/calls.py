"""Calls as the pipeline sees them, from any transport: caller, kind, groups.

There is one `Kind` for each call that a node answers: the operations of which its caller needs one
(no operation contains another), whether callers are throttled, whether it is queued. A transport
has a table from its own requests to these kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from coordinator.core.values import requests as c
from coordinator.core.values import session_messages as q
from coordinator.security.authenticator import Caller as Identity
from coordinator.security.rules import Operation

READ, JOIN, COMMIT, ADMIN = Operation.READ, Operation.JOIN, Operation.COMMIT, Operation.ADMIN


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of call. `name`: as in Kafka's API or the contract.

    operations: the caller needs one of them on each group that is named; empty: authentication is
        enough.
    command: the command that it becomes; None: it is not answered by `Pipeline.answer`.
    is_open: anybody may call it. is_closed: nobody may, on a node with a guard.
    is_throttled: it counts for `max_requests_per_second`.
    is_urgent: it does not wait for its caller's turn, as other expensive calls do.
    is_awaited: a rebalance waits for it, if its member has an id already.
    shows_readable: it lists groups, and shows those that the caller may read.
    changes_reserved: its group is the one that keeps the counts of topics, which all others refuse.
    """

    name: str
    operations: tuple[Operation, ...] = ()
    command: type[c.Request] | None = None
    is_open: bool = False
    is_closed: bool = False
    is_throttled: bool = True
    is_urgent: bool = False
    is_awaited: bool = False
    shows_readable: bool = False
    changes_reserved: bool = False


def _of_nodes(name: str, *operations: Operation) -> Kind:
    return Kind(name, operations, is_throttled=False)


# A caller with any operation on a group may ask for its coordinator.
FIND_COORDINATOR = _of_nodes("FindCoordinator", READ, JOIN, COMMIT, ADMIN)
JOIN_GROUP = Kind("JoinGroup", (JOIN,), c.JoinGroup, is_awaited=True)
SYNC_GROUP = Kind("SyncGroup", (JOIN,), c.SyncGroup, is_awaited=True)
HEARTBEAT = Kind("Heartbeat", (JOIN,))
HEARTBEAT_BATCH = Kind("HeartbeatBatch", (JOIN,))
# Leaving frees room, so it is never queued.
LEAVE_GROUP = Kind("LeaveGroup", (JOIN,), c.LeaveGroup, is_urgent=True)
SESSION = Kind("Session", (JOIN,), q.Attach, is_awaited=True)
OFFSET_COMMIT = Kind("OffsetCommit", (COMMIT,), c.CommitOffsets)
OFFSET_FETCH = Kind("OffsetFetch", (READ, COMMIT), c.FetchOffsets)
PUT_DOCUMENTS = Kind("PutDocuments", (COMMIT,), c.PutDocuments)
FETCH_DOCUMENTS = Kind("FetchDocuments", (READ, COMMIT), c.FetchDocuments)
REPORT_LOG_ENDS = Kind("ReportLogEnds", (JOIN,), c.ReportLogEnds)
LIST_GROUPS = Kind("ListGroups", (), c.ListGroups, shows_readable=True)
DESCRIBE_GROUPS = Kind("DescribeGroups", (READ,), c.DescribeGroup)
DELETE_GROUPS = Kind("DeleteGroups", (ADMIN,), c.DeleteGroup)
OFFSET_DELETE = Kind("OffsetDelete", (ADMIN,), c.DeleteOffsets)
REMOVE_MEMBERS = Kind("RemoveMembers", (ADMIN,), c.LeaveGroup, is_urgent=True)
LIST_LOG_ENDS = Kind("ListLogEnds", (READ,), c.ListLogEnds)
LIST_REBALANCES = Kind("ListRebalances", (READ,), c.ListRebalances)
DESCRIBE_PHASE = Kind("DescribePhase", (READ,), c.DescribePhase)
DESCRIBE_SESSION_GROUP = Kind("DescribeSessionGroup", (READ,), c.DescribeSessionGroup)
SET_GROUP_POLICY = Kind("SetGroupPolicy", (ADMIN,), c.SetGroupPolicy)
EVICT_MEMBER = Kind("EvictMember", (ADMIN,), c.EvictMember, is_urgent=True)
WATCH_REBALANCES = Kind("WatchRebalances", (READ,), shows_readable=True)
# Needs no operation: it shows the nodes, and every client that lists groups has to ask them all.
DESCRIBE_CLUSTER = _of_nodes("DescribeCluster")
ELECT_LEADERS = _of_nodes("ElectLeaders", ADMIN)
MOVE_SHARD = _of_nodes("MoveShard", ADMIN)
DRAIN_NODE = _of_nodes("DrainNode", ADMIN)
# Fetch hands out all records of all groups.
FETCH = _of_nodes("Fetch", ADMIN)
# Every client of the Kafka listener sees topics too.
LIST_TOPICS = Kind("ListTopics")
SET_TOPIC = Kind("SetTopic", (ADMIN,), c.CommitOffsets, changes_reserved=True)
DELETE_TOPIC = Kind("DeleteTopic", (ADMIN,), c.DeleteOffsets, changes_reserved=True)
TELL_TOPICS = _of_nodes("FetchTopics", ADMIN)
TELL_LOG_ENDS = _of_nodes("FetchLogEnds", ADMIN)


@dataclass(frozen=True, slots=True)
class Credential:
    """Credential of a caller: a token, or else the principal that its certificate names."""

    token: str | None = None
    principal: str | None = None


@dataclass(slots=True)
class CallingPeer:
    """Caller of one call, or of all calls of a connection.

    Args:
        peer: its address, as logs show it.
        host: its address as groups and Kafka's tools show it, `/127.0.0.1`.
        show: returns its credential; called on a node with a guard, and again when a token has
            expired. Raises `security.errors.Unauthenticated`.
    """

    peer: str
    host: str
    show: Callable[[], Credential] = Credential
    identity: Identity | None = None
    """Authenticated identity; None before authentication, and on a node without a guard."""

    @property
    def principal(self) -> str:
        """Name of the identity; empty without one."""
        return "" if self.identity is None else self.identity.principal


class Call:
    """One call, or a stream of messages. Each transport has a subclass.

    Most calls are not asked who calls, or which groups they name: a transport says so when the
    pipeline asks.

    Args:
        where: name of the call in logs of refusals.
    """

    __slots__ = ("is_admitted", "kind", "where")

    system: ClassVar[str]
    """Name of the transport in traces."""
    is_paid_later: ClassVar[bool] = False
    """True if a caller that calls too often is served, and then told to `pause`; else it waits."""

    def __init__(self, kind: Kind, where: str = "") -> None:
        self.kind = kind
        self.where = where
        self.is_admitted = False

    @property
    def caller(self) -> CallingPeer:
        """Its caller, the same object each time."""
        raise NotImplementedError

    @property
    def groups(self) -> Sequence[str | None]:
        """Groups that it names; None: it names none, and needs a rule for all groups. Those of a
        stream are the groups of its last message."""
        raise NotImplementedError

    @property
    def member_id(self) -> str:
        """Id of the member that calls; empty if it has none."""
        return ""

    def remaining_s(self) -> float | None:
        """Return the seconds until the client's deadline; None: no deadline."""
        return None

    def pause(self, seconds: float) -> None:
        """After this call is answered, stop reading from the caller's connection for this long."""
        raise NotImplementedError

    def trace(self) -> Mapping[str, str]:
        """Return the client's trace context, by the names of W3C's headers."""
        return {}

    @property
    def group_id(self) -> str:
        """The group that it names; empty unless it names exactly one."""
        groups = self.groups
        return groups[0] or "" if len(groups) == 1 else ""

    @property
    def is_awaited(self) -> bool:
        """True if a rebalance waits for it."""
        return self.kind.is_awaited and bool(self.member_id)

    def covers(self, requests: Sequence[c.Request]) -> bool:
        """True if the commands are of its kind, and for the groups that it names."""
        kind, groups = self.kind.command, self.groups
        named = groups if len(groups) == 1 else frozenset(groups)
        for request in requests:
            if type(request) is not kind or getattr(request, "group_id", None) not in named:
                return False
        return True
