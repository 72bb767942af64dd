"""Settings of members as their callers write them. Never edit: run `poe settings`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypedDict

from coordinator.client.log_ends import LogEnds
from coordinator.dial import Credentials


class PolicyWishes(TypedDict, total=False):
    """Policy that a member of a session group asks for; it counts if the group has none yet.

    Each may be left out. The name of a time ends with its unit.
    """

    lease_ms: int | Literal["fast", "standard", "patient"]
    """Lease: time for which a member may act without hearing from the coordinator, and about the
    time after which the partitions of a member that has died are granted anew. fast is 3 s,
    standard 10 s, patient 45 s. [unit: ms; one of fast, standard, patient, or 2,000 to 300,000;
    default: standard]"""
    mode: Literal["simple", "warm", "copy"]
    """Way of a partition to its next holder. simple: drain, release, grant. warm: the next one
    prepares while the former one works. copy: it prepares after the former one has stopped, up to
    where that came. [one of simple, warm, copy; default: simple]"""
    plan_window_ms: int
    """Time from the first event that calls for a plan to the plan, which takes in everything that
    has happened by then. [unit: ms; at least 0; default: 100]"""
    plan_interval_ms: int
    """Shortest time between two plans. It does not hold back partitions without a holder, members
    that leave, and operators' commands. [unit: ms; at least 0; default: 1_000]"""
    initial_delay_ms: int
    """Wait of an empty group's first plan for more members, from the first one on, unless
    `expected_members` are ready before. [unit: ms; at least 0; default: the node's
    group_initial_rebalance_delay_ms]"""
    expected_members: int
    """Number of ready members with which an empty group is planned without waiting for
    `initial_delay_ms`. 0: not known. [unit: members; at least 0; default: 0]"""
    join_quiet_ms: int
    """Members that arrive are planned for when none has come for this time; at once if a partition
    has no holder. [unit: ms; at least 0; default: 1_000]"""
    join_window_ms: int
    """Longest wait for more members to arrive, from the first one on, however often another one
    comes. [unit: ms; at least 0; default: 10_000]"""
    drain_timeout_ms: int
    """Time that a holder has to finish and release a partition; then it is taken away. [unit: ms;
    at least 0; default: 30_000]"""
    warm_timeout_ms: int
    """Time that the next holder has to prepare a partition; then another one is chosen. [unit: ms;
    at least 0; default: 1_800_000]"""
    handover_delay_ms: int
    """Pause before a partition whose holder did not release it is granted anew, for sinks that
    cannot check tokens. [unit: ms; at least 0; default: 0]"""
    max_return_ms: int
    """Longest time for which partitions are reserved for the name of a member that has said that it
    returns. [unit: ms; at least 0; default: 300_000]"""
    max_idle_ms: int
    """Longest time without progress of the working side (`poll`, `alive`, a commit); after it the
    member is stalled, and receives nothing until it gets on. 0: any. [unit: ms; at least 0;
    default: 0]"""
    on_stall: Literal["report", "drain", "release"]
    """Treatment of a stalled member. report: descriptions show it. drain: its partitions are
    drained. release: they are taken away. [one of report, drain, release; default: report]"""
    sinks_check_tokens: bool
    """True: all sinks of the group refuse old tokens, so a partition that is taken away is granted
    anew at once, and not after a lease. [default: False]"""


