"""Eviction: an operator takes everything from a member, and its session ends.

The member is ordered to stop, each of its partitions is forced, and once it has none it ends.
That survives a restart: the order is in the member's record, and `phases.decide` forces whatever a
member with that order holds. If the operator vouches that the process has ended, all is free at
once; a process that waits for its name inherits then.

A name for which partitions are reserved can be evicted too: they are free at once.
"""

from __future__ import annotations

from dataclasses import replace

from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.leave import ends, leaving
from coordinator.core.sessions.member import SessionMember
from coordinator.core.step import Step
from coordinator.core.values.commands import AnswerRequest, ReviewPartitions
from coordinator.core.values.errors import ErrorCode, Refused
from coordinator.core.values.records import EndCause, ReservationFreed
from coordinator.core.values.replies import EvictReply
from coordinator.core.values.requests import EvictMember


def evict(group: SessionGroup, command: EvictMember, step: Step) -> None:
    """Evict a member, or a name; answered when that is durable.

    Raises:
        Refused: UNKNOWN_MEMBER_ID: no member has this id or name, and nothing is reserved for it;
            INVALID_REQUEST: there is neither an id nor a name, or both.
    """
    if bool(command.member_id) == bool(command.member_name):
        raise Refused(ErrorCode.INVALID_REQUEST, "give either a member id or a name")
    member = _find(group, command)
    if member is None:
        _free_reserved(group, command, step)
        return
    held = group.count_held_by(member.member_id)
    reply = EvictReply(member_id=member.member_id, name=member.record.name, partitions=held)
    if command.is_dry_run:
        step.out.reply(command.call_id, reply)
    elif command.is_gone:
        ends.end(group, member, EndCause.EVICTED, step, leaving.EVICTED)
        step.out.persist((), AnswerRequest(command, reply))  # It shares the result of that write.
    else:
        record = member.decided = replace(member.decided, leaves=True, evicted=True)
        partitions = tuple(group.partitions_of(member.member_id))
        group.note_write_pending(partitions)
        written = ReviewPartitions(group.group_id, partitions, leaver=member.member_id)
        step.out.persist((record,), AnswerRequest(command, reply), follow_up=written)


def _find(group: SessionGroup, command: EvictMember) -> SessionMember | None:
    member_id = command.member_id or group.names.get(command.member_name, "")
    member = group.members.get(member_id)
    return None if member is None or member.is_ended else member


def _free_reserved(group: SessionGroup, command: EvictMember, step: Step) -> None:
    name = command.member_name
    if not name or name not in group.reserved_names:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, _unknown(command))
    reserved = sum(1 for _ in group.reserved_for(name))
    reply = EvictReply(name=name, partitions=reserved)
    if command.is_dry_run:
        step.out.reply(command.call_id, reply)
        return
    written = ReviewPartitions(group.group_id, reserved_name=name)
    record = ReservationFreed(group.group_id, name)
    step.out.persist((record,), AnswerRequest(command, reply), follow_up=written)


def _unknown(command: EvictMember) -> str:
    if command.member_id:
        return f"the group has no member {command.member_id}"
    return f"the group has no member {command.member_name}, and nothing is reserved for that name"
