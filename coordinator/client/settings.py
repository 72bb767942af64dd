"""The settings of members as their callers write them: typed, and checked when a member is made."""

from __future__ import annotations

import difflib
import os
import socket
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import fields
from typing import Any, TypedDict, cast

from coordinator.assignors import BUILT_IN
from coordinator.client.config import MemberConfig
from coordinator.client.forms import milliseconds_of, name_of, names_of, topics_of
from coordinator.client.log_ends import LogEnds
from coordinator.client.member.calls import Level
from coordinator.dial import Credentials

DEFAULT_ASSIGNORS = ("range",)
TIMES = (
    "session_timeout_ms", "rebalance_timeout_ms", "heartbeat_interval_ms", "max_poll_interval_ms",
)  # fmt: skip


class MemberSettings(TypedDict, total=False):
    """Keyword arguments of `GroupMember` and `BlockingMember`; each may be left out.

    The name of a time ends with its unit.
    """

    assignors: str | Sequence[str]
    """Assignors that the member can follow, best first. Default: range, and the next release takes
    cooperative-sticky. The group follows one that
    all its members name. If all of a member's support the cooperative protocol (cooperative-sticky
    does), it keeps its partitions during a rebalance; else it gives all up before it joins again
    (eager)."""
    fallback_assignor: str | None
    """Eager assignor with which the member joins if the group has refused all of `assignors`
    (INCONSISTENT_GROUP_PROTOCOL); it warns, and says how to move the group. None: the member stops
    with a FatalError."""
    client_id: str
    """Name of this process in descriptions of the group; part of the member id. Default: host name
    and process id."""
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
    handle_signals: bool
    """True (default): inside `with` or `async with` in the main thread, Ctrl-C and SIGTERM end the
    `with`, unless the program handles them itself, so that the member leaves; then the process ends
    without a traceback."""
    clock: Callable[[], int]
    """Returns epoch milliseconds; for tests."""
    random: Callable[[], float]
    """Returns a number in [0, 1); for tests."""


def check_names(settings: Collection[str]) -> None:
    """Check that every name is one of `MemberSettings`.

    Raises:
        TypeError: one is not; the message names the nearest.
    """
    for name in settings:
        if name not in MemberSettings.__annotations__:
            raise unknown_setting("a member", name, MemberSettings.__annotations__)


def unknown_setting(who: str, name: str, known: Collection[str]) -> TypeError:
    """Error of a setting that there is not; it names the nearest one."""
    near = nearest(name, known)
    return TypeError(f"{who} has no setting {name!r}; {near or 'there are ' + ', '.join(known)}")


def member_config(group_id: object, topics: object, settings: MemberSettings) -> MemberConfig:
    """The settings that the machine uses.

    Raises:
        TypeError, ValueError: one is wrong; the message shows the right form.
    """
    check_names(settings)
    # Any: a value of each setting's own type.
    given = cast("dict[str, Any]", {"assignors": DEFAULT_ASSIGNORS, **settings})
    given["assignors"] = names_of("assignors", given["assignors"])
    fallback = given.get("fallback_assignor")
    for name in (*given["assignors"], *([] if fallback is None else [fallback])):
        if name not in BUILT_IN:
            raise ValueError(
                f"no assignor is called {name!r}; "
                f"{nearest(name, BUILT_IN) or 'there are ' + ', '.join(BUILT_IN)}"
            )
    for name in TIMES:
        if name in given and (given[name] is not None or name != "max_poll_interval_ms"):
            given[name] = milliseconds_of(name, given[name])
    for name in ("instance_id", "rack", "protocol_type", "client_id"):
        if given.get(name) is not None:
            given[name] = name_of(name, given[name])
    given.setdefault("client_id", f"{socket.gethostname()}-{os.getpid()}")
    _check_others(given)
    own = {field.name: given[field.name] for field in fields(MemberConfig) if field.name in given}
    return MemberConfig(group_id=name_of("group_id", group_id), topics=topics_of(topics), **own)


def remarks(config: MemberConfig, settings: MemberSettings) -> list[tuple[Level, str]]:
    """Lines for the log of a member that starts with these settings."""
    told: list[tuple[Level, str]] = []
    if "assignors" not in settings:
        default = (
            "the setting assignors is left out, so range is used; the next release takes "
            "cooperative-sticky instead, and range where the group demands it. To settle it now, "
            "say assignors=['cooperative-sticky'] or assignors=['range']"
        )
        told.append((Level.INFO, default))
    if config.heartbeat_interval_ms >= config.session_timeout_ms:
        too_slow = (
            f"heartbeat_interval_ms is {config.heartbeat_interval_ms}, so the session of "
            f"{config.session_timeout_ms} ms ends between two heartbeats; usual is a third of "
            "session_timeout_ms at most"
        )
        told.append((Level.WARNING, too_slow))
    return told


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggestion of a similar name; empty if none is similar."""
    near = difflib.get_close_matches(str(name), known, n=1)
    return f"did you mean {near[0]}?" if near else ""


def _check_others(given: dict[str, Any]) -> None:  # Any: as above.
    if not isinstance(given.get("credentials"), Credentials | None):
        raise TypeError("credentials is no Credentials; write credentials=Credentials(token='…')")
    interval_s = given.get("log_ends_interval_s", 1.0)
    if isinstance(interval_s, bool) or not isinstance(interval_s, int | float) or interval_s <= 0:
        raise TypeError(f"log_ends_interval_s is {interval_s!r}; write seconds, 5.0")
    for name in ("log_ends", "clock", "random"):
        if given.get(name) is not None and not callable(given[name]):
            raise TypeError(f"{name} is {given[name]!r}; it is a function")
