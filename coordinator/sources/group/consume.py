"""Rows until all are done: a worker with an end, whose results are exactly-once across crashes.

`consume` is a `Worker` (`coordinator.client.worker`) of a member that its caller has started, with
one handler: it processes rows, stores results, commits. A plain process and a Spark task use it. It
is exactly-once if the `Work` stores results up to an offset durably *before* that offset is
committed: whichever member takes a partition over resumes from the committed offset, and results
beyond it are made again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from coordinator.assignors import TopicPartition
from coordinator.client.errors import CommitFailed, StaleMember
from coordinator.client.member.blocking import BlockingMember
from coordinator.client.worker import Partition, Worker
from coordinator.client.worker.adapters import until_may_begin
from coordinator.client.worker.environment import (
    environment_here,
    refuse_running_loop,
    run_on_new_loop,
)
from coordinator.client.worker.handlers import ErrorPolicy, Handlers, Limits, check_number
from coordinator.client.worker.setup import WorkerSetup
from coordinator.client.worker.user_functions import TOPICS_REFRESH_MS, StartPolicy, WorkerTopics
from coordinator.sources.base import Source, snapshots_of
from coordinator.sources.group.commits import commit
from coordinator.sources.group.measures import topics_of_source
from coordinator.sources.group.reading import Chunk, Reading
from coordinator.sources.group.record import in_group
from coordinator.sources.progress import reporting_progress_to

LOOK_S = 0.5
"""Time between two looks whether all is done, or whether a log has grown."""
RETRY_MS = 200
"""Time until a partition whose commit was refused is begun again, from the committed offset."""


class Work(Protocol):
    """Processing of the rows of one worker's partitions."""

    def resume(self, partition: int, offset: int) -> None:
        """Begin a partition with the result stored at `offset`; 0: there is none yet."""
        ...

    def add(self, partition: int, batch: Any) -> None:
        """Process a batch of rows."""
        ...

    def store(self, partition: int, offset: int) -> None:
        """Make the partition's result up to `offset` durable. The offset is committed next."""
        ...


@dataclass(frozen=True, slots=True)
class Summary:
    """Counters of one worker's run, for reports; results are in the store of its `Work`."""

    member_id: str
    rows: int
    commits: int
    rebalances: int


class Stalled(Exception):
    """No member of the group has committed anything for the whole progress timeout."""


def consume(
    member: BlockingMember,
    source: Source,
    work: Work,
    *,
    rows_per_commit: int = 1_000,
    pause_s: float = 0.0,
    progress_timeout_s: float = 300.0,
    forever: bool = False,
    allow_empty: bool = False,
    topics_refresh_ms: int = TOPICS_REFRESH_MS,
) -> Summary:
    """Work as a started member of the group until every partition is committed to its end.

    A worker that has nothing left stays in the group, ready to take over from one that dies.

    All methods of `work` are called in the calling thread, one at a time. Each batch that `work`
    has processed counts as progress, so a member with many or slow partitions does not exceed
    `max_poll_interval_ms` (default: five minutes). A single batch must not take longer than that:
    have the source give smaller batches, or raise the limit. Nobody else polls the member
    meanwhile.

    Args:
        member: of either protocol. In a session group each partition moves alone, and a result is
            stored only while the lease of its partition lasts.
        rows_per_commit: rows of each partition that are processed again, at most, after a crash.
        pause_s: pause after each commit, to limit the load on the source.
        progress_timeout_s: give up after so long without any commit of the group.
        forever: partitions grow: go on at their ends, and never return.
        topics_refresh_ms: time between two counts of the source's partitions; new ones are divided
            among the members. Without `forever` they are read to the ends that they have then,
            as far as the run comes: it does not wait for them.
        allow_empty: accept a source without any partition.
    Raises:
        Stalled: no member has committed for `progress_timeout_s`.
        NothingFound: the source has no partition.
        LogChanged: rows that were read have changed or are gone: see `sources.base`.
        CoordinatorError: the member cannot go on.
        RuntimeError: the member is not started, or was closed meanwhile; or an event loop runs in
            this thread.
    """
    check_number("rows_per_commit", rows_per_commit, 1)
    refuse_running_loop(
        "consume blocks, and an event loop runs in this thread: "
        "use `await asyncio.to_thread(consume, ...)`"
    )
    source = in_group(source, member.group_address)
    count = topics_of_source(source, allow_empty=allow_empty)
    topics = WorkerTopics(count, topics_refresh_ms)
    with reporting_progress_to(member.alive):
        numbers = range(count()[source.topic])
        ends = {n: snapshot.end() for n, snapshot in snapshots_of(source, numbers).items()}
    consumer = _Consumer(
        member, source, work, topics, ends, rows_per_commit, pause_s, forever=forever
    )
    return consumer.run(progress_timeout_s)


