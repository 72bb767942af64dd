"""The life cycle of a shard from grant to release: loading, appends, snapshots and failures.

    ShardDriver.handle(input, now_ms) -> HostEffects

Inputs are what happens outside: requests, deadlines, and how the effects of earlier inputs went.
Effects are what the host has to do. The host may be an event loop, a coordinator on virtual time
or a benchmark; all decisions are made here.

    Start ─► TakeOver ─► Load ─► Build ─► restore: it serves ─► WriteEntry, WriteSnapshot …
               ▲                                │
               └── after a back-off ◄───────────┴── a bug, or the log has refused this node

A shard serves once it is loaded completely. All steps run inside `handle`, behind one `except`:
an internal error of the shard, of the driver or (`Broken`) of the host ends the shard. All waiting
calls are answered, and the shard is loaded again from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, cast, get_args

from coordinator.core.machine import answer_while_loading, refusal_unserved
from coordinator.core.values.commands import CallCancelled, PlanComputed
from coordinator.core.values.errors import ErrorCode, Refused
from coordinator.core.values.ids import CallId, ShardId
from coordinator.core.values.replies import Reply
from coordinator.core.values.requests import Request
from coordinator.core.values.session_messages import Attach, unloaded
from coordinator.shard.bugs import BACKOFF_MS, Bugs
from coordinator.shard.effects import (
    NOTHING,
    Broken,
    Build,
    Compute,
    Done,
    DriverInput,
    Fence,
    FoundDamage,
    HostEffects,
    Job,
    Load,
    Loaded,
    LogFailed,
    Problem,
    Recovery,
    StandbyShard,
    Start,
    Stop,
    TakeOver,
    WriteEntry,
    WriteSnapshot,
)
from coordinator.shard.followers import FetchEntries, FollowersChanged
from coordinator.shard.inputs import (
    Append,
    Appended,
    AppendFailed,
    AppendFailure,
    Input,
    Tick,
    Unload,
)
from coordinator.shard.shard import Shard
from coordinator.shard.snapshots import SnapshotPolicy

AMBIGUOUS_BACKOFF_MS = 50
"""Before the second attempt; the third waits for twice as long, and so on."""
_REQUESTS = frozenset(get_args(Request))


@dataclass(frozen=True, slots=True)
class Patience:
    """Delays before retries, and whether a failed shard is loaded again.

    Args:
        ambiguous_ms: times the number of the attempt, before an entry is written again.
        reloads: False: a shard that the log has refused, or that had a bug, is not loaded again.
    """

    ambiguous_ms: int = AMBIGUOUS_BACKOFF_MS
    reloads: bool = True


class DriverPhase(Enum):
    """Stage of a shard's life on this node."""

    NEW = "new"
    STARTING = "starting"
    """The first load is under way."""
    STARTED = "started"
    """The first load has ended, or was given up; later ones may be under way."""
    ENDED = "ended"
    """Released, or granted to somebody else: it is not loaded again."""


