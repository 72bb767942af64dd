"""A session member's machine: the stream of `machine.py`, and the calls beside it.

The driver that executes classic machines executes it too: it opens the stream over the connection
to the group's coordinator, hands in what it says, and makes the calls for commits and fetches.

The owner learns of changes from `hand_out`. A commit is for the tokens that it knows by then, and
is refused here once one of them has been lost. A release is told to the coordinator when no commit
of the partition is under way any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import cast

from coordinator.assignors import TopicPartition
from coordinator.client.errors import CoordinatorError, FatalError, StaleMember, words_of
from coordinator.client.member import calls
from coordinator.client.member.calling import Asker, CallingMachine, told_failure
from coordinator.client.member.calls import Level
from coordinator.client.member.classic.membership import Next, member_name
from coordinator.client.member.classic.schedule import CALL_TIMEOUT_MS, FINDS_A_SESSION
from coordinator.client.member.events import spelled
from coordinator.client.member.ledger import not_held
from coordinator.client.member.operations import GIVE_UP_MS
from coordinator.client.member.session.attaching import attach_of
from coordinator.client.member.session.changes import (
    NO_OFFSET,
    Change,
    Draining,
    Granted,
    Lost,
    Stopping,
    Suspended,
    Warming,
)
from coordinator.client.member.session.commits import TokenCommit
from coordinator.client.member.session.machine import SessionMachine
from coordinator.client.member.session.partitions import Holding
from coordinator.client.member.state import MemberState
from coordinator.client.offsets import Commit
from coordinator.client.settings.configs import SessionConfig
from coordinator.client.transport.wire import code_name
from coordinator.v1 import session_pb2 as pb

LEAVE_MS = 2_000
"""Time that closing takes at most: for commits under way, and for the coordinator's answer."""
_NO_RELEASE = (0, NO_OFFSET, "")
NO_SESSIONS = (
    "the coordinator has no session groups ({}): it runs an older version. "
    'Either update all nodes, or write protocol="classic" (GroupMember)'
)
FIND_MS = 500
"""Shortest time to wait for the answer to a FindCoordinator."""


