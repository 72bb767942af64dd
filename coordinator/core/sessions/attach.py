"""Members come, and come back.

One session for each incarnation of a process: an Attach whose incarnation has a session resumes it,
with or without a session id, since the first answer may have been lost. Admission is durable before
it is answered. Two Attaches of one process, or of one name, are decided one after the other: the
second waits for the record of the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from coordinator.core.config import GroupConfig
from coordinator.core.errors import ErrorCode, MustWait, Refused
from coordinator.core.ids import NO_TIME, IdSource, Place
from coordinator.core.outcome import Outcome
from coordinator.core.records import Record
from coordinator.core.session_values.journal import TriggerCause
from coordinator.core.session_values.policy import Policy
from coordinator.core.session_values.records import (
    EndCause,
    PartitionsGranted,
    PolicyStored,
    SessionMemberStored,
)
from coordinator.core.session_values.requests import Attach, AttachReply, Standing
from coordinator.core.session_values.written import SessionAdmitted, SessionWritten
from coordinator.core.sessions import claims, ends, flaps, heirs, lease, wanted, windows
from coordinator.core.sessions import handoff as handoffs
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.holdings import grants_of
from coordinator.core.sessions.member import SessionMember
from coordinator.core.sessions.numbers import Numbers
from coordinator.core.written import Unawaited

MAX_PARTITIONS = 250_000
Call = Callable[[SessionGroup, int, Outcome, GroupConfig], None]
"""Calls for a plan."""
_OLD_STREAM = Refused(ErrorCode.FENCED_INSTANCE_ID, "the session has a newer stream, or this ended")


def check(attach: Attach) -> None:
    """Check what does not depend on the group.

    Raises:
        Refused: INVALID_REQUEST.
    """
    if not attach.incarnation:
        raise _invalid("incarnation is empty")
    if not math.isfinite(attach.capacity) or attach.capacity < 0:
        raise _invalid(f"capacity is {attach.capacity}; it may be 0 or more")
    if attach.max_partitions is not None and attach.max_partitions < 0:
        raise _invalid(f"max_partitions is {attach.max_partitions}; it may be 0 or more")
    if attach.drain_ms is not None and attach.drain_ms < 0:
        raise _invalid(f"drain_ms is {attach.drain_ms}; it may be 0 or more")
    names = [name for name, _ in attach.topics]
    counts = [count for _, count in attach.topics]
    if len(set(names)) < len(names) or any(count < 0 for count in counts):
        raise _invalid("each topic once, with 0 partitions or more")
    if sum(counts) > MAX_PARTITIONS:
        raise _too_many(sum(counts))
    if any(partition < 0 for _, partition, _ in attach.held):
        raise _invalid("a held partition is negative")


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, message)


def _too_many(count: int) -> Refused:
    return _invalid(f"{count} partitions; a group may have {MAX_PARTITIONS} (max_group_partitions)")


def attach(
    group: SessionGroup,
    command: Attach,
    now_ms: int,
    out: Outcome,
    *,
    config: GroupConfig,
    ids: IdSource,
    numbers: Numbers,
) -> None:
    """Admit, resume, or refuse a process.

    Raises:
        Refused: FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID, UNKNOWN_MEMBER_ID,
            GROUP_MAX_SIZE_REACHED, INVALID_REQUEST; COORDINATOR_NOT_AVAILABLE: it came and went too
            often, or the log has refused the end of its name's member.
        MustWait: the end of its name's member, or an Attach of this process or name, or the end of
            the group is being written.
    """
    check(command)
    if command.incarnation in group.arriving or command.name in group.arriving_names:
        raise _must_wait(now_ms, config)
    known = group.of_incarnation(command.incarnation)
    if known is not None and not command.is_ahead:
        _resume(group, known, command, now_ms, out, config, numbers)
        return
    if known is not None and known.is_ended:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    flaps.check(group.flaps, flaps.keys_of(command)[-1], now_ms)
    old = known or (group.members.get(group.names.get(command.name, "")) if command.name else None)
    if old is not None and old.is_ended:
        if any(end.member_id == old.member_id for end in group.failed_ends):
            # There is no write to wait for: the next is made when the last was refused for a while.
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, retry_after_ms=handoffs.RETRY_MS)
        raise _must_wait(now_ms, config)
    if old is None and _waits_without_a_member(group, command, now_ms):
        _wait_on(group, command, now_ms, out, ids, numbers)
    elif old is None:
        _admit(group, command, now_ms, out, config, ids, numbers)
    else:
        _follow(group, old, command, now_ms, out, ids, numbers)


def _must_wait(now_ms: int, config: GroupConfig) -> MustWait:
    return MustWait(now_ms + config.offset_commit_timeout_ms)


# --- New members ---


def _admit(
    group: SessionGroup,
    command: Attach,
    now_ms: int,
    out: Outcome,
    config: GroupConfig,
    ids: IdSource,
    numbers: Numbers,
) -> None:
    if group.deletions:
        raise _must_wait(now_ms, config)  # It would take the policy that a member relies on.
    if len(group.members) + len(group.arriving) >= config.group_max_size:
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED)
    if group.declarations.total_with(command.topics) > MAX_PARTITIONS:
        raise _too_many(group.declarations.total_with(command.topics))
    records: list[Record] = []
    policy = group.policy
    if command.wishes is not None and not group.is_policy_stored:
        if group.arriving or group.policy_writes:
            raise _must_wait(now_ms, config)  # Its wishes may be the group's policy.
        policy = command.wishes
        policy.check(config.group_min_lease_ms)
        records.append(PolicyStored(group.group_id, policy))
    record = _record(group, command, ids, policy)
    admission, places = _admission(group, record, now_ms, numbers)
    records += admission
    group.fly(places, record.member_id)
    group.arrives(command)
    admitted = SessionAdmitted(
        group.group_id, command, record.member_id, tuple(places), is_new=True
    )
    out.persist(records, Unawaited(group.group_id), settled=admitted)


def _record(
    group: SessionGroup, command: Attach, ids: IdSource, policy: Policy
) -> SessionMemberStored:
    return SessionMemberStored(
        group.group_id,
        ids.new_member_id(command.name or command.client_id or "member"),
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
        command.place,
    )


def _admission(
    group: SessionGroup, record: SessionMemberStored, now_ms: int, numbers: Numbers
) -> tuple[list[Record], list[Place]]:
    """Records of a new member and of what it inherits from its name; with these partitions."""
    places = _kept_for(group, record.name, now_ms)
    records: list[Record] = [record]
    if places:
        grants = grants_of(record.member_id, places, numbers.next_tokens)
        records.append(PartitionsGranted(group.group_id, grants))
    return records, places


def _kept_for(group: SessionGroup, name: str, now_ms: int) -> list[Place]:
    """Partitions that a process of a name inherits, without those that others wait for as well."""
    return [
        place for place in group.kept_for(name) if group.not_before.get(place, NO_TIME) <= now_ms
    ]


def admit_heir(
    group: SessionGroup, heir: SessionMember, now_ms: int, out: Outcome, numbers: Numbers
) -> None:
    """Admit a process that has waited until what was kept for its name may be worked on again."""
    records, places = _admission(group, heir.record, now_ms, numbers)
    group.fly(places, heir.member_id)
    group.arriving_names.add(heir.record.name)
    settled = SessionWritten(
        group.group_id, tuple(places), kept_name=heir.record.name, heir_id=heir.member_id
    )
    out.persist(records, Unawaited(group.group_id), settled=settled)


def _follow(
    group: SessionGroup,
    old: SessionMember,
    command: Attach,
    now_ms: int,
    out: Outcome,
    ids: IdSource,
    numbers: Numbers,
) -> None:
    """A new session in the place of one that lives: of its name, or of its process."""
    record = _record(group, command, ids, group.policy)
    if old.record.incarnation == command.incarnation:
        heirs.check_stream(old, command)
        _restored(group, old, record, command, now_ms, out, numbers)
        return
    heir = heirs.wait(group, old.ends_at_ms, record, command, now_ms, out)
    if heirs.has_ended(old, command):
        heir.unanswered = command
        ends.end(group, old, EndCause.REPLACED, now_ms, numbers, out, heirs.SUPERSEDED)
    else:
        message = f"{command.name} is {old.member_id}, which may be alive"
        hold_ms = group.policy.degraded_hold_ms
        told = heirs.told_to_wait(heir, message, old.ends_at_ms, hold_ms, now_ms)
        out.reply(command.call_id, told)


def _waits_without_a_member(group: SessionGroup, command: Attach, now_ms: int) -> bool:
    """True if a process waits for a name that has no member: others wait for what that one held as
    well, or the process was silent when it ended, and comes again."""
    heir = group.waiting.get(command.name)
    if heir is None:
        return False
    is_same = heir.record.incarnation == command.incarnation
    return is_same or _is_delayed(group, command.name, now_ms)


def _is_delayed(group: SessionGroup, name: str, now_ms: int) -> bool:
    """True while `handover_delay_ms` runs for what is kept for a name."""
    kept = group.kept_for(name)
    return any(group.not_before.get(place, NO_TIME) > now_ms for place in kept)


def _wait_on(
    group: SessionGroup,
    command: Attach,
    now_ms: int,
    out: Outcome,
    ids: IdSource,
    numbers: Numbers,
) -> None:
    until_ms = group.kept_until_ms.get(command.name, now_ms)
    record = _record(group, command, ids, group.policy)
    heir = heirs.wait(group, until_ms, record, command, now_ms, out)
    if not _is_delayed(group, command.name, now_ms):
        heir.unanswered = command
        admit_heir(group, heir, now_ms, out, numbers)
        return
    message = f"what {command.name} held may be worked on still"
    hold_ms = group.policy.degraded_hold_ms
    out.reply(command.call_id, heirs.told_to_wait(heir, message, until_ms, hold_ms, now_ms))


def _restored(
    group: SessionGroup,
    old: SessionMember,
    record: SessionMemberStored,
    command: Attach,
    now_ms: int,
    out: Outcome,
    numbers: Numbers,
) -> None:
    """End a session that the store has forgotten, and admit its process anew.

    The record of the end proves the fence: if another node has the shard, the append is refused.
    """
    ends.end(group, old, EndCause.RESTORED, now_ms, numbers, out, heirs.SUPERSEDED)
    if command.name in group.waiting:  # Which has the name from now on.
        out.reply(command.call_id, command.refusal(Refused(ErrorCode.UNKNOWN_MEMBER_ID)))
        return
    group.arrives(command)
    admitted = SessionAdmitted(group.group_id, command, record.member_id, is_new=True)
    out.persist((record,), Unawaited(group.group_id), settled=admitted)


def admitted(
    group: SessionGroup, done: SessionAdmitted, now_ms: int, out: Outcome, config: GroupConfig
) -> None:
    """The record of a member is durable, or will not be: answer."""
    command = done.command
    has_stream = not done.is_new or group.arriving.pop(command.incarnation, None) is not None
    group.arriving_names.discard(command.name)
    member = group.members.get(done.member_id)
    if done.error is not ErrorCode.NONE or member is None:
        error = done.error if done.error is not ErrorCode.NONE else ErrorCode.UNKNOWN_MEMBER_ID
        out.reply(command.call_id, command.refusal(Refused(error)))
        return
    if done.is_new:
        begin(group, member, command, now_ms, out, has_stream=has_stream)
        if not done.places or _lacks(group, command):
            windows.call_for_arrival(group, now_ms, out, config)
    elif group.planning.has_grown:
        windows.call(group, now_ms, out, config)
    if member.stream_id == command.call_id:
        out.reply(command.call_id, answer(group, member, command, now_ms))
    else:  # A newer stream was told the whole: what is dirty since is for that one.
        out.reply(command.call_id, command.refusal(_OLD_STREAM))


def _lacks(group: SessionGroup, command: Attach) -> bool:
    """True if a partition that a member declares has no holder."""
    return any("" in group.topics[topic].holders[:count] for topic, count in command.topics)


def begin(
    group: SessionGroup,
    member: SessionMember,
    command: Attach,
    now_ms: int,
    out: Outcome,
    *,
    has_stream: bool,
) -> None:
    """A process has become a member; its stream may have ended meanwhile."""
    member.progress_at_ms = now_ms
    member.is_ready = command.ready
    if has_stream:
        _take_stream(group, member, command, now_ms, out)
    else:
        member.suspect_since_ms = now_ms
        lease.renew(group, member, now_ms, out)


def answer(group: SessionGroup, member: SessionMember, command: Attach, now_ms: int) -> AttachReply:
    """The answer to the Attach of a member."""
    claimed = [(topic, partition) for topic, partition, _ in command.held]
    return AttachReply(
        standing=Standing.MEMBER,
        session_id=member.record.session_id,
        member_id=member.member_id,
        lease_ms=member.told_lease_ms or member.record.lease_ms,
        wanted=wanted.whole(group, member, now_ms, claimed),
        degraded_hold_ms=group.policy.degraded_hold_ms,
    )


def _take_stream(
    group: SessionGroup, member: SessionMember, command: Attach, now_ms: int, out: Outcome
) -> None:
    if member.stream_id is not None:
        out.end_stream(member.stream_id, heirs.SUPERSEDED)
        flaps.note(group.flaps, member, now_ms, out)
    member.stream_id, member.stream_number = command.call_id, command.stream_number
    member.stream_since_ms = now_ms
    out.open_stream(command.call_id, group.group_id, member.member_id)
    lease.renew(group, member, now_ms, out)


# --- Members that come back ---


def _resume(
    group: SessionGroup,
    member: SessionMember,
    command: Attach,
    now_ms: int,
    out: Outcome,
    config: GroupConfig,
    numbers: Numbers,
) -> None:
    if command.principal != member.record.principal:
        raise Refused(ErrorCode.FENCED_INSTANCE_ID, "the session belongs to another caller")
    if member.is_ended:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    heirs.check_stream(member, command)
    flaps.check(group.flaps, flaps.keys_of(member.record)[0], now_ms)
    total = group.declarations.total_with(command.topics)
    if total > MAX_PARTITIONS and command.topics != member.record.topics:
        raise _too_many(total)
    claimed = {(topic, partition): token for topic, partition, token in command.held}
    missing = claims.unclaimed(group, member, claimed)
    if any(place in group.in_flight for place in missing):
        raise _must_wait(now_ms, config)
    records = _changed(group, member, command)
    grants, again = claims.granted_anew(group, member, missing, now_ms, numbers)
    if grants:
        records.append(PartitionsGranted(group.group_id, grants))
    call = _call_of(group, member, command, again)
    if call is not None and member.is_suspect:
        group.journal.note(TriggerCause.MEMBER_BACK, member.member_id)
    _take_stream(group, member, command, now_ms, out)
    member.is_ready = command.ready
    if not records:
        out.reply(command.call_id, answer(group, member, command, now_ms))
    else:
        group.fly(again, member.member_id)
        done = SessionAdmitted(group.group_id, command, member.member_id, tuple(again))
        out.persist(records, Unawaited(group.group_id), settled=done)
    for place in missing:
        if place in group.released:
            handoffs.reconcile(group, place, now_ms, numbers, out)
    if call is not None:
        call(group, now_ms, out, config)


def _changed(group: SessionGroup, member: SessionMember, command: Attach) -> list[Record]:
    """The record of a member that says something new about itself.

    A longer lease is on record before it is told. A shorter one is told at once, and on record when
    the member is known to have heard it.
    """
    before, lease_ms = member.decided, group.policy.lease_ms
    changed = replace(
        before,
        lease_ms=max(member.record.lease_ms, before.lease_ms, lease_ms),
        client_id=command.client_id,
        client_host=command.client_host,
        topics=command.topics,
        capacity=command.capacity,
        max_partitions=command.max_partitions,
        drain_ms=command.drain_ms,
        rack=command.rack,
        revision=command.revision,
        deployment=command.deployment,
        place=command.place,
    )
    member.told_lease_ms = lease_ms if lease_ms < changed.lease_ms else 0
    member.shorter_lease_ms = 0
    if changed == before:
        return []
    member.decided = changed
    return [changed]


def _call_of(
    group: SessionGroup, member: SessionMember, command: Attach, again: list[Place]
) -> Call | None:
    """Call for a plan on a member's return; None: no plan was made without it."""
    record = member.record
    receives = command.ready and not member.is_ready
    if receives or command.capacity > record.capacity:
        return windows.call_for_arrival
    missed = member.is_suspect and group.planned_at_ms >= member.suspect_since_ms
    is_other = (record.topics, record.capacity, record.max_partitions) != (
        command.topics,
        command.capacity,
        command.max_partitions,
    )
    is_due = group.call_at_ms != NO_TIME
    if missed or is_other or is_due or any(group.handoff(place) is not None for place in again):
        return windows.call
    return None
