"""The settings of members as their callers write them: typed, and checked when a member is made."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypedDict, cast

from coordinator.assignors import by_name
from coordinator.client.config import MemberConfig
from coordinator.client.log_ends import LogEnds
from coordinator.dial import Credentials


class MemberSettings(TypedDict, total=False):
    """Keyword arguments of `GroupMember` and `BlockingMember`; each may be left out.

    The name of a time ends with its unit.
    """

    assignors: Sequence[str]
    """Assignors that the member can follow, best first. Default: range. The group follows one that
    all its members name. If all of a member's support the cooperative protocol (cooperative-sticky
    does), it keeps its partitions during a rebalance; else it gives all up before it joins again
    (eager)."""
    fallback_assignor: str | None
    """Eager assignor with which the member joins if the group has refused all of `assignors`
    (INCONSISTENT_GROUP_PROTOCOL); it warns, and says how to move the group. None: the member stops
    with a FatalError."""
    client_id: str
    """Name of this process in descriptions of the group; part of the member id."""
    instance_id: str | None
    """Makes the member static: a process that returns under this id within the session takes its
    place back without a rebalance. None: dynamic."""
    session_timeout_ms: int
    """Time without a heartbeat after which the group takes the member for dead. Default: 45 000."""
    rebalance_timeout_ms: int
    """Longest time that a rebalance waits for this member. Default: 60 000. Half of it is what the
    owner has to finish and commit partitions that are being revoked: after it `Revoking` ends with
    `Lost`. The other half is left for the join."""
    heartbeat_interval_ms: int
    """Default: 3 000. A rebalance is heard of with the next heartbeat."""
    max_poll_interval_ms: int | None
    """Longest time without a `poll` (or `alive`); after it the member leaves the group, so that a
    worker that hangs does not hold its partitions for ever. Default: 300 000. None: no limit."""
    protocol_type: str
    """Kind of group; all its members name the same. Default: consumer."""
    rack: str | None
    """Rack of this process, for assignors that take racks into account."""
    log_ends: LogEnds | None
    """Returns the log end offsets of partitions; reported to the coordinator every
    `log_ends_interval_s`, so that it can compute lag. Called in a thread of its own."""
    log_ends_interval_s: float
    """Default: 5 seconds."""
    credentials: Credentials | None
    """TLS and token. None: from environment variables."""
    clock: Callable[[], int]
    """Returns epoch milliseconds; for tests."""
    random: Callable[[], float]
    """Returns a number in [0, 1); for tests."""


def check_names(settings: Collection[str]) -> None:
    """Check that every name is one of `MemberSettings`.

    Raises:
        TypeError: one is not; the message names the nearest.
    """
    known = MemberSettings.__annotations__
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
            raise TypeError(f"a member has no setting {name!r}; {hint}")


def member_config(
    group_id: str, topics: Mapping[str, int], settings: MemberSettings
) -> MemberConfig:
    """The settings that the machine uses.

    Raises:
        ValueError: an assignor is unknown.
    """
    # Any: a value of each setting's own type.
    given = cast("dict[str, Any]", dict(settings))
    config: dict[str, Any] = {
        field.name: given[field.name] for field in fields(MemberConfig) if field.name in given
    }
    config["assignors"] = tuple(given.get("assignors", ("range",)))
    fallback = given.get("fallback_assignor")
    for name in (*config["assignors"], *([fallback] if fallback else ())):
        by_name(name)
    return MemberConfig(group_id=group_id, topics=dict(topics), **config)
