"""Calls as the pipeline sees them, whatever transport they came by: who calls, and for what.

`Kind` is a line for each call that a node answers: the operations that its caller needs (any of
them will do; no operation contains another), whether callers may be held back, whether it goes
ahead of others. A transport has a table from its own requests to these kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from coordinator.core import requests as c
from coordinator.security.authenticator import Caller as Identity
from coordinator.security.rules import Operation

READ, JOIN, COMMIT, ADMIN = Operation.READ, Operation.JOIN, Operation.COMMIT, Operation.ADMIN


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of call. `name` is the one that Kafka's API or the contract has.

    operations: for each group that is named; none: it is enough to be recognised.
    command: what it asks of groups; None: it is not answered by `Pipeline.answer`.
    is_open: anybody may. is_closed: nobody may, where callers are asked who they are.
    is_throttled: a caller that calls too often is held back.
    is_urgent: it does not wait for its caller's turn, as other expensive calls do.
    is_awaited: a rebalance waits for it, if it is of a member that has its id.
    shows_readable: it lists groups, of which a caller sees those that it may read.
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


def _of_nodes(name: str, *operations: Operation) -> Kind:
    return Kind(name, operations, is_throttled=False)


# Whoever may join, commit or look may ask where a group's coordinator is.
FIND_COORDINATOR = _of_nodes("FindCoordinator", READ, JOIN, COMMIT, ADMIN)
JOIN_GROUP = Kind("JoinGroup", (JOIN,), c.JoinGroup, is_awaited=True)
SYNC_GROUP = Kind("SyncGroup", (JOIN,), c.SyncGroup, is_awaited=True)
HEARTBEAT = Kind("Heartbeat", (JOIN,))
HEARTBEAT_BATCH = Kind("HeartbeatBatch", (JOIN,))
HEARTBEAT_STREAM = Kind("HeartbeatStream", (JOIN,))
# Whoever leaves makes room for others.
LEAVE_GROUP = Kind("LeaveGroup", (JOIN,), c.LeaveGroup, is_urgent=True)
OFFSET_COMMIT = Kind("OffsetCommit", (COMMIT,), c.CommitOffsets)
OFFSET_FETCH = Kind("OffsetFetch", (READ, COMMIT), c.FetchOffsets)
REPORT_LOG_ENDS = Kind("ReportLogEnds", (JOIN,), c.ReportLogEnds)
LIST_GROUPS = Kind("ListGroups", (), c.ListGroups, shows_readable=True)
DESCRIBE_GROUPS = Kind("DescribeGroups", (READ,), c.DescribeGroup)
DELETE_GROUPS = Kind("DeleteGroups", (ADMIN,), c.DeleteGroup)
OFFSET_DELETE = Kind("OffsetDelete", (ADMIN,), c.DeleteOffsets)
LIST_LOG_ENDS = Kind("ListLogEnds", (READ,), c.ListLogEnds)
LIST_REBALANCES = Kind("ListRebalances", (READ,), c.ListRebalances)
DESCRIBE_PHASE = Kind("DescribePhase", (READ,), c.DescribePhase)
WATCH_REBALANCES = Kind("WatchRebalances", (READ,), shows_readable=True)
# Only where the nodes are: whoever lists groups asks all of them.
DESCRIBE_CLUSTER = _of_nodes("DescribeCluster")
ELECT_LEADERS = _of_nodes("ElectLeaders", ADMIN)
MOVE_SHARD = _of_nodes("MoveShard", ADMIN)
DRAIN_NODE = _of_nodes("DrainNode", ADMIN)
# All records of all groups.
FETCH = _of_nodes("Fetch", ADMIN)


@dataclass(frozen=True, slots=True)
class Credential:
    """What a caller shows: a token, or else the principal that its certificate names."""

    token: str | None = None
    principal: str | None = None


@dataclass(slots=True)
class Caller:
    """Who calls, by one connection or in one call.

    Args:
        peer: its address, as logs show it. host: as groups know it, `/127.0.0.1`, as Kafka's tools
            print it.
        show: asked where callers have to say who they are, and again when a token has ended.
            Raises `security.errors.Unauthenticated`.
    """

    peer: str
    host: str
    show: Callable[[], Credential] = Credential
    identity: Identity | None = None
    """Who it is, once that is found out; None where nobody asks."""

    @property
    def principal(self) -> str:
        """Its name; empty where callers do not say who they are."""
        return "" if self.identity is None else self.identity.principal


@dataclass(slots=True)
class Call:
    """One call, or a stream of messages.

    Args:
        groups: those that it names; None among them: no group in particular, which means all.
            A stream names them anew with each message.
        member_id: of the member that calls, if it has one.
        remaining_s: for how long its client waits; None: for ever.
        trace: the client's trace context, by the names of W3C's headers.
        where: what a refusal is logged as.
        system: the transport, as traces name it.
    """

    kind: Kind
    caller: Caller
    groups: Sequence[str | None] = (None,)
    member_id: str = ""
    remaining_s: Callable[[], float | None] = lambda: None
    trace: Callable[[], Mapping[str, str]] = dict
    where: str = ""
    system: str = ""
    is_admitted: bool = False

    @property
    def group_id(self) -> str:
        """The group that it names, if that is one."""
        return self.groups[0] or "" if len(self.groups) == 1 else ""

    @property
    def is_awaited(self) -> bool:
        """True if a rebalance waits for it."""
        return self.kind.is_awaited and bool(self.member_id)

    def asks(self, requests: Sequence[c.Request]) -> bool:
        """True if the requests are of its kind, and for the groups that it names."""
        named = set(self.groups)
        return all(
            type(request) is self.kind.command and getattr(request, "group_id", None) in named
            for request in requests
        )
