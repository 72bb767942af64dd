"""Admission of members: the records that make a process a member, and the answer it is given.

Admission is durable before it is answered.
"""

from __future__ import annotations

from coordinator.core.config import GroupConfig
from coordinator.core.sessions import lease, orders, restart_backoff, stops
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.holdings import grants_of
from coordinator.core.sessions.leave import name_takeover
from coordinator.core.sessions.member import SessionMember
from coordinator.core.sessions.plan import scheduler
from coordinator.core.step import Numbers, Step
from coordinator.core.values.commands import (
    AnswerAttach,
    NoFollowUp,
    ReservationOver,
    ReviewPartitions,
)
from coordinator.core.values.errors import ErrorCode, MustWait, Refused, session_refused
from coordinator.core.values.ids import IdSource, TopicPartition
from coordinator.core.values.policy import Policy
from coordinator.core.values.records import (
    PartitionsGranted,
    PolicyStored,
    Record,
    ReservationFreed,
    SessionMemberStored,
)
from coordinator.core.values.session_messages import Attach, AttachReply, Standing

_OLD_STREAM = Refused(ErrorCode.FENCED_INSTANCE_ID, "the session has a newer stream, or this ended")


def must_wait(now_ms: int, config: GroupConfig) -> MustWait:
    """Refusal of an Attach that has to wait for a pending write."""
    return MustWait(now_ms + config.offset_commit_timeout_ms)


def check_count(partitions: int, config: GroupConfig) -> None:
    """Check the number of partitions that a group would have.

    Raises:
        Refused: INVALID_REQUEST, with the setting.
    """
    most = config.max_group_partitions
    if partitions > most:
        message = f"{partitions} partitions; a group may have {most} (max_group_partitions)"
        raise Refused(ErrorCode.INVALID_REQUEST, message)


def admit_new(group: SessionGroup, command: Attach, step: Step) -> None:
    """Admit a process that takes over no other session.

    Raises:
        Refused: GROUP_MAX_SIZE_REACHED, INVALID_REQUEST.
        MustWait: the end of the group, or its policy, is being written.
    """
    if group.deletions:
        raise must_wait(
            step.now_ms, step.config
        )  # It would take the policy that a member relies on.
    if len(group.members) + len(group.arriving) >= step.config.group_max_size:
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED)
    check_count(group.declarations.total_with(command.topics), step.config)
    records: list[Record] = []
    policy = group.policy
    if command.wishes is not None and not group.is_policy_stored:
        if group.arriving or group.policy_writes:
            raise must_wait(step.now_ms, step.config)  # Its wishes may be the group's policy.
        policy = command.wishes
        policy.check(step.config.group_min_lease_ms)
        records.append(PolicyStored(group.group_id, policy))
    record = record_of(group, command, step.ids, policy)
    admission, partitions = records_of(group, record, step.now_ms, step.numbers)
    records += admission
    group.note_write_pending(partitions, record.member_id)
    group.arrives(command)
    admitted = AnswerAttach(
        group.group_id, command, record.member_id, tuple(partitions), is_new=True
    )
    step.out.persist(records, NoFollowUp(group.group_id), follow_up=admitted)


def record_of(
    group: SessionGroup, command: Attach, ids: IdSource, policy: Policy
) -> SessionMemberStored:
    """The record that makes a process a member, with new ids."""
    return SessionMemberStored(
        group.group_id,
        ids.new_member_id(
            command.name or command.client_id or command.client_host.removeprefix("/") or "member"
        ),
        command.name,
        ids.new_session_id(),
        command.incarnation,
        command.started_at_ms,
        command.principal,
        command.client_id,
        command.client_host,
        policy.lease_ms,
        command.topics,
        command.capacity,
        command.max_partitions,
        command.drain_ms,
        command.rack,
        command.revision,
        command.deployment,
    )


def records_of(
    group: SessionGroup, record: SessionMemberStored, now_ms: int, numbers: Numbers
) -> tuple[list[Record], list[TopicPartition]]:
    """Records of a new member and of what it inherits from its name; with these partitions."""
    partitions = _reserved_for(group, record.name, now_ms)
    records: list[Record] = [record]
    if partitions:
        grants = grants_of(record.member_id, partitions, numbers.next_tokens)
        stops.resume(group, record.member_id, partitions, now_ms)
        records.append(PartitionsGranted(group.group_id, grants))
    return records, partitions


