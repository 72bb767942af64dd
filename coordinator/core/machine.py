"""The state machine of a shard: a table of commands, and the dispatch of each to its rule.

    handle(command, now_ms, out)        live
    apply(record, now_ms)               a record was acknowledged, or is read at load
    drop(record)                        the log has refused a record
    restore()                           all records have been read: serve
    activate_some(count, now_ms, out)   activate some of the restored groups
    records()                           the durable facts, as records
    unload(error, now_ms, out)          give all groups up

The table says what each command does to a group of each kind, and without one:

    command: Row(to a classic group, to a session group, if there is no such group)

A cell is a rule, `rule(group, command, step)`, with None for a group that does not exist. An empty
cell ignores the command: it is a follow-up that is too late, or whose group has become another one.
Rules return nothing: replies, writes and timers go into `step.out`. Only `beat` and `session_beat`,
the fast paths of heartbeats, do without the table. `Refused` and `MustWait` are caught here. They
are raised before anything has changed, so nothing has to be undone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar, get_args

from coordinator.core import admin, conversion, documents, expiration, log_ends, offsets
from coordinator.core.classic import (
    description,
    join,
    leave,
    liveness,
    progress,
    rebalance,
    static_members,
    sync,
)
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.config import GroupConfig
from coordinator.core.conversion import IS_CLASSIC, IS_OF_SESSIONS
from coordinator.core.group import Group, GroupState
from coordinator.core.group_table import AnyGroup, GroupTable
from coordinator.core.journal import rebalances
from coordinator.core.payloads import PayloadReader
from coordinator.core.sessions import (
    commits,
    lease,
    policies,
    reconciling,
    restoring,
    streams,
    write_results,
)
from coordinator.core.sessions import description as session_description
from coordinator.core.sessions.arrive import admission, attach
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import phases
from coordinator.core.sessions.leave import ends, evict, leaving
from coordinator.core.sessions.member import SessionMember
from coordinator.core.sessions.plan import scheduler
from coordinator.core.step import ShardContext, Step
from coordinator.core.values import commands as c
from coordinator.core.values import requests as q
from coordinator.core.values import session_messages as m
from coordinator.core.values.effects import Effects
from coordinator.core.values.errors import ErrorCode, MustWait, Refuse, Refused
from coordinator.core.values.events import GroupCreated
from coordinator.core.values.ids import NO_TIME, CallId, IdSource
from coordinator.core.values.replies import HeartbeatReply, Reply
from coordinator.core.values.session_messages import ToMember

G = TypeVar("G", bound=Group | None)
# Any: the command of a row.
Rule: TypeAlias = Callable[[G, Any, Step], None]


@dataclass(frozen=True, slots=True)
class Create:
    """There is no group: the request makes one, which stays unless it could be deleted at once.

    Args:
        kind: the kind of the new group.
        check: raises `Refused` if the request may not make one.
    """

    kind: type[ClassicGroup | SessionGroup] = ClassicGroup
    check: Rule[None] = lambda _, _command, _step: None


@dataclass(frozen=True, slots=True)
class Convert:
    """The group becomes one of the other kind, which handles the command.

    Args:
        check: raises `Refused` or `MustWait` if it may not.
    """

    check: Rule[Any]


@dataclass(frozen=True, slots=True)
class Row:
    """A command that concerns one group, by the kind of the group.

    missing: there is no such group; for what is no request, also if the group is Dead.
    is_reconciled: a session group is reconciled afterwards; see `reconciling`.
    """

    classic: Rule[ClassicGroup] | Convert | None = None
    session: Rule[SessionGroup] | Convert | None = None
    missing: Rule[None] | Create | None = None
    is_reconciled: bool = False


SessionRow = partial(Row, is_reconciled=True)
STRANGER = Refuse(ErrorCode.UNKNOWN_MEMBER_ID)
NOT_FOUND = Refuse(ErrorCode.GROUP_ID_NOT_FOUND)

TABLE: dict[type, Row | Rule[None]] = {
    # --- Requests of classic members ---
    q.JoinGroup: Row(
        join.join_group, Convert(conversion.check_join), Create(check=join.check_first)
    ),
    q.SyncGroup: Row(sync.sync_group, IS_OF_SESSIONS, STRANGER),
    q.Heartbeat: Row(liveness.heartbeat, IS_OF_SESSIONS, STRANGER),
    q.LeaveGroup: Row(leave.leave_group, IS_OF_SESSIONS, leave.leave_no_group),
    q.ReportLogEnds: Row(progress.report_log_ends, IS_OF_SESSIONS, STRANGER),
    # --- Requests about groups of any kind ---
    q.CommitOffsets: Row(
        progress.commit_offsets, commits.commit_offsets, Create(check=offsets.check_first)
    ),
    q.FetchOffsets: Row(offsets.fetch_offsets, offsets.fetch_offsets, offsets.fetch_offsets),
    q.DeleteOffsets: Row(offsets.delete_offsets, offsets.delete_offsets, NOT_FOUND),
    q.PutDocuments: Row(documents.put_documents, documents.put_documents, Create()),
    q.FetchDocuments: Row(
        documents.fetch_documents, documents.fetch_documents, documents.fetch_documents
    ),
    q.DescribeGroup: Row(
        description.describe_group, session_description.describe_as_group, admin.describe_no_group
    ),
    q.DeleteGroup: Row(admin.delete_group, conversion.delete_session_group, NOT_FOUND),
    q.ListLogEnds: Row(log_ends.list_all, log_ends.list_all, NOT_FOUND),
    q.ListRebalances: Row(rebalances.list_rebalances, session_description.list_journal, NOT_FOUND),
    q.DescribePhase: Row(description.describe_phase, session_description.describe_phase, NOT_FOUND),
    # --- Requests about session groups, and what their members send on streams ---
    m.Attach: SessionRow(
        Convert(conversion.check_attach), attach.attach, Create(SessionGroup, attach.check)
    ),
    q.DescribeSessionGroup: SessionRow(IS_CLASSIC, session_description.describe, NOT_FOUND),
    q.EvictMember: SessionRow(IS_CLASSIC, evict.evict, NOT_FOUND),
    q.SetGroupPolicy: Row(
        conversion.set_policy_of_classic, policies.set_policy, Create(SessionGroup)
    ),
    m.SessionHeartbeat: SessionRow(session=streams.heartbeat),
    m.SessionAck: SessionRow(session=streams.ack),
    m.SessionLeave: SessionRow(session=streams.leave_group),
    m.StreamEnded: SessionRow(session=streams.stream_ended),
    # --- A delayed operation completed ---
    c.CompleteJoinPhase: Row(rebalance.complete_join_phase),
    c.InitialDelayElapsed: Row(rebalance.extend_initial_delay),
    c.SyncPhaseExpired: Row(rebalance.expire_sync_phase),
    c.SessionExpired: Row(liveness.expire_session),
    c.LeaseExpired: SessionRow(session=ends.expire),
    c.PhaseOverdue: SessionRow(session=phases.phase_overdue),
    c.PlanDue: SessionRow(session=scheduler.run),
    c.PlanComputed: SessionRow(session=scheduler.computed),
    c.ReservationOver: SessionRow(session=admission.reservation_over),
    c.LeaveOverdue: SessionRow(session=leaving.overdue),
    c.WriteRetry: SessionRow(session=write_results.write_again),
    # --- A write was resolved ---
    c.AnswerSyncs: Row(sync.answer_syncs),
    c.AnswerReplacement: Row(static_members.answer_replacement),
    c.FinishReplacement: Row(static_members.finish_replacement),
    c.RefuseReplacement: Row(static_members.refuse_replacement),
    c.ApplyPolicy: SessionRow(policies.note_written, write_results.apply_policy),
    c.ReviewPartitions: SessionRow(session=write_results.review_partitions),
    c.AnswerAttach: SessionRow(
        write_results.refuse_attach,
        write_results.answer_attach,
        write_results.refuse_attach,
    ),
    c.CloseSession: SessionRow(session=write_results.close_session),
    c.ResumeExpiry: SessionRow(session=ends.resume_expiry),
    c.AnswerRequest: admin.answer_request,
    c.AnswerJoin: join.answer_join,
    c.AnnounceRebalance: rebalances.announce_rebalance,
    c.NoFollowUp: lambda _, _command, _step: None,
}
"""The commands that one rule handles. `GroupMachine` handles the others, which concern all
groups, or requests that wait."""
REQUESTS = frozenset(get_args(q.Request))
"""Commands that are answered; others are ignored if they come too late."""
# Simple consumers that only keep offsets may do so under the empty id, as in Kafka.
_MAY_HAVE_EMPTY_ID = (q.CommitOffsets, q.FetchOffsets, q.DescribeGroup, q.DeleteGroup, q.ListGroups)


class GroupMachine(GroupTable):
    """The state machine of one shard: all its groups, and the requests that wait for the log.

    Args:
        ids: makes member ids.
        payloads: parses the metadata and assignments of consumers.
    """

    def __init__(self, config: GroupConfig, ids: IdSource, payloads: PayloadReader) -> None:
        super().__init__(ShardContext(config, ids, payloads))
        self._loaded_at_ms = 0
        self._waiting: set[CallId] = set()  # Requests that wait for the result of a write.

    def handle(self, command: c.Command, now_ms: int, out: Effects) -> None:
        """Handle one command and its journal entries.

        Args:
            now_ms: the shard's clock; epoch milliseconds that never go back.
        """
        first, step = len(out.events), Step(now_ms, out, self.context)
        if self._dormant_by_id:
            self._dormant.wake(getattr(command, "group_id", ""), step)
        self._dispatch(command, step)
        if self.pending_events:
            out.events += self.pending_events
            self.pending_events.clear()
        if len(out.events) > first:
            rebalances.follow(self.groups, out.events[first:], step)

    def restore_sessions(self, now_ms: int, out: Effects) -> None:
        """Serve the session groups that were read, and begin new numbers."""
        self.is_serving, self._loaded_at_ms = True, now_ms
        self.numbers.begin(now_ms)
        groups = [group for group in self.groups.values() if isinstance(group, SessionGroup)]
        grace_ms = lease.grace_ms(sum(len(group.members) for group in groups))
        for group in groups:
            restoring.restore(group, grace_ms, Step(now_ms, out, self.context))

    def activate_some(self, count: int, now_ms: int, out: Effects) -> None:
        """Activate up to `count` more groups, with full session time-outs from now."""
        first, step = len(out.events), Step(now_ms, out, self.context)
        self._dormant.activate_some(count, step)
        rebalances.follow(self.groups, out.events[first:], step)

    def beat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> int:
        """Fast path of a heartbeat; see `liveness.beat`."""
        group = self.groups.get(group_id)
        if self._dormant_by_id or not isinstance(group, ClassicGroup):
            return NO_TIME
        return liveness.beat(group, member_id, instance_id, generation, now_ms)

    def session_beat(self, heartbeat: m.SessionHeartbeat, now_ms: int) -> SessionMember | None:
        """Fast path of a session member's heartbeat; see `lease.beat`."""
        return streams.beat(self.context.streams, self.groups, heartbeat, now_ms)

    def take(self, stream_id: CallId, now_ms: int) -> ToMember | None:
        """Take the pending message of a session member's stream; None: nothing is pending."""
        return streams.take(self.context.streams, self.groups, stream_id, now_ms)

    # --- Dispatch ---

    def _dispatch(self, command: c.Command, step: Step, until_ms: int | None = None) -> None:
        """Call the rule of a command; `until_ms` ends all waits of a request that has waited."""
        row = TABLE.get(type(command))
        try:
            if isinstance(row, Row):
                self._handle_row(row, command, step)
            elif row is not None:
                row(None, command, step)
            else:
                self._handle_own(command, step)
        except Refused as refused:
            # Only requests are refused; an outdated follow-up is ignored.
            assert isinstance(command, q.Request)
            step.out.reply(command.call_id, command.refusal(refused))
        except MustWait as wait:
            assert isinstance(command, q.Request)
            deadline_ms = wait.deadline_ms if until_ms is None else until_ms
            if deadline_ms > step.now_ms:
                self._waiting.add(command.call_id)
                step.out.handle_again_when_written(command, deadline_ms)
            else:
                too_late = Refused(ErrorCode.NOT_COORDINATOR)
                step.out.reply(command.call_id, command.refusal(too_late))

    # Any: whatever has a group_id.
    def _handle_row(self, row: Row, command: Any, step: Step) -> None:
        is_request = type(command) in REQUESTS
        if is_request:
            _check(command, step.config)
        group = self.groups.get(command.group_id)
        if group is not None and (is_request or group.state is not GroupState.DEAD):
            self._apply_rule(row, group, command, step)
        elif isinstance(row.missing, Create):
            row.missing.check(None, command, step)
            group = self._new_group(row.missing.kind, command.group_id, step.now_ms)
            self._apply_rule(row, group, command, step)
            if not group.can_be_deleted:
                self.groups[group.group_id] = group
                step.out.note(GroupCreated(group.group_id))
        elif row.missing is not None:
            row.missing(None, command, step)

    def _apply_rule(self, row: Row, group: AnyGroup, command: Any, step: Step) -> None:
        """Call the rule for the group's kind, or convert the group and call that of the other."""
        # Any: a rule for groups of that kind.
        rule: Any = row.classic if isinstance(group, ClassicGroup) else row.session
        if isinstance(rule, Convert):
            rule.check(group, command, step)
            kind = SessionGroup if isinstance(group, ClassicGroup) else ClassicGroup
            group = self._new_group(kind, group.group_id, step.now_ms, group)
            self.groups[group.group_id] = group
            self._apply_rule(row, group, command, step)
        elif row.is_reconciled and isinstance(group, SessionGroup) and rule is not None:
            try:
                reconciling.handle(rule, group, command, step)
            finally:
                self._drop_never_used(group)
        elif rule is not None:
            rule(group, command, step)

    def _drop_never_used(self, group: AnyGroup) -> None:
        if group.was_never_used and self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]

    # --- Commands that concern the table, or requests that wait ---

    def _handle_own(self, command: c.Command, step: Step) -> None:
        match command:
            case q.ListGroups():
                admin.list_groups(self.groups.values(), command, step)
            case c.ExpireOffsets():
                self._expire_offsets(step)
            case c.AnswerCommit():
                self._answer_commit(command, step)
            case c.CallCancelled():
                self._cancel_call(command, step)
            case c.HandleAgain():
                self._handle_again(command, step)
            case _:
                raise AssertionError(f"no rule handles {type(command).__name__}")

    def _expire_offsets(self, step: Step) -> None:
        """Expire the offsets of all groups that are active."""
        active = (
            group for group in self.groups.values() if group.group_id not in self._dormant_by_id
        )
        expiration.expire_offsets(active, step, loaded_at_ms=self._loaded_at_ms)

    def _answer_commit(self, command: c.AnswerCommit, step: Step) -> None:
        """Answer a commit; a group that was made for it goes if the log has refused it."""
        offsets.answer_commit(command, step)
        group = self.groups.get(command.group_id)
        if isinstance(group, ClassicGroup) and group.state is not GroupState.DEAD:
            self._drop_never_used(group)

    def _cancel_call(self, command: c.CallCancelled, step: Step) -> None:
        """A client does not await its call any more."""
        if step.config.group_notice_cancelled_calls:
            self._waiting.discard(command.call_id)
            parked = self.parked_calls.get(command.call_id)
            if parked is not None:
                liveness.cancel_call(*parked, command, step)

    def _handle_again(self, command: c.HandleAgain, step: Step) -> None:
        """Handle a request again after the write it waited for, or refuse it after a time-out."""
        request = command.request
        if request.call_id not in self._waiting:
            return  # Its client has cancelled it.
        self._waiting.remove(request.call_id)
        # The journal can be read although the log takes no more of it.
        if command.error is ErrorCode.NONE or isinstance(request, q.ListRebalances):
            self._dispatch(offsets.resumed(request), step, command.deadline_ms)
        else:
            step.out.reply(request.call_id, request.refusal(Refused(command.error)))


