"""Settings of session members as their callers write them: typed, and checked at construction."""

from __future__ import annotations

import math
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from coordinator.client.forms import milliseconds_of, name_of, topics_of
from coordinator.client.settings import unknown_setting
from coordinator.dial import Credentials
from coordinator.v1 import session_pb2 as pb

PROFILES = {"fast": 3_000, "standard": 10_000, "patient": 45_000}
"""Leases by name, milliseconds."""
MODES = {"simple": pb.GroupPolicy.SIMPLE, "warm": pb.GroupPolicy.WARM, "copy": pb.GroupPolicy.COPY}
ON_STALL = {
    "report": pb.GroupPolicy.REPORT,
    "drain": pb.GroupPolicy.DRAIN,
    "release": pb.GroupPolicy.RELEASE,
}
MAX_CAPACITY = 1_000_000.0


class PolicyWishes(TypedDict, total=False):
    """Policy that a member asks for; it counts if the group has none yet. Times in milliseconds."""

    lease_ms: int | Literal["fast", "standard", "patient"]
    """Time for which a member may act without hearing from the coordinator: 3 s, 10 s, 45 s, or any
    from 2 s to 5 min. Default: standard."""
    mode: Literal["simple", "warm", "copy"]
    """The way of a partition to its next holder; simple: drain, release, grant. warm: the next one
    prepares first. copy: it prepares after the former one has stopped, up to where that came."""
    plan_window_ms: int
    plan_interval_ms: int
    initial_delay_ms: int
    expected_members: int
    join_quiet_ms: int
    join_window_ms: int
    drain_timeout_ms: int
    """Time for which a holder may finish. Default: 30 000."""
    warm_timeout_ms: int
    handover_delay_ms: int
    """Pause before a partition whose holder did not release it is granted anew, for sinks that
    cannot check tokens. Default: 0."""
    max_return_ms: int
    max_idle_ms: int
    """Longest time without progress of the working side; 0: any."""
    on_stall: Literal["report", "drain", "release"]
    sinks_check_tokens: bool
    degraded_hold_ms: int
    """Time for which members work on while the coordinator is away; only where doing things twice
    is harmless. 0: as long as the lease lets them."""


class SessionSettings(TypedDict, total=False):
    """Keyword arguments of `SessionMember`, `BlockingSessionMember` and of a `Worker` of this
    protocol; each may be left out. The name of a time ends with its unit."""

    member_name: str | None
    """Makes the place stable across restarts: a process that returns under this name has the
    partitions back. None: the place ends with the process."""
    client_id: str
    """Name of this process in descriptions of the group. Default: host name and process id."""
    rack: str | None
    capacity: float
    """Share of the partitions, relative to the others'. Default: 1; 0: receives nothing."""
    max_partitions: int | None
    """Most partitions that it may hold. None: no limit."""
    drain_ms: int | None
    """Time that it needs to finish a partition, at most what the group allows. None: that."""
    revision: str
    revision_order: int | None
    deployment: str
    replicas: int | None
    place: tuple[str, str, int] | None
    """Pod uid, container name and start of process 1 (epoch milliseconds), if all are known: a
    container that was started anew takes the place of its predecessor at once."""
    wishes: PolicyWishes
    """Policy of the group, if it has none yet."""
    credentials: Credentials | None
    """TLS and token. None: from environment variables."""
    clock: Callable[[], int]
    """Returns epoch milliseconds, and counts while the machine sleeps; for tests."""
    random: Callable[[], float]
    """Returns a number in [0, 1); for tests."""


