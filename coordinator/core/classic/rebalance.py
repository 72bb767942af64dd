"""The join phase: its start, its completion, and the generation that it creates.

    request ──► prepare ──► (members join) ──► complete_join_phase ──► AWAITING_SYNC
                   │                                 │
                   └ from Empty: the initial delay   └ nobody left: EMPTY

An ordinary phase ends as soon as every member has re-joined and no id is pending, and
after the group's rebalance timeout at the latest. The first phase of an empty group
waits for a delay instead, and never ends early.

Generations. A number is never handed out twice, also not after a restart, though the
log hears of a generation only when its assignment is written. The log's last number
`d` promises that nothing above `d + 1` was handed out. So the next one after `d` is
free; one beyond needs a `GenerationFloor` in the log first, and the joins wait for
it; and after a load counting goes on from `d + 1`.

Source: KIP-62, KIP-134, KIP-345; Kafka `GroupCoordinator.prepareRebalance`,
`onCompleteJoin`, `InitialDelayedJoin`.
"""

from __future__ import annotations

from coordinator.core.classic import protocols
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.member import ClassicMember
from coordinator.core.classic.membership import evict, excuse, fail_sync, reset_session
from coordinator.core.classic.protocols import subscribed_topics
from coordinator.core.classic.takeover import take_over_early
from coordinator.core.group import GroupState
from coordinator.core.step import Step
from coordinator.core.values.commands import (
    CompleteJoinPhase,
    InitialDelayElapsed,
    NoFollowUp,
    SyncPhaseExpired,
)
from coordinator.core.values.effects import DeferInitialJoin, DeferJoin, DeferSync, JoinKey, SyncKey
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.events import (
    EvictionCause,
    JoinPhaseCompleted,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceStarted,
)
from coordinator.core.values.ids import CallId
from coordinator.core.values.records import GenerationFloor
from coordinator.core.values.replies import JoinedMember, JoinReply


def request(
    group: ClassicGroup,
    cause: RebalanceCause,
    step: Step,
    *,
    member: ClassicMember,
    reason: str = "",
) -> None:
    """Start a join phase, or check whether the running one is complete.

    Args:
        member: the member that caused it.
    """
    if group.state is GroupState.PREPARING_REBALANCE:
        step.out.check(JoinKey(group.group_id))
    else:
        prepare(group, cause, step, member=member, reason=reason)


def prepare(
    group: ClassicGroup,
    cause: RebalanceCause,
    step: Step,
    *,
    member: ClassicMember | None = None,
    reason: str = "",
) -> None:
    """Leave the generation and gather members for the next one.

    Raises:
        InvariantViolated: the group is in PREPARING_REBALANCE or DEAD.
    """
    take_over_early(group, step)
    was_empty = group.state is GroupState.EMPTY
    group.rebalance_began_ms = step.now_ms
    if group.state is GroupState.AWAITING_SYNC:
        for waiting in group.members.values():
            waiting.assignment = b""  # From an earlier generation: this one has none yet.
            if waiting.parked_sync is not None:
                fail_sync(group, waiting, ErrorCode.REBALANCE_IN_PROGRESS, step)
                reset_session(group, waiting, step)
    group.awaited_syncs.clear()
    group.transition_to(GroupState.PREPARING_REBALANCE, step.now_ms)
    step.out.check(SyncKey(group.group_id))
    step.out.note(
        RebalanceStarted(
            group.group_id,
            cause,
            group.generation,
            member_id=member.member_id if member else "",
            client_id=member.client_id if member else "",
            client_host=member.client_host if member else "",
            reason=reason,
        )
    )
    if was_empty:
        delay_ms = step.config.group_initial_rebalance_delay_ms
        group.initial_join = True
        group.subscribed_topics = None  # Unknown until the phase has ended.
        group.new_member_added = False
        _defer_initial_join(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0), step)
    else:
        group.initial_join = False
        _defer_join(group, step)


def extend_initial_delay(group: ClassicGroup, command: InitialDelayElapsed, step: Step) -> None:
    """Wait on while members keep coming, up to the first member's rebalance timeout."""
    if not group.initial_join or not _is_in_phase(group, command.generation):
        return
    if group.new_member_added and command.remaining_ms > 0:
        group.new_member_added = False
        delay_ms = min(step.config.group_initial_rebalance_delay_ms, command.remaining_ms)
        remaining_ms = max(command.remaining_ms - command.delay_ms, 0)
        _defer_initial_join(group, delay_ms, remaining_ms, step)
    else:
        _complete(group, step)


def join_phase_is_complete(group: ClassicGroup) -> bool:
    """True if an ordinary join phase has nobody left to wait for."""
    return (
        group.state is GroupState.PREPARING_REBALANCE
        and len(group.members) == group.parked_joins
        and not group.pending_member_ids
    )


def complete_join_phase(group: ClassicGroup, command: CompleteJoinPhase, step: Step) -> None:
    """Close an ordinary join phase, unless the group has moved on."""
    if _is_in_phase(group, command.generation):
        _complete(group, step)


def sync_phase_is_complete(group: ClassicGroup, generation: int) -> bool:
    """True if no SyncGroup is awaited in this generation any more."""
    return (
        group.generation != generation
        or group.state not in (GroupState.AWAITING_SYNC, GroupState.STABLE)
        or not group.awaited_syncs
    )