def answer_while_loading(request: q.Request) -> Reply:
    """Return the answer to a request while its shard is loading.

    Heartbeats succeed unchecked, so that healthy members are not disturbed. SyncGroup gets
    REBALANCE_IN_PROGRESS: the member joins again, and retries that until the load has ended.
    """
    if isinstance(request, q.Heartbeat):
        return HeartbeatReply()
    if isinstance(request, q.SyncGroup):
        return request.refusal(Refused(ErrorCode.REBALANCE_IN_PROGRESS))
    return request.refusal(Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))


def refusal_unserved(request: q.Request, error: ErrorCode) -> Reply:
    """The refusal of a request whose shard is served by nobody here, because of an error."""
    return request.refusal(Refused(ErrorCode.INVALID_GROUP_ID if _lacks_group(request) else error))


def _check(request: q.Request, config: GroupConfig) -> None:
    """Check the fields of a request that do not depend on its group.

    Raises:
        Refused: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT.
    """
    if _lacks_group(request):
        raise Refused(ErrorCode.INVALID_GROUP_ID)
    low, high = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if isinstance(request, q.JoinGroup) and not low <= request.session_timeout_ms <= high:
        raise Refused(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"session_timeout_ms is {request.session_timeout_ms}; ask for {low} to {high}",
        )


def _lacks_group(request: q.Request) -> bool:
    return not (isinstance(request, _MAY_HAVE_EMPTY_ID) or request.group_id)
