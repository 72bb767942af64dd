"""What each RPC needs: a line for every RPC that is served; one without a line is refused to all.

A line says which operations will do (any of them; none: it is enough to be recognised), and
for which groups, taken from the request. No operation contains another, so a line names all
that will do: whoever may join, commit or look may ask where a group's coordinator is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from coordinator.runtime.slices import Work, at_once
from coordinator.security.rules import Operation

READ, JOIN, COMMIT, ADMIN = Operation.READ, Operation.JOIN, Operation.COMMIT, Operation.ADMIN
PART = 50
"""Groups between two chances to let others in."""
Groups = Callable[[Any], Iterable[str | None]]  # Any: the request. None: no group in particular.


def _group(request: Any) -> Iterable[str | None]:
    return (request.group_id,)


def _no_group(_: Any) -> Iterable[str | None]:
    return (None,)


def _each_beat(request: Any) -> Iterable[str | None]:
    return [beat.group_id for beat in request.heartbeats]


@dataclass(frozen=True, slots=True)
class Permission:
    """What one RPC needs.

    is_open: nothing. shows_readable: who asks is shown what they may read, of a list of groups in
    the field `groups`, or of a stream of messages of one group each.
    """

    operations: tuple[Operation, ...] = ()
    groups: Groups = _no_group
    is_open: bool = False
    shows_readable: bool = False


def lift_limit(request: Any) -> int:
    """Take the limit out of a request for a list, so that what is hidden does not count: the limit.

    0: it has none.
    """
    limit = int(getattr(request, "limit", 0))
    if limit > 0:
        request.limit = 0
    return limit


def hide(response: Any, limit: int, may_read: Callable[[str], bool]) -> None:
    """Take the groups that may not be read out of a list, then those beyond the limit."""
    at_once(hiding(response, limit, may_read))


def hiding(response: Any, limit: int, may_read: Callable[[str], bool]) -> Work[None]:
    """As `hide`, a slice at a time."""
    kept = []
    for number, group in enumerate(response.groups, 1):
        if may_read(group.group_id):
            kept.append(group)
        if number % PART == 0:
            yield
    if hasattr(response, "matching"):
        response.matching = len(kept)
    if limit > 0:
        del kept[limit:]
    if len(kept) < len(response.groups):
        del response.groups[:]
        for number, group in enumerate(kept, 1):
            response.groups.append(group)
            if number % PART == 0:
                yield


_OPEN = Permission(is_open=True)
_RECOGNISED = Permission()
_COMMAND = Permission((ADMIN,))
_V1 = "/coordinator.v1."

PERMISSIONS: dict[str, Permission] = {
    f"{_V1}GroupCoordinator/FindCoordinator": Permission((READ, JOIN, COMMIT, ADMIN), _group),
    f"{_V1}GroupCoordinator/JoinGroup": Permission((JOIN,), _group),
    f"{_V1}GroupCoordinator/SyncGroup": Permission((JOIN,), _group),
    f"{_V1}GroupCoordinator/Heartbeat": Permission((JOIN,), _group),
    f"{_V1}GroupCoordinator/HeartbeatBatch": Permission((JOIN,), _each_beat),
    f"{_V1}GroupCoordinator/HeartbeatStream": Permission((JOIN,), _each_beat),
    f"{_V1}GroupCoordinator/LeaveGroup": Permission((JOIN,), _group),
    f"{_V1}GroupCoordinator/OffsetCommit": Permission((COMMIT,), _group),
    f"{_V1}GroupCoordinator/OffsetFetch": Permission((READ, COMMIT), _group),
    f"{_V1}GroupCoordinator/ReportLogEnds": Permission((JOIN,), _group),
    f"{_V1}GroupAdmin/ListGroups": Permission(shows_readable=True),
    f"{_V1}GroupAdmin/DescribeGroups": Permission((READ,), lambda request: request.groups),
    f"{_V1}GroupAdmin/DeleteGroups": Permission((ADMIN,), lambda request: request.groups_names),
    f"{_V1}GroupAdmin/OffsetDelete": Permission((ADMIN,), _group),
    f"{_V1}GroupAdmin/ListLogEnds": Permission((READ,), _group),
    f"{_V1}GroupAdmin/ListRebalances": Permission((READ,), _group),
    f"{_V1}GroupAdmin/DescribePhase": Permission((READ,), _group),
    f"{_V1}GroupAdmin/WatchRebalances": Permission(
        (READ,), lambda request: request.group_ids, shows_readable=True
    ),
    # Only where the nodes are: whoever lists groups asks all of them.
    f"{_V1}ClusterAdmin/DescribeCluster": _RECOGNISED,
    f"{_V1}ClusterAdmin/ElectLeaders": _COMMAND,
    f"{_V1}ClusterAdmin/MoveShard": _COMMAND,
    f"{_V1}ClusterAdmin/DrainNode": _COMMAND,
    # All records of all groups.
    f"{_V1}ShardReplica/Fetch": _COMMAND,
    "/grpc.health.v1.Health/Check": _OPEN,
    "/grpc.health.v1.Health/List": _OPEN,
    "/grpc.health.v1.Health/Watch": _OPEN,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": _RECOGNISED,
}
"""By the method's full name."""