def _reserved_for(group: SessionGroup, name: str, now_ms: int) -> list[TopicPartition]:
    """Partitions reserved for a name that may be granted now: those with a delay are left out."""
    if not group.may_grant(now_ms):
        return []
    reserved = group.reserved_for(name)
    return [
        partition
        for partition in reserved
        if group.partition_state(partition).not_before_ms <= now_ms
    ]


def admit_queued(group: SessionGroup, queued: SessionMember, step: Step) -> None:
    """Admit a process that waited until the partitions of its name may be granted again."""
    records, partitions = records_of(group, queued.record, step.now_ms, step.numbers)
    group.note_write_pending(partitions, queued.member_id)
    group.arriving_names.add(queued.record.name)
    written = ReviewPartitions(
        group.group_id,
        tuple(partitions),
        reserved_name=queued.record.name,
        queued_id=queued.member_id,
    )
    step.out.persist(records, NoFollowUp(group.group_id), follow_up=written)


def reservation_over(group: SessionGroup, command: ReservationOver, step: Step) -> None:
    """The reservation of a name has ended: a process queued for it gets the partitions."""
    if not _is_over(group, command.name, step.now_ms):
        return
    queued = group.waiting.get(command.name)
    if queued is None or queued.stream_id is None:
        written = ReviewPartitions(group.group_id, reserved_name=command.name)
        record = ReservationFreed(group.group_id, command.name)
        step.out.persist((record,), NoFollowUp(group.group_id), follow_up=written)
    else:
        admit_queued(group, queued, step)


def _is_over(group: SessionGroup, name: str, now_ms: int) -> bool:
    """True if a name is reserved, and its time is up."""
    return (
        name in group.reserved_names
        and name not in group.arriving_names
        and group.reserved_until_ms.get(name, 0) <= now_ms
    )


def admitted(group: SessionGroup, done: AnswerAttach, step: Step) -> None:
    """The write of an admission is resolved: answer the Attach."""
    command = done.command
    has_stream = not done.is_new or group.arriving.pop(command.incarnation, None) is not None
    group.arriving_names.discard(command.name)
    member = group.members.get(done.member_id)
    if done.error is not ErrorCode.NONE or member is None:
        error = done.error or ErrorCode.UNKNOWN_MEMBER_ID
        step.out.reply(command.call_id, command.refusal(session_refused(error)))
        return
    if done.is_new:
        _begin(group, member, command, step, has_stream=has_stream)
        if not done.partitions or _lacks(group, command):
            scheduler.request_plan_for_arrival(group, step)
    elif group.planning.has_grown:
        scheduler.request_plan(group, step)
    if member.stream_id == command.call_id:
        step.out.reply(command.call_id, answer(group, member, command, step.now_ms))
    else:  # A newer stream was sent the whole: what is dirty since is for that one.
        step.out.reply(command.call_id, command.refusal(_OLD_STREAM))


def _lacks(group: SessionGroup, command: Attach) -> bool:
    """True if a partition that a member declares has no holder."""
    return any("" in group.topics[topic].holders[:count] for topic, count in command.topics)


def _begin(
    group: SessionGroup, member: SessionMember, command: Attach, step: Step, *, has_stream: bool
) -> None:
    """Start the lease of a new member, whose stream may have ended meanwhile."""
    member.progress_at_ms = step.now_ms
    member.is_ready = command.ready
    if has_stream:
        take_stream(group, member, command, step)
    else:
        member.suspect_since_ms = step.now_ms
        lease.renew(group, member, step)


def answer(group: SessionGroup, member: SessionMember, command: Attach, now_ms: int) -> AttachReply:
    claimed = [(topic, partition) for topic, partition, _ in command.held]
    return AttachReply(
        standing=Standing.MEMBER,
        session_id=member.record.session_id,
        member_id=member.member_id,
        lease_ms=member.notified_lease_ms or member.record.lease_ms,
        orders=orders.whole(group, member, now_ms, claimed),
    )


def take_stream(group: SessionGroup, member: SessionMember, command: Attach, step: Step) -> None:
    """Use the stream of this Attach for the member; end its older stream."""
    if member.stream_id is not None:
        step.out.end_stream(member.stream_id, name_takeover.SUPERSEDED)
        restart_backoff.note(group.restart_backoffs, member, step)
    member.stream_id, member.stream_number = command.call_id, command.stream_number
    member.stream_since_ms = step.now_ms
    member.wishes = tuple((name, getattr(command.wishes, name)) for name in command.wished)
    step.out.open_stream(command.call_id, group.group_id, member.member_id)
    lease.renew(group, member, step)