class ShardDriver:
    """Drives one shard.

    `shard` is the one that serves; None while it is loading, or after its end.
    """

    def __init__(self, shard_id: ShardId, patience: Patience = Patience()) -> None:
        self.shard_id = shard_id
        self.shard: Shard | None = None
        self.leader_epoch = 0
        """Leader epoch in which the shard was granted."""
        self.damage: Exception | None = None
        """Error that ended the first load, if the log is damaged."""
        self._patience = patience
        self._phase = DriverPhase.NEW
        self._now_ms = 0
        self._effects = HostEffects()
        self._whole = NOTHING  # Behind the effects of steps that have not raised.
        self._requests: dict[CallId, Request] = {}  # Clients' requests without an answer yet.
        self._fetches: dict[CallId, FetchEntries] = {}
        self._fence: Fence = None
        self._job: Job | None = None  # Step of the load, or append in flight.
        self._snapshot: WriteSnapshot | None = None
        self._computes: set[Compute] = set()
        self._later: tuple[int, Job] | None = None  # A job to begin later, and when.
        self._deadline_ms: int | None = None  # Next deadline of the shard.
        self._standby: StandbyShard | None = None
        self._raised = 0  # The store has lost commits: what numbers are raised by.
        self._policy = SnapshotPolicy(0, 0, 0)
        self._followers: tuple[int, ...] | None = None
        self._serves_since_ms = 0
        self._problem = ""  # Last problem of the log that was reported.
        self._bugs = Bugs()
        # All other inputs go to the shard unchanged.
        self._handlers: dict[type, Callable[[Any], None]] = {
            Tick: self._tick,
            FollowersChanged: self._new_followers,
            FetchEntries: self._fetch,
            CallCancelled: self._cancel,
            Start: self._start,
            Stop: self._stop,
            Done: self._done,
            LogFailed: self._log_failed,
            FoundDamage: self._found_damage,
            Broken: self._broken,
        }

    def handle(self, event: DriverInput, now_ms: int) -> HostEffects:
        """Handle one input and return its effects. It never raises.

        Args:
            now_ms: epoch milliseconds; the clock never goes back.
        """
        self._now_ms = now_ms
        effects = self._effects = HostEffects()
        self._whole = NOTHING
        try:
            self._handle(event)
        except Exception as error:  # noqa: BLE001  # Any internal error.
            self._break(error)
        effects.wake_at_ms = self._next_wake_ms()
        return effects

    @property
    def fence_epoch(self) -> int:
        """Epoch in which the log of the shard was fenced last; 0: it has not been yet."""
        return 0 if self._fence is None else int(self._fence.fence_epoch)

    @property
    def is_starting(self) -> bool:
        """True while the first load is in progress."""
        return self._phase is DriverPhase.STARTING

    def is_wanted(self, job: Job) -> bool:
        """False if the result of `job` would be ignored, so that the host may skip it."""
        return job is self._job or job is self._snapshot or job in self._computes

    # --- Inputs ---

    def _handle(self, event: DriverInput) -> None:
        if type(event) in _REQUESTS:
            self._request(cast("Request", event))
        else:
            self._handlers.get(type(event), self._step)(event)

    def _new_followers(self, event: FollowersChanged) -> None:
        self._followers = event.nodes
        self._step(event)

    def _cancel(self, event: CallCancelled) -> None:
        if self._requests.pop(event.call_id, None) is not None:
            self._step(event)

    def _start(self, start: Start) -> None:
        if self._phase is not DriverPhase.ENDED:
            self._phase = DriverPhase.STARTING
            self.leader_epoch, self._standby = start.leader_epoch, start.standby
            self._take_over()

    def _stop(self, stop: Stop) -> None:
        self._phase = DriverPhase.ENDED
        self._standby = None
        self._step(Unload(stop.error))
        self._let_go(stop.error)

    def _request(self, request: Request) -> None:
        if self.shard is None:
            self._effects.reply(request.call_id, self._answer_without_shard(request))
        else:
            if isinstance(request, Attach) and request.epoch > self.fence_epoch:
                request = replace(request, is_ahead=True)
            self._requests[request.call_id] = request
            self._step(request)
            replies = self._effects.replies
            if len(replies) > 1:
                answers = sum(call_id == request.call_id for call_id, _ in replies)
                assert answers <= 1, f"{type(request).__name__} was answered {answers} times"

    def _fetch(self, fetch: FetchEntries) -> None:
        if self.shard is None:
            refused = Refused(self._why_nobody_serves())
            self._effects.fetched.append((fetch.call_id, fetch.refusal(refused)))
        else:
            self._fetches[fetch.call_id] = fetch
            self._step(fetch)

    def _tick(self, tick: Tick) -> None:
        if self._later is not None and self._now_ms >= self._later[0]:
            (_, job), self._later = self._later, None
            self._begin(job)
        if self._deadline_ms is not None and self._now_ms >= self._deadline_ms:
            self._step(tick)

    def _done(self, done: Done) -> None:
        job, result = done.job, done.result
        if job is self._snapshot:
            self._snapshot = None
            self._policy.end(result)
        if isinstance(job, Compute):
            self._computed(job, PlanComputed(job.ask.group_id, job.ask.number, result))
        if job is not self._job:
            return  # Late: the shard was given up meanwhile, and its callers have been answered.
        self._job = None
        match job:
            case TakeOver():
                self._fence = result
                self._begin(Load(result, 0 if self._standby is None else self._standby.sequence))
            case Load():
                self._loaded(result)
            case Build():
                self._serve(result)
            case WriteEntry():
                self._appended(job.append, result)

    def _log_failed(self, failed: LogFailed) -> None:
        job = failed.job
        if job is self._snapshot:
            self._no_snapshot(Problem(f"no snapshot was taken: {failed.reason}"))
        if job is not self._job:
            return
        self._job = None
        is_fenced = failed.failure is AppendFailure.FENCED
        match job:
            case WriteEntry():
                self._append_failed(job.append, failed)
            case TakeOver() if is_fenced:
                # The controller has granted the shard to another node meanwhile.
                self._report(f"shard {self.shard_id} is led elsewhere: {failed.reason}")
                self._phase = DriverPhase.ENDED
            case TakeOver():
                self._report(f"the log cannot be written: {failed.reason}")
                self._take_over(BACKOFF_MS)
            case _ if is_fenced:
                self._take_over()  # By an earlier attempt of this node, or as above.
            case _:
                self._report(f"the log cannot be read: {failed.reason}")
                self._take_over(BACKOFF_MS)

    def _found_damage(self, damage: FoundDamage) -> None:
        if damage.job is not self._job:
            return
        self._job = None
        if isinstance(damage.job, Build) and damage.job.standby is not None:
            # The log is authoritative: the standby's copy is discarded.
            self._report(f"shard {self.shard_id} is read anew: {damage.error}")
            self._standby = None
            self._take_over()
        elif self.is_starting:
            self.damage, self._phase = damage.error, DriverPhase.STARTED
        else:
            self._report(str(damage.error))
            self._take_over(self._bugs.backoff_ms())

    def _broken(self, broken: Broken) -> None:
        job, error = broken.job, broken.error
        if job is not None and job is self._snapshot:
            self._no_snapshot(
                Problem("no snapshot was taken", error)
            )  # The log still has all entries.
        elif isinstance(job, Compute):
            error_text = f"{type(error).__name__}: {error}"
            self._computed(job, PlanComputed(job.ask.group_id, job.ask.number, None, error_text))
        elif job is None or job is self._job:
            self._break(error)

    def _computed(self, job: Compute, result: PlanComputed) -> None:
        if job in self._computes:  # Else it is late: the shard was given up meanwhile.
            self._computes.remove(job)
            self._step(result)

    # --- Loading ---

    def _take_over(self, after_ms: int = 0) -> None:
        self._begin(TakeOver(self.shard_id, self.leader_epoch), after_ms)

    def _loaded(self, loaded: Loaded) -> None:
        self._raised = loaded.raised
        if loaded.raised and self._standby is not None:
            # It may have entries that the store has lost, under numbers that are others' now.
            self._standby = None
            self._begin(Load(self._fence, 0))
            return
        self._begin(Build(loaded, None if loaded.snapshot is not None else self._standby))

    def _serve(self, standby: StandbyShard) -> None:
        standby.shard.restore(
            self._now_ms,
            self._effects,
            sequence=standby.sequence,
            next_offset=standby.next_offset,
            raised=self._raised,
        )
        self._standby = None
        self._recovered()
        self.shard, self._policy = standby.shard, standby.policy
        self._serves_since_ms = self._now_ms
        self._phase = DriverPhase.STARTED
        self._take()
        if self._followers is not None:
            self._step(FollowersChanged(self._followers))
        self._effects.has_dormant_groups = not standby.shard.is_active

    # --- Serving ---

    def _step(self, event: Input) -> None:
        if self.shard is not None:
            self.shard.step(event, self._now_ms, self._effects)
            self._take()

    def _take(self) -> None:
        """Take out what the driver does itself, after each step of the shard."""
        effects = self._effects
        for call_id, _ in effects.replies:
            self._requests.pop(call_id, None)
        for call_id, _ in effects.fetched:
            self._fetches.pop(call_id, None)
        self._deadline_ms = effects.next_deadline_ms
        if effects.computes:
            jobs = [Compute(ask) for ask in effects.computes]
            effects.computes.clear()
            self._computes.update(jobs)
            effects.jobs += jobs
        append, effects.append = effects.append, None
        if append is not None:
            self._write(append)
        self._whole = effects.mark()
        if effects.unloaded and self._phase is not DriverPhase.ENDED:
            self._notify(Problem("the log has refused this node"))
            self._let_go(ErrorCode.NOT_COORDINATOR)
            self._load_again()

    def _write(self, append: Append) -> None:
        backoff_ms = self._patience.ambiguous_ms * append.attempt if append.attempt > 1 else 0
        self._begin(WriteEntry(self._fence, append), backoff_ms)

    def _appended(self, append: Append, encoded: tuple[bytes, ...]) -> None:
        self._recovered()
        self._step(Appended(append.sequence, encoded))
        self._policy.appended(sum(map(len, encoded)))
        if self._policy.is_due() and self.shard is not None:
            self._policy.begin()
            next_offset = append.base_offset + len(encoded)
            # Listing the durable records is cheap; the host encodes them later.
            self._snapshot = WriteSnapshot(
                self._fence, append.sequence, next_offset, self.shard.records()
            )
            self._effects.jobs.append(self._snapshot)

    def _append_failed(self, append: Append, failed: LogFailed) -> None:
        if failed.failure in (AppendFailure.UNAVAILABLE, AppendFailure.AMBIGUOUS):
            self._report(f"the log cannot be written: {failed.reason}")
        self._step(AppendFailed(append.sequence, failed.failure, failed.is_lasting))
        if failed.reason:
            self._effects.replies = [
                (call_id, replace(reply, message=f"{reply.message} ({failed.reason})"))
                for call_id, reply in self._effects.replies
            ]

    def _no_snapshot(self, problem: Problem) -> None:
        self._snapshot = None
        self._policy.end(0)
        self._notify(problem)

    # --- Without a shard ---

    def _why_nobody_serves(self) -> ErrorCode:
        match self._phase:
            case DriverPhase.NEW:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            case DriverPhase.STARTING | DriverPhase.STARTED:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            case DriverPhase.ENDED:
                return ErrorCode.NOT_COORDINATOR

    def _answer_without_shard(self, request: Request) -> Reply:
        error = self._why_nobody_serves()
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return answer_while_loading(request)
        return refusal_unserved(request, error)

    def _break(self, error: Exception) -> None:
        """Drop the shard after an internal error and load it again from the log."""
        if self.shard is not None:
            self._bugs.forgive(self._now_ms - self._serves_since_ms)
        self._notify(self._bugs.add(error))
        if self._phase is DriverPhase.STARTING:
            self._phase = DriverPhase.STARTED
        self._standby = None
        cut_streams = self._effects.cut(self._whole)
        self._effects.jobs.clear()
        self._let_go(
            ErrorCode.NOT_COORDINATOR
            if self._phase is DriverPhase.ENDED
            else ErrorCode.UNKNOWN_SERVER_ERROR,
            cut_streams,
        )
        self._load_again()

    def _let_go(self, error: ErrorCode, streams: Sequence[CallId] = ()) -> None:
        """Drop the shard, refuse every call that waits for it, and end the streams of members.

        Args:
            streams: that end as well.
        """
        if self.shard is not None:
            streams = (*streams, *self.shard.streams())
        self._effects.ended += [
            (stream_id, unloaded(error)) for stream_id in dict.fromkeys(streams)
        ]
        self.shard = self._job = self._snapshot = self._later = self._deadline_ms = None
        self._computes.clear()
        effects, refused = self._effects, Refused(error)
        loading = Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        replies = [(id_, request.refusal(refused)) for id_, request in self._requests.items()]
        fetched = [(id_, fetch.refusal(loading)) for id_, fetch in self._fetches.items()]
        self._requests, self._fetches = {}, {}
        effects.replies += replies
        effects.fetched += fetched

    def _load_again(self) -> None:
        if self._patience.reloads and self._phase is not DriverPhase.ENDED:
            self._take_over(self._bugs.backoff_ms())
        else:
            self._phase = DriverPhase.ENDED

    # --- Effects ---

    def _begin(self, job: Job, after_ms: int = 0) -> None:
        if after_ms:
            self._later = (self._now_ms + after_ms, job)
        else:
            self._job = job
            self._effects.jobs.append(job)

    def _notify(self, notice: Problem | Recovery) -> None:
        self._effects.notices.append(notice)

    def _report(self, reason: str) -> None:
        if reason != self._problem:
            self._problem = reason
            self._notify(Problem(reason))

    def _recovered(self) -> None:
        if self._problem:
            self._notify(Recovery(f"no longer: {self._problem}"))
            self._problem = ""

    def _next_wake_ms(self) -> int | None:
        later_ms = None if self._later is None else self._later[0]
        if later_ms is None or self._deadline_ms is None:
            return self._deadline_ms if later_ms is None else later_ms
        return min(later_ms, self._deadline_ms)
