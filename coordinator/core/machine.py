"""The core's only door: the table of groups, and which rule handles which command.

    handle(command, now_ms, out)        live
    apply(record, now_ms)               a record was acknowledged, or is read back
    drop(record)                        the log has refused a record
    restore()                           all records have been read back: serve
    revive_some(count, now_ms, out)     bring so many of the restored groups to life
    records()                           what is durable, in as few records as there are facts
    unload(error, out)                  give every group up

What a call wants done it says through `out`, an `Outcome`; nothing of that is returned. `beat` is
the one way past it: the heartbeat of a member at rest, of which nothing follows.

`Refused` and `MustWait` are caught here, once. They were raised before anything changed, so
nothing has to be undone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from coordinator.core import (
    admin,
    admission,
    join,
    journal,
    leave,
    liveness,
    log_ends,
    offsets,
    rebalance,
    static_members,
    sync,
)
from coordinator.core import records as durable
from coordinator.core.commands import (
    AssignmentWritten,
    CallCancelled,
    Command,
    CommitOffsets,
    CompleteJoinPhase,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    DescribePhase,
    ExpireOffsets,
    FetchOffsets,
    GroupDeletedWritten,
    Heartbeat,
    InitialDelayElapsed,
    JoinDurable,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    ListLogEnds,
    ListRebalances,
    OffsetsDeletedWritten,
    OffsetsWritten,
    RebalanceWritten,
    ReplacementOverdue,
    ReportLogEnds,
    Request,
    Resume,
    SessionExpired,
    StaticMemberSettled,
    StaticMemberWritten,
    SyncGroup,
    SyncPhaseExpired,
    Unawaited,
)
from coordinator.core.config import GroupConfig
from coordinator.core.errors import ErrorCode, MustWait, Refused, advice
from coordinator.core.events import (
    Event,
    EvictionCause,
    GroupCreated,
    GroupRemoved,
    OffsetsExpired,
    RebalanceCause,
)
from coordinator.core.group import Group, GroupState, Hosts, ParkedCalls
from coordinator.core.ids import NO_TIME, CallId, IdSource
from coordinator.core.member import Member, Protocols
from coordinator.core.membership import evict, fail_join, fail_sync, reset_session
from coordinator.core.outcome import Outcome
from coordinator.core.pauses import Pause
from coordinator.core.records import GroupDeleted, OffsetDeleted, Record
from coordinator.core.replies import JoinReply
from coordinator.core.subscriptions import PayloadReader, subscribed_topics


class GroupMachine:
    """All groups of one shard.

    Args:
        ids: makes member ids.
        payloads: reads what consumers say.
    """

    def __init__(self, config: GroupConfig, ids: IdSource, payloads: PayloadReader) -> None:
        self.config = config
        self.groups: dict[str, Group] = {}
        self.parked_calls: ParkedCalls = {}
        self.hosts: Hosts = Counter()
        self.pauses: Sequence[Pause] = ()
        """Times in which members were not heard, as the last `Tick` had them."""
        self._ids = ids
        self._read_topics = payloads.topics
        self._read_assignment = payloads.partitions
        self._asleep: dict[str, None] = {}
        self._waiting: set[CallId] = set()  # Requests that are handled anew when the log speaks.
        self._same: dict[Protocols, Protocols] = {}  # What members have in common is kept once.
        # Any: each handler takes the commands of its row.
        self._handlers: dict[type, Callable[[Any, int, Outcome], None]] = {
            Heartbeat: self._heartbeat,
            JoinGroup: self._join_group,
            SyncGroup: self._sync_group,
            LeaveGroup: self._leave_group,
            CommitOffsets: self._commit_offsets,
            FetchOffsets: lambda c, _, out: offsets.fetch_offsets(self._find(c), c, out),
            DeleteOffsets: self._delete_offsets,
            ListGroups: lambda c, _, out: admin.list_groups(self.groups.values(), c, out),
            DescribeGroup: lambda c, _, out: admin.describe_group(self._find(c), c, out),
            DeleteGroup: lambda c, _, out: admin.delete_group(self._find(c), c, out),
            ReportLogEnds: self._report_log_ends,
            ListLogEnds: lambda c, _, out: log_ends.list_all(self._find(c), c, out),
            CallCancelled: self._call_cancelled,
            CompleteJoinPhase: self._complete_join_phase,
            InitialDelayElapsed: self._initial_delay_elapsed,
            SyncPhaseExpired: self._of_group(rebalance.expire_sync_phase),
            SessionExpired: self._of_group(
                lambda group, c, now_ms, out: liveness.expire_session(
                    group, c, now_ms, out, self.pauses
                )
            ),
            ExpireOffsets: self._expire_offsets,
            AssignmentWritten: self._assignment_written,
            StaticMemberWritten: self._of_group(static_members.replacement_written),
            StaticMemberSettled: self._of_group(
                lambda group, c, now_ms, out: static_members.replacement_settled(
                    group, c, now_ms, out, self.config
                )
            ),
            ReplacementOverdue: self._of_group(static_members.replacement_overdue),
            OffsetsWritten: self._offsets_written,
            OffsetsDeletedWritten: lambda c, _, out: offsets.offsets_deleted(c, out),
            GroupDeletedWritten: lambda c, _, out: admin.group_deleted(c, out),
            Unawaited: lambda c, _, out: None,
            RebalanceWritten: lambda c, _, out: journal.rebalance_written(c, out),
            JoinDurable: self._join_durable,
            ListRebalances: lambda c, _, out: admin.list_rebalances(self._find(c), c, out),
            DescribePhase: lambda c, _, out: admin.describe_phase(self._find(c), c, out),
            Resume: self._resume,
        }

    def handle(self, command: Command, now_ms: int, out: Outcome) -> None:
        """Carry one command out.

        Args:
            now_ms: the shard's clock; epoch milliseconds that never go back.
        """
        if self._asleep:
            self._revive(getattr(command, "group_id", ""), now_ms, out)
        self._dispatch(command, now_ms, out)
        if out.events and self.config.group_rebalance_journal:
            self._journal(now_ms, out)

    def _dispatch(
        self, command: Command, now_ms: int, out: Outcome, until_ms: int | None = None
    ) -> None:
        """Handle a command.

        Args:
            until_ms: of a request that has waited before, how long it may wait in all.
        """
        try:
            if isinstance(command, Request):
                admission.check_group_id(command)
            self._handlers[type(command)](command, now_ms, out)
        except Refused as refused:
            # Only requests are refused; follow-ups re-validate and fall silent.
            assert isinstance(command, Request)
            out.reply(command.call_id, command.refusal(refused))
        except MustWait as wait:
            assert isinstance(command, Request)
            deadline_ms = wait.deadline_ms if until_ms is None else until_ms
            if deadline_ms > now_ms:
                self._waiting.add(command.call_id)
                out.resume_when_settled(command, deadline_ms)
            else:
                out.reply(command.call_id, command.refusal(Refused(ErrorCode.NOT_COORDINATOR)))

    def beat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> int:
        """See `liveness.beat`: the hot path, beside `handle`."""
        group = self.groups.get(group_id)
        if group is None or self._asleep:
            return NO_TIME
        return liveness.beat(group, member_id, instance_id, generation, now_ms)

    def apply(self, record: Record, now_ms: int) -> None:
        """Make an acknowledged record true."""
        group = self.groups.get(record.group_id)
        if group is None:
            if isinstance(record, GroupDeleted | OffsetDeleted):
                return
            group = Group(record.group_id, self.parked_calls, self.hosts, now_ms)
            self.groups[record.group_id] = group
        durable.apply(record, group)
        if isinstance(record, GroupDeleted) and group.state is GroupState.EMPTY:
            # A group that was joined while its deletion was on its way lives on.
            if group.is_vacant:
                del self.groups[record.group_id]

    def drop(self, record: Record) -> None:
        """Forget a record that the log has refused."""
        group = self.groups.get(record.group_id)
        if group is not None:
            durable.drop(record, group)

    def restore(self) -> None:
        """Take the groups up where their durable facts leave them. They sleep at first.

        A hundred thousand groups are taken over at once; their members cost more time, and wait
        for somebody to ask for the group, or for `revive_some`.
        """
        for group in self.groups.values():
            _recall(group)
        self._asleep = dict.fromkeys(self.groups)

    def revive_some(self, count: int, now_ms: int, out: Outcome) -> None:
        """Bring up to `count` more groups to life, with full session time-outs from now."""
        for group_id in list(islice(self._asleep, count)):
            self._revive(group_id, now_ms, out)
        if out.events and self.config.group_rebalance_journal:
            self._journal(now_ms, out)

    @property
    def sleepers(self) -> int:
        """Groups that were loaded and have not been brought to life yet."""
        return len(self._asleep)

    def records(self) -> list[Record]:
        """The durable facts of all groups, as the records that bring them back."""
        return [record for group in self.groups.values() for record in durable.records_of(group)]

    def unload(self, error: ErrorCode, out: Outcome) -> None:
        """Answer every parked call with `error` and forget all groups."""
        for group in self.groups.values():
            for member in group.members.values():
                fail_join(group, member, error, out, member_id=member.member_id)
                fail_sync(group, member, error, out)
            group.state = GroupState.DEAD
        self.groups.clear()
        self.hosts.clear()
        self._asleep.clear()

    def _journal(self, now_ms: int, out: Outcome) -> None:
        by_group: dict[str, list[Event]] = {}
        for event in out.events:
            by_group.setdefault(event.group_id, []).append(event)
        for group_id, events in by_group.items():
            group = self.groups.get(group_id)
            if group is not None:
                journal.follow(group, events, now_ms, out, self._read_assignment)

    # --- Requests ---

    def _resume(self, command: Resume, now_ms: int, out: Outcome) -> None:
        """The log has spoken of what a request waited for, or the request has waited too long."""
        request = command.request
        if request.call_id not in self._waiting:
            return  # Its client has gone away meanwhile.
        self._waiting.remove(request.call_id)
        if command.error is not ErrorCode.NONE:
            out.reply(request.call_id, request.refusal(Refused(command.error)))
            return
        if isinstance(request, FetchOffsets):
            # What had been written when it came is resolved. It does not wait for what came later.
            request = replace(request, require_stable=False)
        self._dispatch(request, now_ms, out, command.deadline_ms)

    def _find(self, command: Any) -> Group | None:  # Any: whatever has a group_id.
        return self.groups.get(command.group_id)

    def _get(self, group_id: str, error: ErrorCode) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise Refused(error)
        return group

    def _keep(self, group: Group, out: Outcome) -> None:
        if group.group_id not in self.groups:
            self.groups[group.group_id] = group
            out.note(GroupCreated(group.group_id))

    def _heartbeat(self, command: Heartbeat, now_ms: int, out: Outcome) -> None:
        group = self._get(command.group_id, ErrorCode.UNKNOWN_MEMBER_ID)
        admission.check_alive(group)
        liveness.heartbeat(group, command, now_ms, out)

    def _join_group(self, command: JoinGroup, now_ms: int, out: Outcome) -> None:
        admission.check_session_timeout(command, self.config)
        group = self.groups.get(command.group_id)
        if group is None:
            if command.member_id:
                raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
            group = Group(command.group_id, self.parked_calls, self.hosts, now_ms)
        try:
            join.join_group(group, command, now_ms, out, config=self.config, ids=self._ids)
        except Refused as refused:
            journal.note_refused_join(group, command, refused.error, now_ms)
            raise
        finally:
            if not group.is_vacant:
                self._keep(group, out)

    def _sync_group(self, command: SyncGroup, now_ms: int, out: Outcome) -> None:
        group = self._get(command.group_id, ErrorCode.UNKNOWN_MEMBER_ID)
        sync.sync_group(group, command, now_ms, out)

    def _leave_group(self, command: LeaveGroup, now_ms: int, out: Outcome) -> None:
        group = self.groups.get(command.group_id)
        if group is None:
            leave.leave_unknown_group(command, out)
        else:
            leave.leave_group(group, command, now_ms, out)

    def _commit_offsets(self, command: CommitOffsets, now_ms: int, out: Outcome) -> None:
        group = self.groups.get(command.group_id)
        if group is None:
            if command.generation >= 0:
                raise Refused(ErrorCode.GROUP_ID_NOT_FOUND)
            group = Group(command.group_id, self.parked_calls, self.hosts, now_ms)
        offsets.commit_offsets(group, command, now_ms, out, config=self.config)
        if not group.is_vacant:
            self._keep(group, out)

    def _delete_offsets(self, command: DeleteOffsets, now_ms: int, out: Outcome) -> None:
        group = self._get(command.group_id, ErrorCode.GROUP_ID_NOT_FOUND)
        offsets.delete_offsets(group, command, out)

    def _report_log_ends(self, command: ReportLogEnds, now_ms: int, out: Outcome) -> None:
        group = self._get(command.group_id, ErrorCode.UNKNOWN_MEMBER_ID)
        log_ends.report(group, command, now_ms, out)

    def _call_cancelled(self, command: CallCancelled, now_ms: int, out: Outcome) -> None:
        """The client has gone: take its parked call back.

        A member that never was in a generation goes with its call. One that was stays,
        with a deadline: a fresh one if the old one was spent while it was parked.
        """
        if self.config.group_notice_cancelled_calls:
            self._waiting.discard(command.call_id)
        parked = self.parked_calls.get(command.call_id)
        if parked is None or not self.config.group_notice_cancelled_calls:
            return
        group, member = parked
        if member.parked_sync == command.call_id:
            group.unpark_sync(member)
            reset_session(group, member, now_ms, out)
            return
        group.unpark_join(member)
        if member.is_new:
            evict(group, member, EvictionCause.CALL_CANCELLED, out)
            cause = RebalanceCause.CALL_CANCELLED
            rebalance.request(group, cause, now_ms, out, member=member)
        elif member.last_heard_ms + member.session_timeout_ms <= now_ms:
            reset_session(group, member, now_ms, out)

    # --- Follow-ups ---

    def _of_group(
        self, handler: Callable[[Group, Any, int, Outcome], None]
    ) -> Callable[[Any, int, Outcome], None]:
        """A handler for follow-ups that concern a group only while it exists."""

        def handle(command: Any, now_ms: int, out: Outcome) -> None:
            group = self.groups.get(command.group_id)
            if group is not None and group.state is not GroupState.DEAD:
                handler(group, command, now_ms, out)

        return handle

    def _complete_join_phase(self, command: CompleteJoinPhase, now_ms: int, out: Outcome) -> None:
        group = self.groups.get(command.group_id)
        if group is not None:
            rebalance.complete_join_phase(group, command, now_ms, out, self._read_topics)

    def _initial_delay_elapsed(
        self, command: InitialDelayElapsed, now_ms: int, out: Outcome
    ) -> None:
        group = self.groups.get(command.group_id)
        if group is not None:
            rebalance.extend_initial_delay(
                group, command, now_ms, out, self.config, self._read_topics
            )

    def _assignment_written(self, command: AssignmentWritten, now_ms: int, out: Outcome) -> None:
        group = self.groups.get(command.record.group_id)
        if group is not None:
            sync.assignment_written(group, command, now_ms, out)

    def _offsets_written(self, command: OffsetsWritten, now_ms: int, out: Outcome) -> None:
        group = self.groups.get(command.group_id)
        offsets.offsets_written(command, out)
        if group is not None and group.is_vacant and group.generation == 0:
            del self.groups[command.group_id]  # It was made for this commit, which failed.

    def _join_durable(self, command: JoinDurable, now_ms: int, out: Outcome) -> None:
        reply = command.reply
        if command.error is not ErrorCode.NONE:
            reply = JoinReply(command.error, advice(command.error), member_id=reply.member_id)
        out.reply(command.call_id, reply)

    def _expire_offsets(self, command: ExpireOffsets, now_ms: int, out: Outcome) -> None:
        """Drop what has outlived its retention, and groups of which nothing is left."""
        for group in self.groups.values():
            if group.group_id in self._asleep:
                continue  # It is awake the next time.
            expired = offsets.expired_offsets(group, now_ms, self.config)
            doomed: list[Record] = [OffsetDeleted(group.group_id, t, p) for t, p in expired]
            if (
                group.state is GroupState.EMPTY
                and not group.pending_joins
                and not group.pending_offsets
                and len(expired) == len(group.offsets)
            ):
                doomed.append(GroupDeleted(group.group_id))
                out.note(GroupRemoved(group.group_id))
            if expired:
                out.note(OffsetsExpired(group.group_id, len(expired)))
            if doomed:
                out.persist(doomed, Unawaited(group.group_id))

    # --- Load ---

    def _revive(self, group_id: str, now_ms: int, out: Outcome) -> None:
        """Members are as their last durable generation had them."""
        if self._asleep.pop(group_id, "awake") == "awake":
            return
        group = self.groups[group_id]
        committed = group.committed
        if committed is not None:
            for stored in committed.members:
                name = committed.protocol_name
                protocols = () if name is None else ((name, stored.metadata),)
                member = Member(
                    stored.member_id,
                    instance_id=stored.instance_id,
                    client_id=stored.client_id,
                    client_host=stored.client_host,
                    rebalance_timeout_ms=stored.rebalance_timeout_ms or stored.session_timeout_ms,
                    session_timeout_ms=stored.session_timeout_ms,
                    protocols=self._same.setdefault(protocols, protocols),
                    now_ms=now_ms,
                )
                member.is_new = False
                group.add_member(member)
                reset_session(group, member, now_ms, out)
            durable.apply(committed, group)
            group.leader_id = committed.leader
            group.subscribed_topics = subscribed_topics(group, self._read_topics)
            if len(group.members) > self.config.group_max_size:
                rebalance.prepare(group, RebalanceCause.SIZE_LIMIT, now_ms, out)
        if not self._asleep:
            self._same = {}


def _recall(group: Group) -> None:
    """What a list of groups shows, and the generation: a lost one is not used again."""
    group.generation_floor = group.durable_generation + 1
    committed = group.committed
    if committed is not None:
        group.generation = committed.generation
        group.protocol_type = committed.protocol_type
        group.protocol_name = committed.protocol_name
        group.state_changed_at_ms = committed.state_changed_at_ms
        if committed.members:
            group.state = GroupState.STABLE