class MemberSettings(TypedDict, total=False):
    """Keyword arguments of members of both protocols; each may be left out.

    The name of a time ends with its unit. One of the other protocol is refused, in a sentence that
    says what to write instead.
    """

    client_id: str | None
    """Name of this process in descriptions of the group; part of the member id. [default: host name
    and process id]"""
    rack: str | None
    """Rack of this process, for assignors that take racks into account. The planner of session
    groups does not. [default: None]"""
    assignors: str | Sequence[str]
    """Assignors that the member can follow, best first; the group follows one that all its members
    name. If all of a member's support the cooperative protocol (cooperative-sticky does), it keeps
    its partitions during a rebalance; else it gives all up before it joins again (eager). The next
    release takes cooperative-sticky; a worker takes it now. [classic groups only; of range,
    roundrobin, sticky, cooperative-sticky; default: range]"""
    fallback_assignor: str | None
    """Eager assignor with which the member joins if the group has refused all of `assignors`
    (INCONSISTENT_GROUP_PROTOCOL); it warns, and says how to move the group. None: the member stops
    with a FatalError. A worker without `assignors` takes range. [classic groups only; one of range,
    roundrobin, sticky, cooperative-sticky; default: None]"""
    instance_id: str | None
    """Makes the member static: a process that returns under this id within the session takes its
    place back without a rebalance. None: dynamic. [classic groups only; default: None]"""
    session_timeout_ms: int
    """Time without a heartbeat after which the group takes the member for dead. [classic groups
    only; unit: ms; at least 1; default: 45_000]"""
    rebalance_timeout_ms: int
    """Longest time that a rebalance waits for this member. Half of it is what the owner has to
    finish and commit partitions that are being revoked: after it `Revoking` ends with `Lost`. The
    other half is left for the join. [classic groups only; unit: ms; at least 1; default: 60_000]"""
    heartbeat_interval_ms: int
    """Interval of heartbeats, a third of `session_timeout_ms` at most. A rebalance is heard of with
    the next one. [classic groups only; unit: ms; at least 1; default: 3_000]"""
    max_poll_interval_ms: int | None
    """Longest time without a `poll` (or `alive`); after it the member leaves the group, so that a
    worker that hangs does not hold its partitions for ever. None: no limit. [classic groups only;
    unit: ms; at least 1; default: 300_000]"""
    protocol_type: str
    """Kind of group; all its members name the same. [classic groups only; default: consumer]"""
    member_name: str | None
    """Makes the place stable across restarts: a process that returns under this name has the
    partitions back. None: the place ends with the process. [session groups only; default: None]"""
    capacity: float
    """Share of the partitions, relative to the others'. 0: receives nothing. [session groups only;
    0 to 1,000,000; default: 1.0]"""
    max_partitions: int | None
    """Most partitions that it may hold. None: no limit. [session groups only; unit: partitions; at
    least 0; default: None]"""
    drain_ms: int | None
    """Time that it needs to finish a partition, at most the group's `drain_timeout_ms`. None: that.
    [session groups only; unit: ms; at least 1; default: None]"""
    revision: str | None
    """Version that this process runs, as descriptions of the group show it. [session groups only;
    default: None]"""
    deployment: str | None
    """Members that are rolled out together, the name of a Kubernetes Deployment, say, as
    descriptions of the group show it. [session groups only; default: None]"""
    return_within_ms: int | None
    """Time for which the partitions of a member that stops are kept for a process of its
    `member_name`, so that none moves. None: they are handed over. [session groups only; unit: ms;
    at least 1; default: None]"""
    keep_classic: bool
    """True: a group that classic members have used last is left as it is, and the member stops with
    a FatalError. False: if it is empty, it becomes one of sessions. [session groups only; default:
    False]"""
    wishes: PolicyWishes
    """Policy that the group gets if it has none yet; see `PolicyWishes`. [session groups only;
    default: the coordinator's]"""
    log_ends: LogEnds | None
    """Returns the log end offsets of partitions, or the ranges of offsets that logs have where
    their first rows are gone; reported to the coordinator every `log_ends_interval_s`, so that it
    can compute lag. Called in a thread of its own. [default: None]"""
    log_ends_interval_s: float
    """Interval of the reports of `log_ends`. [unit: s; above 0; default: 5.0]"""
    credentials: Credentials | None
    """TLS and token. None: from environment variables. [default: None]"""
    handle_signals: bool
    """True: inside `with` or `async with` in the main thread, Ctrl-C and SIGTERM end the `with`,
    unless the program handles them itself, so that the member leaves; then the process ends without
    a traceback. [default: True]"""
    give_back: Literal["poll", "released"]
    """Way of giving back. poll: each `poll` gives back what the one before has told to be revoked
    or lost. released: the owner does, by `released`, for each holding. [one of poll, released;
    default: poll in classic groups, released in session groups]"""
    clock: Callable[[], int]
    """Returns epoch milliseconds, and counts while the machine sleeps; for tests. [default: the
    system's]"""
    random: Callable[[], float]
    """Returns a number in [0, 1); for tests. [default: random.random]"""


class WorkerSettings(MemberSettings, total=False):
    """Keyword arguments of a `Worker`: those of members of its protocol; each may be left out."""

    max_failures: int
    """The default of `max_attempts` in session groups, where the worker refuses the partition then,
    so that another one gets it, unless `after_max_attempts` is stop. [session groups only; unit:
    failures; at least 1; default: 5]"""