class SessionMemberMachine(CallingMachine):
    """One member.

    Args:
        bootstrap: one or several HOST:PORT to ask for the coordinator.
        random: from 0 to 1, below 1.
    """

    def __init__(
        self, config: SessionConfig, bootstrap: Iterable[str], random: Callable[[], float]
    ) -> None:
        super().__init__(config.group_id, bootstrap, random)
        self.config = config
        self.session = SessionMachine(attach_of(config), random)
        self.partitions = self.session.partitions
        self.known: dict[TopicPartition, int] = {}
        """Tokens of the holdings that the owner has been told of, and has not ended."""
        self.preparing: dict[TopicPartition, int] = {}
        """Hand-offs that the owner has been told to prepare for."""
        self.logs: list[calls.Log] = []
        self._opener = _Opener(self)
        self._opener_waits = False
        self._stream: calls.OpenStream | None = None
        self._releases: dict[TopicPartition, tuple[int, int, str]] = {}
        """Partitions that are released once their commits are answered: token, position, why it
        was refused."""
        self._ended: dict[TopicPartition, str] = {}
        self._close_by_ms: int | None = None
        self._leaves: tuple[pb.SessionLeave.Kind.ValueType, int, str] | None = None
        self._failure: Exception | None = None
        self._is_started = self._is_degraded = False
        self._state = ("stopped", 0)

    # --- The owner ---

    @property
    def name(self) -> str:
        config, session = self.config, self.session
        return member_name(config.group_id, config.member_name, session.member_id, config.client_id)

    @property
    def failure(self) -> CoordinatorError | None:
        """The error that stopped the member; None: there was none."""
        if self._failure is not None:
            return told_failure(self._failure)
        session = self.session
        if session.failure is None:
            return None
        return FatalError(session.failure, session.failure_code)

    @property
    def state(self) -> MemberState:
        """The state as of the last turn."""
        failure = self.failure
        trouble = str(failure) if failure else self._reachability.trouble
        return MemberState(*self._state, trouble or self.session.why or None)

    def start(self, now_ms: int) -> None:
        """Begin to attach."""
        self._is_started = True
        self._reachability.begin(now_ms)
        self._note_state(now_ms)

    @property
    def has_news(self) -> bool:
        """True if there are changes that the owner has not been given."""
        return bool(self.session.changes)

    def hand_out(self) -> list[Change]:
        """Changes since the last call. From now on the owner knows of them.

        A partition that is lost and comes again, to be held or prepared, comes in a later call:
        the owner answers by partition, and would give the new holding back.
        """
        changes: list[Change] = []
        lost: set[TopicPartition] = set()
        while self.session.changes:
            change = self.session.changes[0]
            if isinstance(change, Granted | Warming) and change.partition in lost:
                break
            changes.append(self.session.changes.popleft())
            if isinstance(change, Lost):
                lost.add(change.partition)
            match change:
                case Granted(partition, token):
                    self.known[partition] = token
                    self._ended.pop(partition, None)
                    self.preparing.pop(partition, None)
                case Warming(partition, handoff_id):
                    self.preparing[partition] = handoff_id
                case Lost(partition, was_warming=True):
                    self.preparing.pop(partition, None)
                case Lost(partition, token, reason) if token == self.known.get(partition):
                    del self.known[partition]
                    self._ended[partition] = reason
                case Stopping(reason):
                    self._ended.update(dict.fromkeys(self.known, reason))
                    self.known.clear()
        return changes

    def commit(
        self,
        commit: Commit,
        tokens: Mapping[TopicPartition, int] | None,
        now_ms: int,
        timeout_ms: int = GIVE_UP_MS,
        *,
        waits: bool = False,
    ) -> TokenCommit:
        """Begin a commit.

        Args:
            tokens: of the holdings that it counts for; None: those that the owner knows.
            waits: wait while a holding is suspended, instead of being refused.
        Raises:
            StaleMember: the owner does not hold a partition. CommitFailed: an offset is negative.
        """
        commit.check()
        if self._close_by_ms is not None:
            raise StaleMember("nothing was sent, for the member closes")
        held = self.known if tokens is None else tokens
        missing = {
            p: self._ended.get(p, "it was not granted") for p in commit.offsets
            if p not in held or held[p] == self._releases.get(p, _NO_RELEASE)[0]
        }  # fmt: skip
        if missing:
            error = StaleMember(not_held(missing))
            self.log(Level.WARNING, f"stale commit: {error}")
            raise error
        claimed = {p: held[p] for p in commit.offsets}
        begun = TokenCommit(commit, claimed, self, self._random, now_ms, timeout_ms, waits=waits)
        self.alive(now_ms)
        return self._begin(begun)

    def release(
        self,
        partition: TopicPartition,
        token: int,
        position: int = NO_OFFSET,
        refused: str = "",
    ) -> None:
        """The owner has finished with a holding; told once its commits are answered.

        It means one that it knows of, or has lost: not one that was granted since.

        Args:
            refused: why it will not have it; empty: it would.
        """
        held = self.partitions.held.get(partition)
        if held is not None and held.state is not Holding.LOST and partition not in self.known:
            return
        self._end_holding(
            partition, token, f"it was refused: {refused}" if refused else "it was released"
        )
        self._releases[partition] = token, position, refused

    def prepared(
        self, partition: TopicPartition, handoff_id: int | None = None, refused: str = ""
    ) -> None:
        """The owner has prepared for a partition, or will not.

        Args:
            handoff_id: of the hand-off that it answers; None: the last that it was told of.
            refused: why it will not; empty: it has prepared.
        """
        answered = self.preparing.get(partition) if handoff_id is None else handoff_id
        if answered is None:
            return
        if refused:
            self.partitions.refuse(partition, answered, refused)
        else:
            self.partitions.ready(partition, answered)

    def alive(self, now_ms: int) -> None:
        """The owner makes progress. From any thread."""
        self.session.progress = max(self.session.progress, now_ms)

    def drain(self, within_ms: int, reason: str, now_ms: int) -> None:
        """Have the coordinator move everything away; the owner is told partition by partition."""
        self.session.leave(pb.SessionLeave.DRAIN, now_ms, within_ms, reason)

    def close(self, reason: str, now_ms: int, *, return_within_ms: int | None = None) -> None:
        """Leave, at once or for a while, when pending commits are answered; within two seconds.

        Args:
            return_within_ms: for so long everything is kept for the member's name; None: nothing.
        """
        if self._close_by_ms is None:
            self._close_by_ms = now_ms + LEAVE_MS
            if return_within_ms is None:
                self._leaves = pb.SessionLeave.NOW, 0, reason
            else:
                self._leaves = pb.SessionLeave.RETURN, return_within_ms, reason

    def fail(self, error: Exception) -> None:
        """Stop because of a bug, or of a function that failed; the owner is told."""
        if self._failure is None:
            self._failure = error
            self.log(Level.WARNING, f"stopped: {words_of(error)}")
        self._close_stream()
        self.session.stop(f"failed: {words_of(error)}")

    # --- What a commit has to know ---

    @property
    def interval_ms(self) -> int:
        """Time between two heartbeats."""
        return self.session.interval_ms

    def identity(self) -> calls.Identity:
        """The member as the coordinator knows it."""
        return calls.Identity(self.config.group_id, -1, self.session.member_id, None)

    def lost_because(self, partition: TopicPartition, token: int) -> str:
        """Reason that a holding has ended, for its owner; empty: it lasts."""
        held = self.partitions.held.get(partition)
        if held is not None and held.token == token and held.state is not Holding.LOST:
            return ""
        return self._ended.get(partition) or "it was lost"

    def is_valid(self, partition: TopicPartition, token: int, now_ms: int) -> bool:
        """True if effects of a holding may leave the process. From any thread."""
        return self.partitions.is_valid(partition, token, now_ms)

    # --- The driver ---

    def next_action(self, now_ms: int) -> calls.Action | None:
        """The next action to carry out; None: none before the next input or `next_deadline`."""
        if self._is_started:
            self._pass_time(now_ms)
            while not self._actions and self._take_step(now_ms):
                pass
        self._note_state(now_ms)
        self._actions.extend(self.logs)
        self.logs.clear()
        return self._actions.popleft() if self._actions else None

    def heard(self, heard: calls.Heard | calls.StreamEnded, now_ms: int) -> None:
        """Take in a message of the stream, or its end."""
        if heard.stream is not self._stream:
            return
        if isinstance(heard, calls.StreamEnded):
            self._stream_ended(heard.stream, heard.result, now_ms)
            return
        message = cast("pb.SessionResponse", heard.message)
        self._log_if(Level.INFO, self._reachability.take_in(calls.Acknowledged(), now_ms))
        self._note(message)
        before = len(self.session.changes)
        self.session.handle(message, now_ms)
        self._log_changes(before)
        if self.session.has_stream:
            return
        # It was the last message of this stream.
        self._close_stream()
        if not _stays(message):
            self._discovery.prefer(self.session.moved_to)
            self._hang_up(heard.stream.connection)

    def next_deadline(self) -> int | None:
        """Time at which `next_action` has something to do without another input; None: never."""
        if not self._is_started or self.is_closed:
            return None
        ends: list[int | None] = [one.next_deadline() for one in self._operations]
        ends.append(self.session.next_deadline(is_opening=self._opener_waits))
        if self._asks:
            ends.append(self._reachability.next_deadline())
        ends.append(self._close_by_ms)
        return min((end for end in ends if end is not None), default=None)

    # --- Inside: steps ---

    def _pass_time(self, now_ms: int) -> None:
        session = self.session
        before = len(session.changes)
        session.turn(now_ms)
        self._log_changes(before)
        if self._stream is not None and session.is_silent(now_ms):
            silence = calls.Unreachable("the coordinator does not answer on the stream")
            self._stream_ended(self._stream, silence, now_ms)
        self._tell_of_silence(now_ms)
        if self._close_by_ms is not None and now_ms >= self._close_by_ms:
            self._close_anyway()

    def _take_step(self, now_ms: int) -> bool:
        """True if something was done, so that there may be more to do."""
        self._queue_operations(now_ms)
        self._tell_releases()
        if self._leaves is not None and not self._commits_are_out():
            kind, within_ms, reason = self._leaves
            self._leaves = None
            self.session.leave(kind, now_ms, within_ms, reason)
        if self._stream is not None:
            while (message := self.session.next_message()) is not None:
                self._actions.append(calls.Send(self._stream, message))
        if self._close_by_ms is not None and self.session.is_stopped and not self.is_closed:
            self._close_stream()
            self._end()
            return True
        if self.session.wants_stream(now_ms) and not self._opener_waits:
            self._opener_waits = True
            self._queue.append(self._opener)
        return self._send_next(now_ms)

    def open_stream(self, now_ms: int) -> None:
        """There is a connection to the coordinator: attach over it."""
        self._opener_waits = False
        if self.session.wants_stream(now_ms):
            self._close_stream()  # One that the owner has left for other topics.
            self._stream = calls.OpenStream(self._discovery.connection)
            self._actions.append(self._stream)
            self.session.opened(now_ms)

    def no_coordinator(self, result: calls.Result, now_ms: int) -> Next:
        """No address has named a coordinator."""
        self._opener_waits = False
        self._judge_failure(result, now_ms)
        return Next.REDISCOVER

    def _stream_ended(self, stream: calls.OpenStream, result: calls.Failure, now_ms: int) -> None:
        self._close_stream()
        self._log_if(Level.INFO, self._reachability.take_in(result, now_ms))
        self._judge_failure(result, now_ms)
        if not isinstance(result, calls.Dropped | calls.NoRoom):
            self._hang_up(stream.connection)

    def _judge_failure(self, result: calls.Result, now_ms: int) -> None:
        match result:
            case calls.Broken(error):
                self.fail(error)
            case calls.Refused(detail, code) if self._is_turned_away(code):
                self.fail(FatalError(detail, code))
            case calls.Unimplemented(detail):
                self.fail(FatalError(NO_SESSIONS.format(detail)))
            case calls.NoRoom(_, after_ms):
                self.session.closed(now_ms, after_ms)
            case _:
                self.session.closed(now_ms)

    def _is_turned_away(self, code: str) -> bool:
        # A token may be about to be renewed: a member stays one for its lease.
        return code != "UNAUTHENTICATED" or not self.session.session_id

    def _close_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            self._actions.append(calls.CloseStream(stream))

    def _tell_releases(self) -> None:
        for partition, (token, position, refused) in list(self._releases.items()):
            if not self._commits_are_out(partition):
                del self._releases[partition]
                self.partitions.released(partition, token, position, refused)

    def _commits_are_out(self, partition: TopicPartition | None = None) -> bool:
        return any(
            isinstance(one, TokenCommit)
            and not one.is_done
            and (partition is None or partition in one.tokens)
            for one in self._operations
        )

    def _end_holding(self, partition: TopicPartition, token: int, reason: str) -> None:
        if self.known.get(partition) == token:
            del self.known[partition]
            self._ended[partition] = reason

    def _close_anyway(self) -> None:
        if not self.is_closed:
            self.log(Level.WARNING, f"could not leave: {self._reachability.trouble or 'no answer'}")
            self._close_stream()
            self.session.stop("it has left")
            self._end()

    # --- Inside: what the calling machine asks ---

    @property
    def _asks(self) -> bool:
        return self._is_started and not self.session.is_stopped

    def _timeout_ms(self, request: calls.Request) -> int:
        lease_ms = self.session.lease.length_ms
        if isinstance(request, calls.FindCoordinator) and lease_ms:
            return min(CALL_TIMEOUT_MS, max(FIND_MS, lease_ms // FINDS_A_SESSION))
        return CALL_TIMEOUT_MS

    def _tell(
        self, asker: Asker, request: calls.Request | None, result: calls.Result, now_ms: int
    ) -> Next:
        return asker.handle(request, result, now_ms)

    # --- The log and the state ---

    def log(self, level: Level, text: str) -> None:
        line = " ".join(f"{self.name}: {text}".split())
        self.logs.append(calls.Log(level, line, self.config.group_id, self.session.member_id))

    def _note(self, message: pb.SessionResponse) -> None:
        """Log what is worth a line, before the machine takes it in."""
        match message.WhichOneof("message"):
            case "attached":
                attached = message.attached
                why = f", waits: {attached.why}" if attached.standing else ""
                self.log(Level.INFO, f"attached, lease {attached.lease_ms} ms{why}")
            case "refused":
                refused = message.refused
                code = code_name(refused.error_code)
                self.log(Level.WARNING, f"refused: {code}: {refused.error_message}")
            case "go_away":
                reason = pb.GoAway.Reason.Name(message.go_away.reason)
                self.log(Level.INFO, f"told to go away: {reason}")

    def _log_changes(self, before: int) -> None:
        """A line for all that is granted, to be drained or suspended at one time, and one for each
        reason of a loss.

        A loss is a warning unless the member has asked to leave.

        Args:
            before: number of changes that there were already.
        """
        if len(self.session.changes) == before:
            return
        changes = list(islice(self.session.changes, before, None))
        granted = [each.partition for each in changes if isinstance(each, Granted)]
        if granted:
            self.log(Level.INFO, f"granted {spelled(granted)}")
        draining = [each.partition for each in changes if isinstance(each, Draining)]
        if draining:
            self.log(Level.INFO, f"draining {spelled(draining)}, to be given back")
        suspended = [each.partition for each in changes if isinstance(each, Suspended)]
        if suspended:
            text = f"lease in doubt: {spelled(suspended)}: suspended until it is confirmed"
            self.log(Level.WARNING, text)
        lost: dict[str, list[TopicPartition]] = {}
        for change in changes:
            if isinstance(change, Lost):
                lost.setdefault(change.reason, []).append(change.partition)
        for reason, partitions in lost.items():
            level = Level.WARNING if self._close_by_ms is None else Level.INFO
            self.log(level, f"lost {spelled(partitions)}: {reason}")

    def _note_state(self, now_ms: int) -> None:
        session = self.session
        if not self._is_started or session.is_stopped:
            name = "stopped"
        elif self._stream is None:
            name = "connecting"
        elif not session.session_id or session.is_waiting:
            name = "joining"
        elif self.partitions.draining:
            name = "revoking"
        else:
            name = "stable"
        if name != self._state[0]:
            self._state = (name, now_ms)


class _Opener:
    """Asks for a connection, and opens the stream over it."""

    def __init__(self, machine: SessionMemberMachine) -> None:
        self._machine = machine

    def attempt(self, now_ms: int) -> calls.Request | None:
        """There is a connection."""
        self._machine.open_stream(now_ms)
        return None

    def handle(self, request: calls.Request | None, result: calls.Result, now_ms: int) -> Next:
        """There is none."""
        return self._machine.no_coordinator(result, now_ms)


def _stays(message: pb.SessionResponse) -> bool:
    """True if the same node is asked again after this message, the last of a stream."""
    if message.WhichOneof("message") == "go_away":
        return message.go_away.reason == pb.GoAway.SUPERSEDED
    code = message.refused.error_code
    return code_name(code) not in calls.ELSEWHERE
