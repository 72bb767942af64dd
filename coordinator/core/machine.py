"""The entry point of the core: dispatches each command to its handler.

    handle(command, now_ms, out)        live
    apply(record, now_ms)               a record was acknowledged, or is read at load
    drop(record)                        the log has refused a record
    restore()                           all records have been read: serve
    activate_some(count, now_ms, out)   activate some of the restored groups
    records()                           the durable facts, as records
    unload(error, out)                  give all groups up

Handlers return nothing: replies, writes and timers go into `out`, an `Outcome`. Only `beat`, the
fast path of a heartbeat, does without.

This file contains no rules: `TABLE` names the handlers. `Refused` and `MustWait` are caught here.
They are raised before anything has changed, so nothing has to be undone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, assert_never

from coordinator.core import admin, admission, expiration, log_ends, offsets
from coordinator.core import commands as c
from coordinator.core import requests as q
from coordinator.core import written as w
from coordinator.core.classic import (
    description,
    join,
    journal,
    leave,
    liveness,
    progress,
    rebalance,
    static_members,
    sync,
)
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.rests import PartitionReaders
from coordinator.core.classic.subscriptions import PayloadReader
from coordinator.core.config import GroupConfig
from coordinator.core.errors import ErrorCode, MustWait, Refused, session_refused
from coordinator.core.events import GroupCreated
from coordinator.core.group import GroupState
from coordinator.core.group_table import AnyGroup, GroupTable
from coordinator.core.ids import NO_TIME, CallId, IdSource
from coordinator.core.outcome import Outcome
from coordinator.core.pauses import Pause
from coordinator.core.rows import (
    IGNORE,
    Answer,
    Create,
    GivenRow,
    IfMissing,
    Ignore,
    Refuse,
    Row,
    SharedRow,
    timeless,
)
from coordinator.core.session_values.operators import (
    DescribeSessionGroup,
    EvictMember,
    SetGroupPolicy,
)
from coordinator.core.session_values.requests import Attach, SessionHeartbeat
from coordinator.core.session_values.written import PolicyWritten, SessionAdmitted
from coordinator.core.sessions import attach, commits, lease
from coordinator.core.sessions import description as session_description
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.member import SessionMember
from coordinator.core.sessions.policies import set_policy
from coordinator.core.sessions.rules import COMMANDS as SESSION_COMMANDS
from coordinator.core.sessions.rules import SessionRules

STRANGER = Refuse(ErrorCode.UNKNOWN_MEMBER_ID)
NOT_FOUND = Refuse(ErrorCode.GROUP_ID_NOT_FOUND)


TABLE: dict[type, SharedRow | Row | GivenRow] = {
    # Requests
    q.JoinGroup: GivenRow(
        lambda m, group, command, now_ms, out: join.join_group(
            group, command, now_ms, out, config=m.config, ids=m.ids
        ),
        Create(join.check_first),
    ),
    q.SyncGroup: Row(sync.sync_group, STRANGER),
    q.Heartbeat: Row(liveness.heartbeat, STRANGER),
    q.LeaveGroup: Row(leave.leave_group, Answer(leave.leave_no_group)),
    q.ReportLogEnds: Row(progress.report_log_ends, STRANGER),
    q.CommitOffsets: GivenRow(
        lambda m, group, command, now_ms, out: progress.commit_offsets(
            group, command, now_ms, out, config=m.config
        ),
        Create(offsets.check_first),
    ),
    q.FetchOffsets: SharedRow(offsets.fetch_offsets, Answer(offsets.fetch_from_no_group)),
    q.DeleteOffsets: SharedRow(offsets.delete_offsets, NOT_FOUND),
    q.DescribeGroup: Row(timeless(description.describe_group), Answer(admin.describe_no_group)),
    q.DeleteGroup: SharedRow(admin.delete_group, NOT_FOUND),
    q.ListLogEnds: SharedRow(log_ends.list_all, NOT_FOUND),
    q.ListRebalances: Row(description.list_rebalances, NOT_FOUND),
    q.DescribePhase: Row(description.describe_phase, NOT_FOUND),
    # A delayed operation completed
    c.CompleteJoinPhase: GivenRow(
        lambda m, group, command, now_ms, out: rebalance.complete_join_phase(
            group, command, now_ms, out, m.read_topics
        ),
        IGNORE,
    ),
    c.InitialDelayElapsed: GivenRow(
        lambda m, group, command, now_ms, out: rebalance.extend_initial_delay(
            group, command, now_ms, out, m.config, m.read_topics
        ),
        IGNORE,
    ),
    c.SyncPhaseExpired: Row(rebalance.expire_sync_phase, IGNORE),
    c.SessionExpired: GivenRow(
        lambda m, group, command, now_ms, out: liveness.expire_session(
            group, command, now_ms, out, m.pauses
        ),
        IGNORE,
    ),
    # A write was resolved
    w.AssignmentWritten: Row(sync.assignment_written, IGNORE),
    w.StaticMemberWritten: Row(static_members.replacement_written, IGNORE),
    w.StaticMemberSettled: GivenRow(
        lambda m, group, command, now_ms, out: static_members.replacement_settled(
            group, command, now_ms, out, m.config
        ),
        IGNORE,
    ),
    w.ReplacementOverdue: Row(static_members.replacement_overdue, IGNORE),
}
"""Handlers of commands about one group, and what happens if the group is missing."""


class GroupMachine(GroupTable):
    """The state machine of one shard: all its groups, and the handlers of commands.

    Args:
        ids: makes member ids.
        payloads: parses the metadata and assignments of consumers.
    """

    def __init__(self, config: GroupConfig, ids: IdSource, payloads: PayloadReader) -> None:
        super().__init__(config, payloads.topics)
        self.config = config
        self.ids = ids
        self.read_topics = payloads.topics
        self.pauses: Sequence[Pause] = ()
        """Intervals in which members were not heard, from the last `Tick`."""
        self._readers = PartitionReaders(payloads.partitions, payloads.owned)
        self._loaded_at_ms = 0
        self._waiting: set[CallId] = set()  # Requests that wait for the result of a write.
        self._of_the_shard = self._rows_of_the_shard()
        self.sessions = SessionRules(config, ids, self.numbers)

    def _rows_of_the_shard(self) -> dict[type, Callable[[Any, int, Outcome], None]]:
        """Handlers of commands about no group, many groups, or a group that may be missing."""
        return {
            q.ListGroups: lambda command, _, out: admin.list_groups(
                self.groups.values(), command, out
            ),
            c.CallCancelled: self._call_cancelled,
            c.ExpireOffsets: lambda _, now_ms, out: expiration.expire_offsets(
                (
                    group
                    for group in self.groups.values()
                    if group.group_id not in self._dormant_by_id
                ),
                now_ms,
                out,
                config=self.config,
                loaded_at_ms=self._loaded_at_ms,
            ),
            w.OffsetsWritten: self._offsets_written,
            w.AnswerDurable: self._answer_durable,
            w.RebalanceWritten: lambda done, _, out: journal.rebalance_written(done, out),
            w.JoinDurable: lambda done, _, out: join.join_durable(done, out),
            SetGroupPolicy: self._set_policy,
            w.Unawaited: lambda done, _, out: None,
            w.Resume: self._resume,
        }

    # --- One command ---

    def handle(self, command: c.Command, now_ms: int, out: Outcome) -> None:
        """Handle one command and its journal entries.

        Args:
            now_ms: the shard's clock; epoch milliseconds that never go back.
        """
        if self._dormant_by_id:
            self._dormant.wake(getattr(command, "group_id", ""), now_ms, out)
        self._dispatch(command, now_ms, out)
        if self.news:
            out.events += self.news
            self.news.clear()
        if out.events:
            self._journal(now_ms, out)

    def restore_sessions(self, now_ms: int, out: Outcome) -> None:
        """Serve the session groups that were read, and begin new numbers."""
        self.is_serving, self._loaded_at_ms = True, now_ms
        self.numbers.begin(now_ms)
        groups = [group for group in self.groups.values() if isinstance(group, SessionGroup)]
        grace_ms = lease.grace_ms(sum(len(group.members) for group in groups))
        for group in groups:
            self.sessions.restore(group, grace_ms, now_ms, out)

    def session_beat(self, heard: SessionHeartbeat, now_ms: int) -> SessionMember | None:
        """Short path of a session member's heartbeat; see `lease.beat`."""
        return self.sessions.beat(self.groups, heard, now_ms)

    def activate_some(self, count: int, now_ms: int, out: Outcome) -> None:
        """Activate up to `count` more groups, with full session time-outs from now."""
        self._dormant.activate_some(count, now_ms, out)
        self._journal(now_ms, out)

    def beat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> int:
        """Fast path of a heartbeat; see `liveness.beat`."""
        group = self.groups.get(group_id)
        if self._dormant_by_id or not isinstance(group, ClassicGroup):
            return NO_TIME
        return liveness.beat(group, member_id, instance_id, generation, now_ms)

    def _dispatch(
        self, command: c.Command, now_ms: int, out: Outcome, until_ms: int | None = None
    ) -> None:
        """Call the handler of a command; `until_ms` ends all waits of a request that has waited."""
        try:
            row = TABLE.get(type(command))
            if type(command) in SESSION_COMMANDS:
                self._handle_session(command, now_ms, out)
            elif row is None:
                self._of_the_shard[type(command)](command, now_ms, out)
            else:
                self._handle_row(row, command, now_ms, out)
        except Refused as refused:
            # Only requests are refused; an outdated follow-up is ignored.
            assert isinstance(command, q.Request)
            out.reply(command.call_id, command.refusal(refused))
        except MustWait as wait:
            assert isinstance(command, q.Request)
            deadline_ms = wait.deadline_ms if until_ms is None else until_ms
            if deadline_ms > now_ms:
                self._waiting.add(command.call_id)
                out.resume_when_settled(command, deadline_ms)
            else:
                out.reply(command.call_id, command.refusal(Refused(ErrorCode.NOT_COORDINATOR)))

    # Any: whatever has a group_id.
    def _handle_row(
        self, row: SharedRow | Row | GivenRow, command: Any, now_ms: int, out: Outcome
    ) -> None:
        is_follow_up = row.if_missing is IGNORE
        if not is_follow_up:
            admission.check(command, self.config)
        known = group = self.groups.get(command.group_id)
        if group is None or (is_follow_up and group.state is GroupState.DEAD):
            group = self._do_without(row.if_missing, command, now_ms, out)
            if group is None:
                return
        if isinstance(group, SessionGroup) and group.arriving:
            if isinstance(command, q.JoinGroup | q.DeleteGroup):
                raise MustWait(now_ms + self.config.offset_commit_timeout_ms)
        if isinstance(row, SharedRow):
            row.handle(group, command, out)
            return
        if isinstance(group, SessionGroup):
            group = self._other_kind(group, command, now_ms, out)
            if group is None:
                return
        if isinstance(row, GivenRow):
            row.handle(self, group, command, now_ms, out)
        else:
            row.handle(group, command, now_ms, out)
        if known is None and not group.is_vacant:
            self.groups[group.group_id] = group
            out.note(GroupCreated(group.group_id))

    def _handle_session(self, command: Any, now_ms: int, out: Outcome) -> None:
        group = self.groups.get(command.group_id)
        if isinstance(command, Attach):
            group = self._group_to_attach(group, command, now_ms, out)
        elif isinstance(command, DescribeSessionGroup | EvictMember):
            admission.check(command, self.config)
            if group is None:
                raise Refused(ErrorCode.GROUP_ID_NOT_FOUND)
            if isinstance(group, ClassicGroup):
                raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group is classic")
        elif isinstance(command, PolicyWritten) and group is not None:
            group.policy_writes -= 1
        if isinstance(group, SessionGroup):
            try:
                self.sessions.handle(group, command, now_ms, out, self.pauses)
            finally:
                if group.is_unused:
                    del self.groups[group.group_id]
        elif isinstance(command, SessionAdmitted):
            error = command.error or ErrorCode.UNKNOWN_MEMBER_ID
            out.reply(command.command.call_id, command.command.refusal(session_refused(error)))

    def _group_to_attach(
        self, group: AnyGroup | None, command: Attach, now_ms: int, out: Outcome
    ) -> SessionGroup:
        """The group of an Attach; an Empty one of the other kind is converted."""
        admission.check(command, self.config)
        attach.check(command, self.config)
        if isinstance(group, SessionGroup):
            return group
        if isinstance(group, ClassicGroup):
            admission.check_alive(group)
            if group.is_writing_assignment:
                raise MustWait(now_ms + self.config.offset_commit_timeout_ms)
            if group.member_count or group.generation < 0:
                raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group is classic")
        else:
            out.note(GroupCreated(command.group_id))
        found = self.groups[command.group_id] = self.as_sessions(group, command.group_id, now_ms)
        return found

    def _set_policy(self, command: SetGroupPolicy, now_ms: int, out: Outcome) -> None:
        """Set the policy of a group of sessions, of an Empty one, or of one that is to come."""
        admission.check(command, self.config)
        group = self.groups.get(command.group_id)
        if isinstance(group, ClassicGroup) and (group.member_count or group.generation < 0):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group is classic")
        is_new = group is None
        group = group or SessionGroup(command.group_id, now_ms)
        set_policy(group, command, now_ms, out, config=self.config)
        if is_new:
            self.groups[command.group_id] = group
            out.note(GroupCreated(command.group_id))

    def _other_kind(
        self, group: SessionGroup, command: Any, now_ms: int, out: Outcome
    ) -> ClassicGroup | None:
        """Handle what a session group has of its own; returns the classic group it becomes."""
        if isinstance(command, q.CommitOffsets):
            commits.commit_offsets(group, command, now_ms, out, config=self.config)
            return None
        if type(command) in session_description.ANSWERS:
            if isinstance(command, q.ListRebalances):
                group.check_journal(command.has_waited, now_ms)
            session_description.ANSWERS[type(command)](group, command, out, self.config)
            return None
        if isinstance(command, q.JoinGroup) and group.is_deserted and not group.in_flight:
            classic = self.groups[group.group_id] = self.as_classic(group, now_ms)
            return classic
        if isinstance(command, q.Request):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group is one of sessions")
        return None

    def _do_without(
        self, if_missing: IfMissing, command: Any, now_ms: int, out: Outcome
    ) -> ClassicGroup | None:
        """Apply a row's rule for a missing group; returns the new group if it creates one."""
        match if_missing:
            case Refuse(error):
                raise Refused(error)
            case Answer(answer):
                answer(command, out)
            case Create(check):
                check(command)
                return self._new_group(command.group_id, now_ms)
            case Ignore():
                pass
            case _:
                assert_never(if_missing)
        return None

    def _journal(self, now_ms: int, out: Outcome) -> None:
        if self.config.group_rebalance_journal:
            classic = {
                event.group_id: group
                for event in out.events
                if isinstance(group := self.groups.get(event.group_id), ClassicGroup)
            }
            journal.follow_all(classic, now_ms, out, self._readers)

    # --- Rows that need the table ---

    def _call_cancelled(self, command: c.CallCancelled, now_ms: int, out: Outcome) -> None:
        if self.config.group_notice_cancelled_calls:
            self._waiting.discard(command.call_id)
            parked = self.parked_calls.get(command.call_id)
            if parked is not None:
                liveness.cancel_call(*parked, command, now_ms, out)

    def _offsets_written(self, done: w.OffsetsWritten, _now_ms: int, out: Outcome) -> None:
        offsets.offsets_written(done, out)
        group = self.groups.get(done.group_id)
        if not isinstance(group, ClassicGroup):
            return
        if group.generation or not group.is_vacant or group.records():
            return
        del self.groups[done.group_id]  # It was created for this commit, which failed.

    def _answer_durable(self, done: w.AnswerDurable, _now_ms: int, out: Outcome) -> None:
        refused = done.error is not ErrorCode.NONE
        reply = done.request.refusal(Refused(done.error)) if refused else done.reply
        out.reply(done.request.call_id, reply)

    def _resume(self, command: w.Resume, now_ms: int, out: Outcome) -> None:
        """Handle a request again after the write it waited for, or refuse it after a time-out."""
        request = command.request
        if request.call_id not in self._waiting:
            return  # Its client has cancelled it.
        self._waiting.remove(request.call_id)
        # The journal can be read although the log takes no more of it.
        if command.error is ErrorCode.NONE or isinstance(request, q.ListRebalances):
            self._dispatch(offsets.resumed(request), now_ms, out, command.deadline_ms)
        else:
            out.reply(request.call_id, request.refusal(Refused(command.error)))
