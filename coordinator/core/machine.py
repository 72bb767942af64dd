"""The entry point of the core: dispatches each command to its handler.

    handle(command, now_ms, out)        live
    apply(record, now_ms)               a record was acknowledged, or is read at load
    drop(record)                        the log has refused a record
    restore()                           all records have been read: serve
    activate_some(count, now_ms, out)   activate some of the restored groups
    records()                           the durable facts, as records
    unload(error, out)                  give all groups up

This file contains no rules. `TABLE` says of every command what it does:

    command: Row(to a classic group, to a session group, if there is no such group)
    command: ShardCommandRow(to many groups, or none)

A cell is a handler, or says that the request is refused, or a follow-up ignored. Handlers return
nothing: replies, writes and timers go into `out`, an `Effects`. Only `beat` and `session_beat`, the
fast paths of heartbeats, do without.

`Refused` and `MustWait` are caught here. They are raised before anything has changed, so nothing
has to be undone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from coordinator.core import admin, admission, documents, expiration, kinds, log_ends, offsets
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
from coordinator.core.classic.idle_spans import PartitionReaders
from coordinator.core.classic.subscriptions import PayloadReader
from coordinator.core.config import GroupConfig
from coordinator.core.context import ShardContext
from coordinator.core.effects import Effects
from coordinator.core.errors import ErrorCode, MustWait, Refused
from coordinator.core.events import Event, GroupCreated
from coordinator.core.group import Group, GroupState
from coordinator.core.group_table import GroupTable
from coordinator.core.ids import NO_TIME, CallId, IdSource
from coordinator.core.kinds import IS_CLASSIC, IS_OF_SESSIONS
from coordinator.core.rows import (
    IGNORE,
    Create,
    G,
    Handler,
    Ignore,
    Refuse,
    Row,
    ShardCommandRow,
    configured,
    groupless,
    reconciled,
    timed,
    timeless,
    without,
)
from coordinator.core.session_values import commands as sc
from coordinator.core.session_values import operators as o
from coordinator.core.session_values import requests as sq
from coordinator.core.session_values import written as sw
from coordinator.core.session_values.messages import ToMember
from coordinator.core.sessions import commits, lease, policies, restoring, streams, write_results
from coordinator.core.sessions import description as session_description
from coordinator.core.sessions.arrive import admission as session_admission
from coordinator.core.sessions.arrive import attach
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import phases
from coordinator.core.sessions.leave import ends, evict, leaving
from coordinator.core.sessions.member import SessionMember
from coordinator.core.sessions.plan import scheduler
from coordinator.core.sessions.step import Step

STRANGER = Refuse(ErrorCode.UNKNOWN_MEMBER_ID)
NOT_FOUND = Refuse(ErrorCode.GROUP_ID_NOT_FOUND)
REQUESTS = frozenset(get_args(q.Request))
"""Commands that are answered; others are ignored if they come too late."""


def _put_documents(
    table: GroupTable, group: Group, command: q.PutDocuments, now_ms: int, out: Effects
) -> None:
    documents.put_documents(group, command, now_ms, out, table.context)


TABLE: dict[type, Row | ShardCommandRow] = {
    # --- Requests of classic members ---
    q.JoinGroup: Row(
        lambda table, group, command, now_ms, out: join.join_group(
            group, command, now_ms, out, config=table.config, ids=table.context.ids
        ),
        kinds.join_session_group,
        Create(join.check_first),
    ),
    q.SyncGroup: Row(timed(sync.sync_group), IS_OF_SESSIONS, STRANGER),
    q.Heartbeat: Row(timed(liveness.heartbeat), IS_OF_SESSIONS, STRANGER),
    q.LeaveGroup: Row(timed(leave.leave_group), IS_OF_SESSIONS, without(leave.leave_no_group)),
    q.ReportLogEnds: Row(timed(progress.report_log_ends), IS_OF_SESSIONS, STRANGER),
    # --- Requests about groups of any kind ---
    q.CommitOffsets: Row(
        configured(progress.commit_offsets),
        configured(commits.commit_offsets),
        Create(offsets.check_first),
    ),
    q.FetchOffsets: Row(
        timeless(offsets.fetch_offsets),
        timeless(offsets.fetch_offsets),
        without(offsets.fetch_from_no_group),
    ),
    q.DeleteOffsets: Row(
        timeless(offsets.delete_offsets), timeless(offsets.delete_offsets), NOT_FOUND
    ),
    q.PutDocuments: Row(_put_documents, _put_documents, Create()),
    q.FetchDocuments: Row(
        timeless(documents.fetch_documents),
        timeless(documents.fetch_documents),
        without(documents.fetch_from_no_group),
    ),
    q.DescribeGroup: Row(
        timeless(description.describe_group),
        timeless(session_description.describe_as_group),
        without(admin.describe_no_group),
    ),
    q.DeleteGroup: Row(timeless(admin.delete_group), kinds.delete_session_group, NOT_FOUND),
    q.ListLogEnds: Row(timeless(log_ends.list_all), timeless(log_ends.list_all), NOT_FOUND),
    q.ListRebalances: Row(
        timed(description.list_rebalances), timed(session_description.list_journal), NOT_FOUND
    ),
    q.DescribePhase: Row(
        timed(description.describe_phase),
        configured(session_description.describe_phase),
        NOT_FOUND,
    ),
    q.ListGroups: ShardCommandRow(
        lambda machine, command, _, out: admin.list_groups(machine.groups.values(), command, out)
    ),
    # --- Requests about session groups, and what their members send on streams ---
    sq.Attach: Row(kinds.attach_to_classic, reconciled(attach.attach), kinds.attach_to_none),
    o.DescribeSessionGroup: Row(IS_CLASSIC, reconciled(session_description.describe), NOT_FOUND),
    o.EvictMember: Row(IS_CLASSIC, reconciled(evict.evict), NOT_FOUND),
    o.SetGroupPolicy: Row(
        kinds.set_policy_of_classic, configured(policies.set_policy), kinds.set_policy_of_none
    ),
    sq.SessionHeartbeat: Row(IGNORE, reconciled(streams.heartbeat), IGNORE),
    sq.SessionAck: Row(IGNORE, reconciled(streams.ack), IGNORE),
    sq.SessionLeave: Row(IGNORE, reconciled(streams.leave_group), IGNORE),
    sq.StreamEnded: Row(IGNORE, reconciled(streams.stream_ended), IGNORE),
    # --- A delayed operation completed ---
    c.CompleteJoinPhase: Row(
        lambda table, group, command, now_ms, out: rebalance.complete_join_phase(
            group, command, now_ms, out, table.read_topics
        ),
        IGNORE,
        IGNORE,
    ),
    c.InitialDelayElapsed: Row(
        lambda table, group, command, now_ms, out: rebalance.extend_initial_delay(
            group, command, now_ms, out, table.config, table.read_topics
        ),
        IGNORE,
        IGNORE,
    ),
    c.SyncPhaseExpired: Row(timed(rebalance.expire_sync_phase), IGNORE, IGNORE),
    c.SessionExpired: Row(
        lambda table, group, command, now_ms, out: liveness.expire_session(
            group, command, now_ms, out, table.context.pauses
        ),
        IGNORE,
        IGNORE,
    ),
    sc.LeaseExpired: Row(IGNORE, reconciled(ends.expire), IGNORE),
    sc.PhaseOverdue: Row(IGNORE, reconciled(phases.phase_overdue), IGNORE),
    sc.PlanDue: Row(IGNORE, reconciled(scheduler.run), IGNORE),
    sc.PlanComputed: Row(IGNORE, reconciled(scheduler.computed), IGNORE),
    sc.ReservationOver: Row(IGNORE, reconciled(session_admission.reservation_over), IGNORE),
    sc.LeaveOverdue: Row(IGNORE, reconciled(leaving.overdue), IGNORE),
    sc.WriteRetry: Row(IGNORE, reconciled(write_results.write_again), IGNORE),
    c.ExpireOffsets: ShardCommandRow(
        lambda machine, _, now_ms, out: machine.expire_offsets(now_ms, out)
    ),
    # --- A write was resolved ---
    w.AssignmentWritten: Row(timed(sync.assignment_written), IGNORE, IGNORE),
    w.StaticMemberWritten: Row(timed(static_members.replacement_written), IGNORE, IGNORE),
    w.StaticMemberResolved: Row(configured(static_members.replacement_resolved), IGNORE, IGNORE),
    w.ReplacementOverdue: Row(timed(static_members.replacement_overdue), IGNORE, IGNORE),
    w.OffsetsWritten: Row(
        kinds.commit_written,
        groupless(offsets.offsets_written),
        without(offsets.offsets_written),
    ),
    sw.PolicyWritten: Row(
        timeless(policies.note_written), reconciled(write_results.policy_written), IGNORE
    ),
    sw.SessionWritten: Row(IGNORE, reconciled(write_results.session_written), IGNORE),
    sw.SessionAdmitted: Row(
        groupless(write_results.admitted_too_late),
        reconciled(write_results.session_admitted),
        without(write_results.admitted_too_late),
    ),
    sw.SessionEnded: Row(IGNORE, reconciled(write_results.session_ended), IGNORE),
    sw.LogAnswered: Row(IGNORE, reconciled(ends.log_answered), IGNORE),
    w.AnswerDurable: ShardCommandRow(without(admin.answer_durable)),
    w.JoinDurable: ShardCommandRow(without(join.join_durable)),
    w.RebalanceWritten: ShardCommandRow(without(journal.rebalance_written)),
    w.Unawaited: ShardCommandRow(without(lambda _done, _out: None)),
    # --- Requests that waited, or are not awaited any more ---
    w.Resume: ShardCommandRow(
        lambda machine, command, now_ms, out: machine.resume(command, now_ms, out)
    ),
    c.CallCancelled: ShardCommandRow(
        lambda machine, command, now_ms, out: machine.cancel_call(command, now_ms, out)
    ),
}
"""Handlers of every command, by the kind of the group."""


class GroupMachine(GroupTable):
    """The state machine of one shard: all its groups, and the handlers of commands.

    Args:
        ids: makes member ids.
        payloads: parses the metadata and assignments of consumers.
    """

    def __init__(self, config: GroupConfig, ids: IdSource, payloads: PayloadReader) -> None:
        super().__init__(ShardContext(config, ids), payloads.topics)
        self._readers = PartitionReaders(payloads.partitions, payloads.owned)
        self._loaded_at_ms = 0
        self._waiting: set[CallId] = set()  # Requests that wait for the result of a write.

    # --- One command ---

    def handle(self, command: c.Command, now_ms: int, out: Effects) -> None:
        """Handle one command and its journal entries.

        Args:
            now_ms: the shard's clock; epoch milliseconds that never go back.
        """
        first = len(out.events)
        if self._dormant_by_id:
            self._dormant.wake(getattr(command, "group_id", ""), now_ms, out)
        self._dispatch(command, now_ms, out)
        if self.pending_events:
            out.events += self.pending_events
            self.pending_events.clear()
        if len(out.events) > first:
            self._journal(out.events[first:], now_ms, out)

    def restore_sessions(self, now_ms: int, out: Effects) -> None:
        """Serve the session groups that were read, and begin new numbers."""
        self.is_serving, self._loaded_at_ms = True, now_ms
        self.numbers.begin(now_ms)
        groups = [group for group in self.groups.values() if isinstance(group, SessionGroup)]
        grace_ms = lease.grace_ms(sum(len(group.members) for group in groups))
        for group in groups:
            restoring.restore(group, grace_ms, Step(now_ms, out, self.context))

    def session_beat(self, heartbeat: sq.SessionHeartbeat, now_ms: int) -> SessionMember | None:
        """Short path of a session member's heartbeat; see `lease.beat`."""
        return streams.beat(self.context.streams, self.groups, heartbeat, now_ms)

    def take(self, stream_id: CallId, now_ms: int) -> ToMember | None:
        """Take what there is to tell on the stream of a session member; None: nothing."""
        return streams.take(self.context.streams, self.groups, stream_id, now_ms)

    def activate_some(self, count: int, now_ms: int, out: Effects) -> None:
        """Activate up to `count` more groups, with full session time-outs from now."""
        first = len(out.events)
        self._dormant.activate_some(count, now_ms, out)
        self._journal(out.events[first:], now_ms, out)

    def beat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> int:
        """Fast path of a heartbeat; see `liveness.beat`."""
        group = self.groups.get(group_id)
        if self._dormant_by_id or not isinstance(group, ClassicGroup):
            return NO_TIME
        return liveness.beat(group, member_id, instance_id, generation, now_ms)

    def _dispatch(
        self, command: c.Command, now_ms: int, out: Effects, until_ms: int | None = None
    ) -> None:
        """Call the handler of a command; `until_ms` ends all waits of a request that has waited."""
        row = TABLE[type(command)]
        try:
            if isinstance(row, ShardCommandRow):
                row.handle(self, command, now_ms, out)
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
                out.resume_when_written(command, deadline_ms)
            else:
                out.reply(command.call_id, command.refusal(Refused(ErrorCode.NOT_COORDINATOR)))

    # Any: whatever has a group_id.
    def _handle_row(self, row: Row, command: Any, now_ms: int, out: Effects) -> None:
        is_request = type(command) in REQUESTS
        if is_request:
            admission.check(command, self.config)
        group = self.groups.get(command.group_id)
        if group is None or (not is_request and group.state is GroupState.DEAD):
            self._do_without(row, command, now_ms, out)
        elif isinstance(group, ClassicGroup):
            self._do_with(group, row.classic, command, now_ms, out)
        else:
            self._do_with(group, row.session, command, now_ms, out)

    def _do_with(
        self, group: G, cell: Handler[G] | Refuse | Ignore, command: Any, now_ms: int, out: Effects
    ) -> None:
        match cell:
            case Refuse(error, message):
                raise Refused(error, message)
            case Ignore():
                pass
            case handle:
                handle(self, group, command, now_ms, out)

    def _do_without(self, row: Row, command: Any, now_ms: int, out: Effects) -> None:
        match row.missing:
            case Refuse(error, message):
                raise Refused(error, message)
            case Ignore():
                pass
            case Create(check):
                check(command)
                group = self._new_group(command.group_id, now_ms)
                self._do_with(group, row.classic, command, now_ms, out)
                if not group.is_vacant:
                    self.groups[group.group_id] = group
                    out.note(GroupCreated(group.group_id))
            case handle:
                handle(self, command, now_ms, out)

    def _journal(self, events: Sequence[Event], now_ms: int, out: Effects) -> None:
        if self.config.group_rebalance_journal:
            classic = {
                event.group_id: group
                for event in events
                if isinstance(group := self.groups.get(event.group_id), ClassicGroup)
            }
            journal.follow_all(classic, events, now_ms, out, self._readers)

    # --- Commands that need the table, or what the machine alone knows ---

    def expire_offsets(self, now_ms: int, out: Effects) -> None:
        """Expire the offsets of all groups that are active."""
        active = (
            group for group in self.groups.values() if group.group_id not in self._dormant_by_id
        )
        expiration.expire_offsets(
            active, now_ms, out, config=self.config, loaded_at_ms=self._loaded_at_ms
        )

    def cancel_call(self, command: c.CallCancelled, now_ms: int, out: Effects) -> None:
        """A client does not await its call any more."""
        if self.config.group_notice_cancelled_calls:
            self._waiting.discard(command.call_id)
            parked = self.parked_calls.get(command.call_id)
            if parked is not None:
                liveness.cancel_call(*parked, command, now_ms, out)

    def resume(self, command: w.Resume, now_ms: int, out: Effects) -> None:
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