class _Consumer:
    """One call of `consume`. `ends`: of all partitions, when it began."""

    def __init__(
        self,
        member: BlockingMember,
        source: Source,
        work: Work,
        topics: WorkerTopics,
        ends: Mapping[int, int],
        rows_per_commit: int,
        pause_s: float,
        *,
        forever: bool,
    ) -> None:
        self._member = member
        self._inner, self._loop = member.lend()
        self._source, self._work = source, work
        self._ends = {TopicPartition(source.topic, number): end for number, end in ends.items()}
        self._awaited = [
            p for p, end in self._ends.items() if source.begin_offset(p.partition) < end
        ]
        self._rows_per_commit, self._pause_s, self._forever = rows_per_commit, pause_s, forever
        self._rows = self._commits = 0
        self._is_over = False
        self._error: Exception | None = None
        self._lock = asyncio.Lock()
        setup = WorkerSetup(
            group_id=member.group_id,
            new_member=lambda topics, environment: self._inner,
            handlers=Handlers(),
            # The member's max_poll_interval_ms and `Stalled` stand in for it.
            limits=Limits(progress_timeout_ms=None),
            topics=topics,
            start=StartPolicy("earliest", None, None),
            log_ends=None,
            log_ends_interval_s=LOOK_S,
            is_lent=True,
            blocks_loop=True,
        )
        self._worker = Worker.of(setup, ErrorPolicy(retry_backoff_ms=RETRY_MS))
        self._worker.handler(drain="manual")(self._handle)

    def run(self, progress_timeout_s: float) -> Summary:
        if not environment_here().runs(lambda: self._serve(progress_timeout_s), self._stop):
            run_on_new_loop(self._serve(progress_timeout_s))
        grants = self._worker.state.grants
        return Summary(self._inner.member_id, self._rows, self._commits, grants)

    async def _serve(self, progress_timeout_s: float) -> None:
        async with self._worker:
            await self._until_all_is_done(progress_timeout_s)
        if self._error is not None:
            raise self._error
        if not self._is_over:
            raise RuntimeError(
                f"the member has stopped meanwhile: {self._worker.state.stopping_because}"
            )

    def _stop(self, reason: str, grace_ms: int | None) -> None:
        """End as a process does that is told to; on virtual time."""
        self._is_over = True
        self._worker.stop(reason, grace_ms=grace_ms)

    # --- In the calling thread ---

    async def _handle(self, p: Partition) -> None:
        try:
            await self._work_on(p)
        except asyncio.CancelledError:
            return  # The partition is lost; or the loop ends, on Ctrl-C say.
        except CommitFailed:
            raise  # The batch does not count: the partition is begun again.
        except Exception as error:  # noqa: BLE001  # `consume` raises it.
            self._error = self._error or error
            self._worker.stop(f"failed: {error!r}")

    async def _work_on(self, p: Partition) -> None:
        self._work.resume(p.number, max(p.stored, 0))
        reading = Reading(self._source, p)
        while not p.revoking.is_set():
            # One partition at a time, in turn: with its batch, its commit and its pause.
            async with self._lock:
                await until_may_begin(p)
                chunk = None if p.revoking.is_set() else self._next(p, reading)
                if chunk is not None:
                    await commit(p, chunk[0])
                    self._rows += chunk[1]
                    self._commits += 1
                    await asyncio.sleep(self._pause_s)
                    continue
            if not (self._forever or p.revoking.is_set()):
                await p.done()
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await p.revoking.wait()

    def _next(self, p: Partition, reading: Reading) -> tuple[Chunk, int] | None:
        """Process and store the next chunk; it and its rows, or None if there is none now."""
        if not (self._forever or p.key in self._ends):
            self._ends[p.key] = self._source.end_offset(p.number)  # It has appeared since.
        with reporting_progress_to(self._member.alive):
            end = None if self._forever else self._ends[p.key]
            chunk = reading.next(self._rows_per_commit, end)
        if chunk is None:
            return None
        rows = 0
        for batch in chunk.batches:
            self._work.add(p.number, batch)
            rows += batch.num_rows
            self._member.alive()
        if not p.valid:
            raise StaleMember(f"nothing was stored: {p.key} may belong to another member")
        self._work.store(p.number, chunk.after)
        return chunk, rows

    async def _until_all_is_done(self, progress_timeout_s: float) -> None:
        """Return when every partition is committed to its end, or the worker stops.

        While `work` is busy this stands still, so that it is no sign of life of one that hangs.
        """
        clock = asyncio.get_running_loop().time
        last_seen: dict[TopicPartition, int] = {}
        progress_at = clock()
        while self._worker.state.stopping_because is None:
            await asyncio.sleep(LOOK_S)
            check = asyncio.run_coroutine_threadsafe(self._committed_now(), self._loop)
            seen = await asyncio.wrap_future(check)
            if self._forever:
                continue
            self._is_over = all(seen[p] >= self._ends[p] for p in self._awaited)
            if self._is_over:
                return
            if seen != last_seen:
                last_seen, progress_at = seen, clock()
            elif clock() - progress_at > progress_timeout_s:
                raise Stalled(f"no commit in the group for {progress_timeout_s:.0f} s")

    async def _committed_now(self) -> dict[TopicPartition, int]:
        """Show progress, and read the committed offsets; on the protocol's loop."""
        self._inner.count_as_poll()
        return {} if self._forever else await self._inner.committed(self._awaited)
