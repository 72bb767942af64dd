"""The table of commands: what each does to a group of each kind, and without one.

    command: Row(to a classic group, to a session group, if there is no such group)

A cell is a rule, `rule(group, command, step)`, with None for a group that does not exist. An empty
cell ignores the command: it is a follow-up that is too late, or whose group has become another one.
Rules return nothing: replies, writes and timers go into `step.out`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

from coordinator.core import admin, conversion, documents, log_ends, offsets
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
from coordinator.core.conversion import IS_CLASSIC, IS_OF_SESSIONS
from coordinator.core.group import Group
from coordinator.core.journal import rebalances
from coordinator.core.sessions import commits, policies, streams, write_results
from coordinator.core.sessions import description as session_description
from coordinator.core.sessions.arrive import admission as session_admission
from coordinator.core.sessions.arrive import attach
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import phases
from coordinator.core.sessions.leave import ends, evict, leaving
from coordinator.core.sessions.plan import scheduler
from coordinator.core.step import Step
from coordinator.core.values import commands as c
from coordinator.core.values import follow_ups as f
from coordinator.core.values import requests as q
from coordinator.core.values import session_messages as m
from coordinator.core.values.errors import ErrorCode, Refuse

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
    c.ReservationOver: SessionRow(session=session_admission.reservation_over),
    c.LeaveOverdue: SessionRow(session=leaving.overdue),
    c.WriteRetry: SessionRow(session=write_results.write_again),
    # --- A write was resolved ---
    f.AnswerSyncs: Row(sync.answer_syncs),
    f.AnswerReplacement: Row(static_members.answer_replacement),
    f.FinishReplacement: Row(static_members.finish_replacement),
    f.RefuseReplacement: Row(static_members.refuse_replacement),
    f.ApplyPolicy: SessionRow(policies.note_written, write_results.apply_policy),
    f.ReviewPartitions: SessionRow(session=write_results.review_partitions),
    f.AnswerAttach: SessionRow(
        write_results.refuse_attach,
        write_results.answer_attach,
        write_results.refuse_attach,
    ),
    f.CloseSession: SessionRow(session=write_results.close_session),
    f.ResumeExpiry: SessionRow(session=ends.resume_expiry),
    f.AnswerRequest: admin.answer_request,
    f.AnswerJoin: join.answer_join,
    f.AnnounceRebalance: rebalances.announce_rebalance,
    f.NoFollowUp: lambda _, _command, _step: None,
}
"""The commands that one rule handles. `GroupMachine` handles the others, which concern the table of
groups, or requests that wait."""