def expire_sync_phase(group: ClassicGroup, command: SyncPhaseExpired, step: Step) -> None:
    """Remove the members that never fetched their assignment, and rebalance without them.

    Source: KAFKA-10134; Kafka `GroupCoordinator.onExpirePendingSync`.
    """
    if sync_phase_is_complete(group, command.generation):
        return
    silent = [member for id_, member in group.members.items() if id_ in group.awaited_syncs]
    for member in silent:
        evict(group, member, EvictionCause.SYNC_TIMED_OUT, step)
    request(group, RebalanceCause.SYNC_TIMED_OUT, step, member=silent[0])


def join_reply(group: ClassicGroup, member: ClassicMember) -> JoinReply:
    """Return the reply for a member; the leader's lists all members."""
    is_leader = member.member_id == group.leader_id
    return _join_reply(group, member, _member_list(group) if is_leader else ())


def repeat_join_reply(
    group: ClassicGroup, member: ClassicMember, call_id: CallId, step: Step
) -> None:
    """Answer a JoinGroup of the current generation again: the first answer may have been lost."""
    _promise_generation(group, step)
    _answer_join(group, call_id, join_reply(group, member), step)


# --- Inside ---------------------------------------------------------------------------------


def _is_in_phase(group: ClassicGroup, generation: int) -> bool:
    return group.state is GroupState.PREPARING_REBALANCE and group.generation == generation


def _complete(group: ClassicGroup, step: Step) -> None:
    """Close the join phase and start the next generation.

    Dynamic members that did not join are dropped; every parked join gets one reply,
    the leader's with all members' metadata. If only absent static members remain, the
    phase is armed again and the generation stays.
    """
    for member in list(group.members.values()):
        if member.parked_join is None and not member.is_static:
            evict(group, member, EvictionCause.JOIN_TIMED_OUT, step)
    if group.members and not group.elect_joined_leader():
        group.initial_join = False
        _defer_join(group, step)
        return
    group.initial_join = False
    group.new_member_added = False
    group.awaited_syncs.clear()
    group.generation = max(group.generation, group.generation_floor) + 1
    if group.members:
        _start_generation(group, step)
    else:
        _become_empty(group, step)


def _become_empty(group: ClassicGroup, step: Step) -> None:
    group.protocol_name = None
    group.subscribed_topics = frozenset()
    group.transition_to(GroupState.EMPTY, step.now_ms)
    step.out.persist([group.metadata(step.now_ms)], NoFollowUp(group.group_id))
    step.out.note(JoinPhaseCompleted(group.group_id, group.generation, 0, "", ""))
    step.out.note(RebalanceCompleted(group.group_id, group.generation, 0))


def _start_generation(group: ClassicGroup, step: Step) -> None:
    group.protocol_name = protocols.select(group)
    group.subscribed_topics = subscribed_topics(group, step.payloads.topics)
    group.transition_to(GroupState.AWAITING_SYNC, step.now_ms)
    assert group.leader_id is not None
    step.out.note(
        JoinPhaseCompleted(
            group.group_id,
            group.generation,
            len(group.members),
            group.leader_id,
            group.protocol_name,
        )
    )
    _promise_generation(group, step)
    members = _member_list(group)
    for member in group.members.values():
        member.is_new = False
        group.awaited_syncs[member.member_id] = None
        call_id = group.unpark_join(member)
        if call_id is None:  # Static, and has not joined again.
            excuse(group, member, step)
            continue
        _answer_join(group, call_id, _join_reply(group, member, members), step)
        member.begin_to_beat(step.now_ms)
        reset_session(group, member, step)
    step.out.defer(
        DeferSync(group.group_id, group.generation, step.now_ms + group.rebalance_timeout_ms)
    )


def _is_promised(group: ClassicGroup) -> bool:
    """True if the log guarantees that the group's generation is not used again after a crash."""
    return group.generation <= group.durable_generation + 1


def _promise_generation(group: ClassicGroup, step: Step) -> None:
    """Write a `GenerationFloor` if the log does not cover the generation: see decision 0001."""
    if not _is_promised(group):
        floor = GenerationFloor(group.group_id, group.generation - 1)
        step.out.persist([floor], NoFollowUp(group.group_id))


def _answer_join(group: ClassicGroup, call_id: CallId, reply: JoinReply, step: Step) -> None:
    if _is_promised(group):
        step.out.reply(call_id, reply)
    else:
        step.out.join_when_durable(call_id, reply)


def _join_reply(
    group: ClassicGroup, member: ClassicMember, members: tuple[JoinedMember, ...]
) -> JoinReply:
    assert group.leader_id is not None
    return JoinReply(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id,
        member_id=member.member_id,
        members=members if member.member_id == group.leader_id else (),
    )


def _member_list(group: ClassicGroup) -> tuple[JoinedMember, ...]:
    """Return all members, absent static ones too, for the leader's reply."""
    name = group.protocol_name
    return tuple(
        JoinedMember(member.member_id, member.instance_id, member.metadata_for(name))
        for member in group.members.values()
    )


def _defer_join(group: ClassicGroup, step: Step) -> None:
    deadline_ms = step.now_ms + group.rebalance_timeout_ms
    step.out.defer(DeferJoin(group.group_id, group.generation, deadline_ms))


def _defer_initial_join(group: ClassicGroup, delay_ms: int, remaining_ms: int, step: Step) -> None:
    step.out.defer(
        DeferInitialJoin(
            group.group_id, group.generation, delay_ms, remaining_ms, step.now_ms + delay_ms
        )
    )