def _incarnation() -> bytes:
    return secrets.token_bytes(16)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """A session member's settings, checked. `SessionSettings` describes each.

    incarnation: 128 random bits that tell this process from another one.
    """

    group_id: str
    topics: Mapping[str, int]
    client_id: str = ""
    member_name: str = ""
    rack: str = ""
    capacity: float = 1.0
    max_partitions: int | None = None
    drain_ms: int | None = None
    revision: str = ""
    revision_order: int | None = None
    deployment: str = ""
    replicas: int | None = None
    place: tuple[str, str, int] | None = None
    wishes: Mapping[str, Any] = field(default_factory=dict)  # Any: numbers and enum values.
    incarnation: bytes = field(default_factory=_incarnation)
    started_at_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def attach(self) -> pb.Attach:
        """The Attach of such a member, without what belongs to a session."""
        attach = pb.Attach(
            group_id=self.group_id,
            member_name=self.member_name,
            incarnation=pb.Attach.Incarnation(
                id=self.incarnation, started_at_ms=self.started_at_ms
            ),
            client_id=self.client_id,
            rack=self.rack,
            topics=[pb.Attach.Topic(name=n, partitions=p) for n, p in sorted(self.topics.items())],
            capacity=self.capacity,
            max_partitions=self.max_partitions,
            drain_ms=self.drain_ms,
            revision=self.revision,
            revision_order=self.revision_order,
            deployment=self.deployment,
            replicas=self.replicas,
            wishes=pb.GroupPolicy(**self.wishes) if self.wishes else None,
        )
        if self.place is not None:
            pod_uid, container, started_at_ms = self.place
            attach.place.pod_uid, attach.place.container = pod_uid, container
            attach.place.started_at_ms = started_at_ms
        return attach


def session_config(
    group_id: object,
    topics: object,
    settings: Mapping[str, Any],  # Any: each of its own type.
) -> SessionConfig:
    """The settings that the machine uses.

    Raises:
        TypeError, ValueError: one is wrong; the message shows the right form.
    """
    for name in settings:
        if name not in SessionSettings.__annotations__:
            raise unknown_setting("a session member", name, SessionSettings.__annotations__)
    given = {name: value for name, value in settings.items() if value is not None}
    if not isinstance(given.get("credentials", Credentials()), Credentials):
        raise TypeError("credentials is no Credentials; write credentials=Credentials(token='…')")
    for name in ("credentials", "clock", "random"):
        given.pop(name, None)
    for name in ("member_name", "client_id", "rack", "revision", "deployment"):
        if name in given:
            given[name] = name_of(name, given[name])
    for name in ("max_partitions", "revision_order", "replicas"):
        if name in given:
            given[name] = _whole(name, given[name])
    if "drain_ms" in given:
        given["drain_ms"] = milliseconds_of("drain_ms", given["drain_ms"])
    if "capacity" in given:
        given["capacity"] = _capacity(given["capacity"])
    if "place" in given:
        given["place"] = _place(given["place"])
    given["wishes"] = wishes_of(given.get("wishes", {}))
    given.setdefault("client_id", f"{socket.gethostname()}-{os.getpid()}")
    return SessionConfig(group_id=name_of("group_id", group_id), topics=topics_of(topics), **given)


def wishes_of(wishes: object) -> dict[str, Any]:  # Any: numbers and enum values.
    """Fields of a GroupPolicy.

    Raises:
        TypeError, ValueError: one is wrong; the message shows the right form.
    """
    if not isinstance(wishes, Mapping):
        raise TypeError(f"wishes is {wishes!r}; write wishes={{'lease_ms': 'fast'}}")
    return {name: _wish(name, value) for name, value in wishes.items()}


def _wish(name: str, value: object) -> int | bool:
    match name:
        case _ if name not in PolicyWishes.__annotations__:
            raise unknown_setting("a policy", name, PolicyWishes.__annotations__)
        case "mode":
            return _choice(name, value, MODES)
        case "on_stall":
            return _choice(name, value, ON_STALL)
        case "lease_ms" if isinstance(value, str):
            return _choice(name, value, PROFILES)
        case "sinks_check_tokens":
            if not isinstance(value, bool):
                raise TypeError(f"sinks_check_tokens is {value!r}; write True or False")
            return value
    return _whole(name, value)


def _choice(name: str, value: object, choices: Mapping[str, int]) -> int:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} is {value!r}; it is one of {', '.join(map(repr, choices))}")
    return choices[value]


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise ValueError(f"{name} is {value!r}; it is a whole number from 0 on")
    return value


def _capacity(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"capacity is {value!r}; write capacity=1.0")
    if not math.isfinite(value) or not 0 <= value <= MAX_CAPACITY:
        raise ValueError(f"capacity is {value!r}; it is a number from 0 to {MAX_CAPACITY:g}")
    return float(value)


def _place(value: object) -> tuple[str, str, int]:
    match value:
        case (str(pod_uid), str(container), int(started_at_ms)) if pod_uid and container:
            return pod_uid, container, started_at_ms
    raise ValueError(
        f"place is {value!r}; write place=(pod uid, container name, start of process 1 in epoch "
        "milliseconds)"
    )
