"""Commands about session groups, and what follows of each.

After every command but a heartbeat that changes nothing `_settle` tells members what has changed,
opens hand-offs for which there is room again, and ends the sessions of leavers that have handed
everything over. What the log has refused is decided again a second later, from what is true then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coordinator.core.config import GroupConfig
from coordinator.core.errors import ErrorCode
from coordinator.core.group import Group
from coordinator.core.ids import CallId, IdSource, Place
from coordinator.core.outcome import DeferKeeping, DeferRetry, Outcome
from coordinator.core.pauses import Pause
from coordinator.core.session_values import commands as c
from coordinator.core.session_values import operators as o
from coordinator.core.session_values import requests as q
from coordinator.core.session_values import written as w
from coordinator.core.session_values.journal import TriggerCause
from coordinator.core.session_values.messages import ToMember
from coordinator.core.sessions import (
    acks,
    admission,
    attach,
    description,
    ends,
    evict,
    flaps,
    handoff,
    heirs,
    last_work,
    lease,
    leave,
    news,
    upkeep,
    wanted,
    windows,
)
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.member import SessionMember
from coordinator.core.sessions.numbers import Numbers


@dataclass(slots=True)
class SessionRules:
    """The rules of session groups, and what they share over all groups of a shard.

    streams: group and member of each open stream.
    """

    config: GroupConfig
    ids: IdSource
    numbers: Numbers = field(default_factory=Numbers)
    streams: dict[CallId, tuple[str, str]] = field(default_factory=dict)

    def handle(
        self,
        group: SessionGroup,
        command: Any,  # One of those in `_HANDLERS`.
        now_ms: int,
        out: Outcome,
        pauses: Sequence[Pause],
    ) -> None:
        """Handle one command about one group."""
        opened, ended, called_ms = len(out.opened), len(out.ended), group.call_at_ms
        if isinstance(command, c.LeaseExpired):
            self._lease_expired(group, command, now_ms, out, pauses)
        else:
            _HANDLERS[type(command)](self, group, command, now_ms, out)
        if type(command) is not q.SessionHeartbeat or out.writes or group.call_at_ms != called_ms:
            self._settle(group, now_ms, out)
        for stream_id, group_id, member_id in out.opened[opened:]:
            self.streams[stream_id] = group_id, member_id
        for stream_id, _ in out.ended[ended:]:
            self.streams.pop(stream_id, None)

    def take(self, groups: Mapping[str, Group], stream_id: CallId, now_ms: int) -> ToMember | None:
        """Take what there is to tell on a stream; None: nothing."""
        group = groups.get(self.streams.get(stream_id, ("", ""))[0])
        if not isinstance(group, SessionGroup):
            return None
        member = self._member(group, stream_id)
        return None if member is None else wanted.take(group, member, now_ms)

    def beat(
        self, groups: Mapping[str, Group], heard: q.SessionHeartbeat, now_ms: int
    ) -> SessionMember | None:
        """Short path of a heartbeat; the member that it has renewed. None: nothing was done."""
        group_id, member_id = self.streams.get(heard.stream_id, ("", ""))
        group = groups.get(group_id)
        if not isinstance(group, SessionGroup):
            return None
        member = group.members.get(member_id)
        if member is None or member.stream_id != heard.stream_id:
            return None
        return member if lease.beat(group, member, heard, now_ms) else None

    def restore(self, group: SessionGroup, grace_ms: int, now_ms: int, out: Outcome) -> None:
        """Serve a group that was read from the log: full leases, and full phases, from now."""
        group.journal.begin()
        group.journal.note(TriggerCause.FAIL_OVER)
        upkeep.give_back(group)
        group.newcomers.clear()
        group.planning.last_record_ms = last_work.last_record_ms(group)
        for member in group.members.values():
            lease.restore(group, member, grace_ms, now_ms, out)
            if member.record.evicted:
                for place in list(group.places_of(member.member_id)):
                    handoff.reconcile(group, place, now_ms, self.numbers, out)
        if group.policy.handover_delay_ms:
            self._delay_free(group, now_ms)
        for place, _ in list(group.open_handoffs()):
            handoff.restore(group, place, now_ms, self.numbers, out)
        for member in group.members.values():
            leave.restore(group, member, now_ms, out)
        for name in group.kept_names:
            leave.keep(group, name, now_ms, out)
        group.state = group.current_state()
        windows.restored(group, now_ms, out, self.config)
        self._settle(group, now_ms, out)

    def _delay_free(self, group: SessionGroup, now_ms: int) -> None:
        """Delay grants of free partitions as after a lease's end: how it ended is not known.

        A member that has announced to return has stopped, and gets what is kept for it at once.
        """
        for name, topic in group.topics.items():
            for partition, holder in enumerate(topic.holders):
                kept = topic.kept.get(partition)
                if not holder and (kept is None or kept.is_delayed):
                    group.not_before[name, partition] = now_ms + group.policy.handover_delay_ms

    # --- What members send ---

    def _attach(self, group: SessionGroup, command: q.Attach, now_ms: int, out: Outcome) -> None:
        attach.attach(
            group,
            command,
            now_ms,
            out,
            config=self.config,
            ids=self.ids,
            numbers=self.numbers,
        )

    def _member(self, group: SessionGroup, stream_id: CallId) -> SessionMember | None:
        """The member whose newest stream this is."""
        _, member_id = self.streams.get(stream_id, ("", ""))
        member = group.members.get(member_id) or group.waiting_as(member_id)
        return member if member is not None and member.stream_id == stream_id else None

    def _speaker(
        self, group: SessionGroup, stream_id: CallId, out: Outcome
    ) -> SessionMember | None:
        """The member that speaks on its newest stream, unless its end is decided."""
        member = self._member(group, stream_id)
        if member is None or not member.is_ended:
            return member
        if not member.goes_away:
            out.end_stream(stream_id, ends.GONE)  # Whether or not its record is durable.
        return None

    def _heartbeat(
        self, group: SessionGroup, command: q.SessionHeartbeat, now_ms: int, out: Outcome
    ) -> None:
        member = self._speaker(group, command.stream_id, out)
        if member is not None and member.member_id not in group.members:
            member.mailbox.ack = command.number
            if command.whole:
                member.mailbox.whole, member.mailbox.answers = True, command.number
            member.last_beat_ms = now_ms
            out.wake(member.stream_id)
            if heirs.is_forgotten(group, member):
                admission.admit_heir(group, member, now_ms, out, self.numbers)
        elif member is not None:
            lease.heartbeat(group, member, command, now_ms, self.numbers, out, self.config)

    def _ack(self, group: SessionGroup, command: q.SessionAck, now_ms: int, out: Outcome) -> None:
        member = self._speaker(group, command.stream_id, out)
        if member is not None:
            acks.take_in(group, member, command, now_ms, self.numbers, out, self.config)

    def _leave(
        self, group: SessionGroup, command: q.SessionLeave, now_ms: int, out: Outcome
    ) -> None:
        member = self._speaker(group, command.stream_id, out)
        if member is None:
            return
        if member.member_id in group.members:
            leave.take_in(group, member, command, now_ms, self.numbers, out, self.config)
        elif member.unanswered is None:  # It waits for a name, and has nothing.
            del group.waiting[member.record.name]
            out.end_stream(command.stream_id, leave.LEFT)

    def _stream_ended(
        self, group: SessionGroup, command: q.StreamEnded, now_ms: int, out: Outcome
    ) -> None:
        member = self._member(group, command.stream_id)
        self.streams.pop(command.stream_id, None)
        if member is None:
            for incarnation, attach in group.arriving.items():
                if attach is not None and attach.call_id == command.stream_id:
                    group.arriving[incarnation] = None
            return
        member.lose_stream(now_ms)
        flaps.note(group.flaps, member, now_ms, out)
        if member.member_id in group.members:
            out.note(news.suspect(group, member))
        old = group.members.get(group.names.get(member.record.name, ""))
        if group.waiting.get(member.record.name) is member and not (old and old.is_ended):
            del group.waiting[member.record.name]

    # --- What operators ask ---

    def _describe(
        self, group: SessionGroup, command: o.DescribeSessionGroup, now_ms: int, out: Outcome
    ) -> None:
        description.describe(group, command, now_ms, out, self.config)

    def _evict(
        self, group: SessionGroup, command: o.EvictMember, now_ms: int, out: Outcome
    ) -> None:
        evict.evict(group, command, now_ms, self.numbers, out)

    # --- Time ---

    def _lease_expired(
        self,
        group: SessionGroup,
        command: c.LeaseExpired,
        now_ms: int,
        out: Outcome,
        pauses: Sequence[Pause],
    ) -> None:
        ends.expire(group, command, now_ms, self.numbers, out, pauses)

    def _phase_overdue(
        self, group: SessionGroup, command: c.PhaseOverdue, now_ms: int, out: Outcome
    ) -> None:
        place = command.topic, command.partition
        open_now = group.handoff(place)
        if (
            open_now is not None
            and open_now.handoff_id == command.handoff_id
            and open_now.phase.value == command.phase
        ):
            open_now.is_overdue = True
            handoff.reconcile(group, place, now_ms, self.numbers, out)

    def _plan_due(self, group: SessionGroup, command: c.PlanDue, now_ms: int, out: Outcome) -> None:
        windows.run(group, now_ms, self.numbers, out, self.config)

    def _plan_computed(
        self, group: SessionGroup, done: c.PlanComputed, now_ms: int, out: Outcome
    ) -> None:
        windows.computed(group, done, now_ms, self.numbers, out, self.config)

    def _keeping_over(
        self, group: SessionGroup, command: c.KeepingOver, now_ms: int, out: Outcome
    ) -> None:
        if not leave.is_over(group, command.name, now_ms):
            return
        heir = group.waiting.get(command.name)
        if heir is None or heir.stream_id is None:
            leave.free_kept(group, command.name, out)
        else:
            admission.admit_heir(group, heir, now_ms, out, self.numbers)

    def _leave_overdue(
        self, group: SessionGroup, command: c.LeaveOverdue, now_ms: int, out: Outcome
    ) -> None:
        member = group.members.get(command.member_id)
        if member is not None and not member.is_ended:
            leave.force_rest(group, member, now_ms, self.numbers, out)

    # --- Writes ---

    def _written(
        self, group: SessionGroup, done: w.SessionWritten, now_ms: int, out: Outcome
    ) -> None:
        group.land(done.places)
        is_refused = done.error is not ErrorCode.NONE
        if done.heir_id:
            group.arriving_names.discard(done.kept_name)
            self._inherited(group, done.heir_id, now_ms, out)
        for place in done.places:
            handoff.settled(group, place, now_ms, self.numbers, out, is_refused=is_refused)
        if done.leaver:  # It gets nothing more, and no budget holds back what it hands over.
            handoff.reconsider(group, done.leaver, now_ms, self.numbers, out)
            for place in list(group.places_of(done.leaver)):
                handoff.reconcile(group, place, now_ms, self.numbers, out)
        if is_refused:
            if done.kept_name in group.kept_names:
                out.defer(DeferKeeping(group.group_id, done.kept_name, now_ms + handoff.RETRY_MS))
            if done.leaver:
                out.defer(DeferRetry(group.group_id, now_ms + handoff.RETRY_MS))
            windows.call(group, now_ms, out, self.config)
        elif done.kept_name or done.leaver or any(_is_urgent(group, p) for p in done.places):
            windows.call_urgently(group, now_ms, out, self.config)

    def _policy_written(
        self, group: SessionGroup, done: w.PolicyWritten, now_ms: int, out: Outcome
    ) -> None:
        group.journal.note(TriggerCause.POLICY_CHANGED)
        for place, _ in list(group.open_handoffs()):
            handoff.reconcile(group, place, now_ms, self.numbers, out)
        windows.arm(group, out, self.config)

    def _write_again(
        self, group: SessionGroup, command: c.WriteRetry, now_ms: int, out: Outcome
    ) -> None:
        handoff.retry(group, now_ms, self.numbers, out)
        failed, group.failed_ends = group.failed_ends, []
        for end in failed:
            member = group.members[end.member_id]
            ends.write_end(group, member, end, now_ms, self.numbers, out)
        for member in list(group.members.values()):
            leave.announce_again(group, member, now_ms, out)

    def _admitted(
        self, group: SessionGroup, done: w.SessionAdmitted, now_ms: int, out: Outcome
    ) -> None:
        written = w.SessionWritten(group.group_id, done.places, error=done.error)
        self._written(group, written, now_ms, out)
        admission.admitted(group, done, now_ms, out, self.config)
        if not done.is_new:  # It may declare less than it is to get.
            handoff.reconsider(group, done.member_id, now_ms, self.numbers, out)

    def _ended(self, group: SessionGroup, done: w.SessionEnded, now_ms: int, out: Outcome) -> None:
        group.land(done.places)
        if ends.is_taken_back(done):
            has_stream = group.members[done.member_id].stream_id in self.streams
            ends.take_back(group, done, now_ms, out, has_stream=has_stream)
            for place in done.places:
                handoff.settled(group, place, now_ms, self.numbers, out, is_refused=False)
            windows.call(group, now_ms, out, self.config)
            return
        if done.error is not ErrorCode.NONE:
            group.failed_ends.append(done)
            out.defer(DeferRetry(group.group_id, now_ms + handoff.RETRY_MS))
            # Its hand-offs may have gone on by writes of their own, and those of others to its heir
            # were not looked at meanwhile.
            for place in done.places:
                if group.holder(place) != done.member_id:
                    handoff.settled(group, place, now_ms, self.numbers, out, is_refused=False)
            return
        if done.stream_id in self.streams and done.last is not None:
            out.end_stream(done.stream_id, done.last)
        for place in done.places:
            handoff.settled(group, place, now_ms, self.numbers, out, is_refused=False)
        handoff.reconsider(group, done.member_id, now_ms, self.numbers, out)
        if done.heir_id:
            self._inherited(group, done.heir_id, now_ms, out)
        if done.kept_name in group.kept_names:
            leave.keep(group, done.kept_name, now_ms, out)
        if group.members:
            is_free = any(not group.holder(place) for place in done.places)
            call = windows.call_urgently if is_free else windows.call
            call(group, now_ms, out, self.config)

    def _log_answered(
        self, group: SessionGroup, done: w.LogAnswered, now_ms: int, out: Outcome
    ) -> None:
        ends.log_answered(group, done, now_ms, self.numbers, out)

    def _inherited(self, group: SessionGroup, heir_id: str, now_ms: int, out: Outcome) -> None:
        """A process that waited is a member: its lease runs, and it is told so."""
        heir = heirs.inherit(group, heir_id, now_ms)
        if heir is None:
            return
        lease.renew(group, heir, now_ms, out)
        asked, heir.unanswered = heir.unanswered, None
        if asked is not None and heir.stream_id is not None:
            out.reply(asked.call_id, admission.answer(group, heir, asked, now_ms))
        out.wake(heir.stream_id)

    # --- After every command ---

    def _settle(self, group: SessionGroup, now_ms: int, out: Outcome) -> None:
        for member_id in group.newcomers:
            if member_id in group.members:  # From now on, whether or not it has heard of it.
                lease.renew(group, group.members[member_id], now_ms, out)
        group.newcomers.clear()
        for member_id, places in group.touched.items():
            member = group.members.get(member_id)
            if member is not None and places:
                member.mailbox.dirty |= places
                out.wake(member.stream_id)
        group.touched.clear()
        group.choices = 0
        windows.tell(group, now_ms, out, self.config)
        windows.open_next(group, now_ms, self.numbers, out)
        for member_id in list(group.leavers):
            member = group.members.get(member_id)
            if member is not None and leave.has_drained(group, member):
                leave.finish(group, member, now_ms, self.numbers, out)
        if group.declarations.shrunk and not group.in_flight and not group.arriving:
            upkeep.give_back(group)
        if not group.members:
            windows.forget(group)
        state = group.current_state()
        if state is not group.state:
            group.state, group.state_changed_at_ms = state, now_ms


_HANDLERS: dict[type, Callable[[SessionRules, SessionGroup, Any, int, Outcome], None]] = {
    q.Attach: SessionRules._attach,
    q.SessionHeartbeat: SessionRules._heartbeat,
    q.SessionAck: SessionRules._ack,
    q.SessionLeave: SessionRules._leave,
    q.StreamEnded: SessionRules._stream_ended,
    o.DescribeSessionGroup: SessionRules._describe,
    o.EvictMember: SessionRules._evict,
    c.PhaseOverdue: SessionRules._phase_overdue,
    c.PlanDue: SessionRules._plan_due,
    c.PlanComputed: SessionRules._plan_computed,
    c.KeepingOver: SessionRules._keeping_over,
    c.LeaveOverdue: SessionRules._leave_overdue,
    w.PolicyWritten: SessionRules._policy_written,
    c.WriteRetry: SessionRules._write_again,
    w.SessionWritten: SessionRules._written,
    w.SessionAdmitted: SessionRules._admitted,
    w.SessionEnded: SessionRules._ended,
    w.LogAnswered: SessionRules._log_answered,
}


def _is_urgent(group: SessionGroup, place: Place) -> bool:
    """True if a partition is free, or belongs to a member that leaves."""
    holder = group.holder(place)
    return holder in group.leavers or (not holder and group.handoff(place) is None)


COMMANDS = frozenset({c.LeaseExpired, *_HANDLERS})
