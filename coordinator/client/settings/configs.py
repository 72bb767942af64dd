"""A member's settings, as its machine uses them.

A setting's field has name, type, default, kind, and meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from coordinator.client.settings import value_kinds
from coordinator.client.settings.setting import SettingKind, setting, settings_of
from coordinator.client.settings.value_kinds import unknown_setting

_classic = partial(setting, protocol="classic")
_session = partial(setting, protocol="session")
_wished_ms = partial(setting, None, value_kinds.MILLISECONDS_OR_0)

# fmt: off


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """Settings of every member. `topics`: topic to number of partitions."""

    group_id: str
    topics: Mapping[str, int]
    client_id: str = setting("", value_kinds.TEXT,
        "Name of this process in descriptions of the group; part of the member id.",
        default_text="host name and process id", typed="str | None")
    rack: str | None = setting(None, value_kinds.TEXT,
        "Rack of this process, for assignors that take racks into account. The planner of session "
        "groups does not.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicConfig(MemberConfig):
    """Settings of a member that follows the classic protocol. `topics` is used while it leads."""

    assignors: tuple[str, ...] = _classic(("range",), value_kinds.ASSIGNORS,
        "Assignors that the member can follow, best first; the group follows one that all its "
        "members name. If all of a member's support the cooperative protocol (cooperative-sticky "
        "does), it keeps its partitions during a rebalance; else it gives all up before it joins "
        "again (eager). The next release takes cooperative-sticky; a worker takes it now.",
        default_text="range", typed="str | Sequence[str]", instead="the coordinator assigns")
    fallback_assignor: str | None = _classic(None, value_kinds.ASSIGNOR,
        "Eager assignor with which the member joins if the group has refused all of `assignors` "
        "(INCONSISTENT_GROUP_PROTOCOL); it warns, and says how to move the group. None: the member "
        "stops with a FatalError. A worker without `assignors` takes range.",
        instead="the coordinator assigns")
    instance_id: str | None = _classic(None, value_kinds.TEXT,
        "Makes the member static: a process that returns under this id within the session takes "
        "its place back without a rebalance. None: dynamic.", instead="write member_name='...'")
    session_timeout_ms: int = _classic(45_000, value_kinds.MILLISECONDS,
        "Time without a heartbeat after which the group takes the member for dead.",
        instead="write wishes={'lease_ms': 10_000}")
    rebalance_timeout_ms: int = _classic(60_000, value_kinds.MILLISECONDS,
        "Longest time that a rebalance waits for this member. Half of it is what the owner has to "
        "finish and commit partitions that are being revoked: after it `Revoking` ends with "
        "`Lost`. The other half is left for the join.", instead="write drain_ms=30_000")
    heartbeat_interval_ms: int = _classic(3_000, value_kinds.MILLISECONDS,
        "Interval of heartbeats, a third of `session_timeout_ms` at most. A rebalance is heard of "
        "with the next one.", instead="heartbeats follow each other in a quarter of the lease")
    max_poll_interval_ms: int | None = _classic(300_000, value_kinds.MILLISECONDS,
        "Longest time without a `poll` (or `alive`); after it the member leaves the group, so that "
        "a worker that hangs does not hold its partitions for ever. None: no limit.",
        instead="write wishes={'max_idle_ms': 300_000}",
        in_workers="nobody polls in it; progress_timeout_ms stands in for it")
    protocol_type: str = _classic("consumer", value_kinds.TEXT,
        "Kind of group; all its members name the same.")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupWishes:
    """Policy that a member asks for; it counts if the group has none yet. None: the default.

    The coordinator has the defaults, and checks the bounds of a lease. Operators change a policy
    with `coordinator policy set`.
    """

    lease_ms: int | None = setting(None, value_kinds.LEASE,
        "Lease: time for which a member may act without hearing from the coordinator, and about "
        "the time after which the partitions of a member that has died are granted anew. fast is "
        "3 s, standard 10 s, patient 45 s.",
        default_text="standard", typed='int | Literal["fast", "standard", "patient"] | None')
    mode: Literal["simple", "warm", "copy"] | None = setting(
        None, value_kinds.choice("simple", "warm", "copy"),
        "Way of a partition to its next holder. simple: drain, release, grant. warm: the next one "
        "prepares while the former one works. copy: it prepares after the former one has stopped, "
        "up to where that came.", default_text="simple")
    plan_window_ms: int | None = _wished_ms(
        "Time from the first event that calls for a plan to the plan, which takes in everything "
        "that has happened by then.", default_text=100)
    plan_interval_ms: int | None = _wished_ms(
        "Shortest time between two plans. It does not hold back partitions without a holder, "
        "members that leave, and operators' commands.", default_text=1_000)
    initial_delay_ms: int | None = _wished_ms(
        "Wait of an empty group's first plan for more members, from the first one on, unless "
        "`expected_members` are ready before.",
        default_text="the node's group_initial_rebalance_delay_ms")
    expected_members: int | None = setting(None, value_kinds.whole("members"),
        "Number of ready members with which an empty group is planned without waiting for "
        "`initial_delay_ms`. 0: not known.", default_text=0)
    join_quiet_ms: int | None = _wished_ms(
        "Members that arrive are planned for when none has come for this time; at once if a "
        "partition has no holder.", default_text=1_000)
    join_window_ms: int | None = _wished_ms(
        "Longest wait for more members to arrive, from the first one on, however often another "
        "one comes.", default_text=10_000)
    drain_timeout_ms: int | None = _wished_ms(
        "Time that a holder has to finish and release a partition; then it is taken away.",
        default_text=30_000)
    warm_timeout_ms: int | None = _wished_ms(
        "Time that the next holder has to prepare a partition; then another one is chosen.",
        default_text=1_800_000)
    handover_delay_ms: int | None = _wished_ms(
        "Pause before a partition whose holder did not release it is granted anew, for sinks that "
        "cannot check tokens.", default_text=0)
    max_return_ms: int | None = _wished_ms(
        "Longest time for which partitions are reserved for the name of a member that has said "
        "that it returns.", default_text=300_000)
    max_idle_ms: int | None = _wished_ms(
        "Longest time without progress of the working side (`poll`, `alive`, a commit); after it "
        "the member is stalled, and receives nothing until it gets on. 0: any.", default_text=0)
    on_stall: Literal["report", "drain", "release"] | None = setting(
        None, value_kinds.choice("report", "drain", "release"),
        "Treatment of a stalled member. report: descriptions show it. drain: its partitions are "
        "drained. release: they are taken away.", default_text="report")
    sinks_check_tokens: bool | None = setting(None, value_kinds.FLAG,
        "True: all sinks of the group refuse old tokens, so a partition that is taken away is "
        "granted anew at once, and not after a lease.", default_text=False)


WISHES = settings_of(GroupWishes)


def _wishes(name: str, wishes: object) -> GroupWishes:
    if not isinstance(wishes, Mapping):
        raise TypeError(f"{name} is {wishes!r}; write {name}={{'lease_ms': 'fast'}}")
    for wish in wishes:
        if wish not in WISHES:
            raise unknown_setting("a policy", wish, WISHES)
    return GroupWishes(**{wish: WISHES[wish].take(wish, value) for wish, value in wishes.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig(MemberConfig):
    """Settings of a member of a session group.

    incarnation: 128 random bits that tell this process from another one.
    started_at_ms: epoch milliseconds of its start.
    """

    incarnation: bytes
    started_at_ms: int
    member_name: str | None = _session(None, value_kinds.TEXT,
        "Makes the place stable across restarts: a process that returns under this name has the "
        "partitions back. None: the place ends with the process.",
        instead="write instance_id='...'")
    capacity: float = _session(1.0, value_kinds.CAPACITY,
        "Share of the partitions, relative to the others'. 0: receives nothing.")
    max_partitions: int | None = _session(None, value_kinds.PARTITIONS,
        "Most partitions that it may hold. None: no limit.")
    drain_ms: int | None = _session(None, value_kinds.MILLISECONDS,
        "Time that it needs to finish a partition, at most the group's `drain_timeout_ms`. None: "
        "that.", instead="write rebalance_timeout_ms=60_000, twice as long")
    revision: str | None = _session(None, value_kinds.TEXT,
        "Version that this process runs, as descriptions of the group show it.")
    deployment: str | None = _session(None, value_kinds.TEXT,
        "Members that are rolled out together, the name of a Kubernetes Deployment, say, as "
        "descriptions of the group show it.")
    return_within_ms: int | None = _session(None, value_kinds.MILLISECONDS,
        "Time for which the partitions of a member that stops are kept for a process of its "
        "`member_name`, so that none moves. None: they are handed over.",
        instead="write instance_id='...', which keeps them for the session")
    keep_classic: bool = setting(False, value_kinds.FLAG,
        "True: a group that classic members have used last is left as it is, and the member stops "
        "with a FatalError. False: if it is empty, it becomes one of sessions.", protocol="session",
        in_workers="without `protocol` a worker asks for it, and follows the group")
    wishes: GroupWishes = setting(GroupWishes(), SettingKind(_wishes),
        "Policy that the group gets if it has none yet; see `PolicyWishes`.", protocol="session",
        default_text="the coordinator's", typed="PolicyWishes")

    def __post_init__(self) -> None:
        if self.return_within_ms is not None and self.member_name is None:
            raise ValueError("return_within_ms keeps partitions for a name: give member_name='...'")
