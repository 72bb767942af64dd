"""The entry point of the core: dispatches each command to its rule.

    handle(command, now_ms, out)        live
    apply(record, now_ms)               a record was acknowledged, or is read at load
    drop(record)                        the log has refused a record
    restore()                           all records have been read: serve
    activate_some(count, now_ms, out)   activate some of the restored groups
    records()                           the durable facts, as records
    unload(error, now_ms, out)          give all groups up

Which rule that is says `table`. Only `beat` and `session_beat`, the fast paths of heartbeats, do
without. `Refused` and `MustWait` are caught here. They are raised before anything has changed, so
nothing has to be undone.
"""

from __future__ import annotations

from typing import Any, get_args

from coordinator.core import admin, expiration, offsets
from coordinator.core.classic import liveness
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.config import GroupConfig
from coordinator.core.group import GroupState
from coordinator.core.group_table import AnyGroup, GroupTable
from coordinator.core.journal import rebalances
from coordinator.core.payloads import PayloadReader
from coordinator.core.sessions import lease, reconciling, restoring, streams
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.member import SessionMember
from coordinator.core.step import ShardContext, Step
from coordinator.core.table import TABLE, Convert, Create, Row
from coordinator.core.values import commands as c
from coordinator.core.values import follow_ups as f
from coordinator.core.values import requests as q
from coordinator.core.values import session_messages as m
from coordinator.core.values.effects import Effects
from coordinator.core.values.errors import ErrorCode, MustWait, Refused
from coordinator.core.values.events import GroupCreated
from coordinator.core.values.ids import NO_TIME, CallId, IdSource
from coordinator.core.values.replies import HeartbeatReply, Reply
from coordinator.core.values.session_messages import ToMember

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
            case f.AnswerCommit():
                self._answer_commit(command, step)
            case c.CallCancelled():
                self._cancel_call(command, step)
            case f.HandleAgain():
                self._handle_again(command, step)
            case _:
                raise AssertionError(f"no rule handles {type(command).__name__}")

    def _expire_offsets(self, step: Step) -> None:
        """Expire the offsets of all groups that are active."""
        active = (
            group for group in self.groups.values() if group.group_id not in self._dormant_by_id
        )
        expiration.expire_offsets(active, step, loaded_at_ms=self._loaded_at_ms)

    def _answer_commit(self, command: f.AnswerCommit, step: Step) -> None:
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

    def _handle_again(self, command: f.HandleAgain, step: Step) -> None:
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
