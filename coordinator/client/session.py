"""`GroupMember`: the machine of `machine.py` on asyncio and grpc.aio.

One task runs the protocol: it sends what the machine asks for, feeds the answers back,
and beats in between. The owner's calls (`poll`, `commit`, …) run beside it in the same
loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random as random_module
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

import grpc

from coordinator.assignors import TopicPartition, by_name
from coordinator.client.beats import BatchedMember
from coordinator.client.connection import (
    CALL_TIMEOUT_S,
    DROPPED,
    GIVE_UP_S,
    TURNED_AWAY,
    Connection,
)
from coordinator.client.errors import CoordinatorError, FatalError, RebalanceInProgress
from coordinator.client.events import RebalanceEvent, Stopping
from coordinator.client.holdings import Holding
from coordinator.client.log_ends import LogEnds, report_log_ends
from coordinator.client.machine import MemberConfig, MemberMachine, Next, Phase
from coordinator.client.offsets import (
    Commit,
    OffsetAndMetadata,
    Offsets,
    by_topic_partition,
    commit_codes,
    fetch_topics,
    fetched,
)
from coordinator.client.retry import BackOff, room_after_s
from coordinator.dial import Credentials
from coordinator.v1 import group_pb2 as pb

LOGGER = logging.getLogger("coordinator.client")
BEATS_A_SESSION, FINDS_A_SESSION = 4, 10
"""How many of them may fail, one after the other, before the session ends."""
LEAVE_TIMEOUT_S = 2.0
LOG_ENDS_INTERVAL_S = 5.0
JOIN_GRACE_S = 5.0
"""Beyond the rebalance timeout; as Kafka's client."""


def epoch_ms() -> int:
    """Milliseconds since the epoch, which do not go back within a process."""
    return _EPOCH_OFFSET_MS + time.monotonic_ns() // 1_000_000


_EPOCH_OFFSET_MS = (time.time_ns() - time.monotonic_ns()) // 1_000_000


class GroupMember:
    """A member of a group, on the running event loop; its coroutines are awaited there.

    Args:
        bootstrap: one or several HOST:PORT to ask for the coordinator.
        topics: topic to number of partitions.
        assignors: names of those the member can follow, best first. A group follows one
            that all its members name.
        log_ends: where the logs of partitions end; told to the coordinator every
            `log_ends_interval_s`, so that lag can be seen.
        credentials: whom to trust, and who one is; None: as the environment says.
        clock: epoch milliseconds. random: from 0 to 1, below 1.
        settings: the fields of `MemberConfig`.
    Raises:
        ValueError: an assignor is unknown.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        group_id: str,
        topics: Mapping[str, int],
        *,
        assignors: Sequence[str] = ("range",),
        log_ends: LogEnds | None = None,
        log_ends_interval_s: float = LOG_ENDS_INTERVAL_S,
        credentials: Credentials | None = None,
        clock: Callable[[], int] = epoch_ms,
        random: Callable[[], float] = random_module.random,
        **settings: Any,  # Any: the types of MemberConfig's fields.
    ) -> None:
        for name in assignors:
            by_name(name)
        self._machine = MemberMachine(
            MemberConfig(
                group_id=group_id, topics=dict(topics), assignors=tuple(assignors), **settings
            )
        )
        self._clock = clock
        # Several attempts fit into a session, whose end costs the partitions.
        most_s = min(5.0, self._machine.config.session_timeout_ms / 6_000)
        self._back_off = BackOff(random, most_s=most_s)
        self._retrying = False
        self._connection = Connection(
            [bootstrap] if isinstance(bootstrap, str) else list(bootstrap),
            group_id,
            credentials=credentials or Credentials.from_environment(),
            find_timeout_s=min(
                CALL_TIMEOUT_S, self._machine.config.session_timeout_ms / 1000 / FINDS_A_SESSION
            ),
            clock=clock,
            random=random,
        )
        self._log_ends = log_ends
        self._log_ends_interval_s = log_ends_interval_s
        self._reporting: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        interval_s = self._machine.config.heartbeat_interval_ms / 1000
        self._batched = BatchedMember(self._connection, interval_s, self._wake.set)
        self._told = asyncio.Event()
        self._turned = asyncio.Event()
        self._last_poll_ms = 0
        self._standing_polls = 0
        self._commits: set[asyncio.Future[None]] = set()
        self._crash: BaseException | None = None

    # --- What is ---

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions this member may work on now: handed out by `poll`, and not taken away."""
        return self._machine.holdings.known(self._machine.assignment)

    @property
    def generation(self) -> int:
        """The group's generation as far as the member knows; -1: none."""
        return self._machine.generation

    @property
    def is_between_assignments(self) -> bool:
        """True while a generation is being joined: what is assigned in it is not known yet."""
        return self._machine.is_between_assignments

    @property
    def member_id(self) -> str:
        """The id the coordinator gave; empty: none."""
        return self._machine.member_id

    @property
    def is_leader(self) -> bool:
        """True if this member computed the assignment of its generation."""
        return self._machine.is_leader

    def holding(self, partition: TopicPartition) -> Holding:
        """The partition as the last `poll` handed it out, for a handler that does not poll itself.

        Take it when the work is handed to the handler, in the thread or task that polls, and
        commit with `holdings=[holding]`: it is refused if the partition has been away meanwhile,
        even if this member has it again.

        Raises:
            StaleMember: the member does not hold it, as far as `poll` has told.
        """
        return self._machine.holdings.of(partition)

    def holds(self, holding: Holding) -> bool:
        """False once the partition was given back or lost. It may be asked in any thread."""
        return self._machine.holdings.lasts(holding)

    # --- Life ---

    async def start(self) -> None:
        """Begin to join. It goes on in the background; `poll` tells how."""
        if self._task is None:
            self._last_poll_ms = self._clock()
            self._loop = loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._run())
            if self._log_ends is not None:
                self._reporting = loop.create_task(
                    report_log_ends(
                        self._machine, self._connection, self._log_ends, self._log_ends_interval_s
                    )
                )

    async def close(self, reason: str = "closed", *, leave: bool | None = None) -> None:
        """Stop, and leave the group so that it rebalances at once.

        Commits that are on the way have two seconds to be answered; none is begun any more. A
        static member does not leave: its place is kept for the process that comes back under its
        instance id, until the session ends.

        Args:
            reason: told to the coordinator.
            leave: do, or do not, whatever the kind of member.
        """
        self._machine.stop(reason)
        self._told.set()
        self._turn_over()
        if self._commits:
            await asyncio.wait(self._commits, timeout=LEAVE_TIMEOUT_S)
        running = [task for task in (self._task, self._reporting) if task is not None]
        self._task = self._reporting = None
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        request = self._machine.leave_request(reason)
        if leave is None:
            leave = self._machine.config.instance_id is None
        if leave and request is not None and self._connection.is_open:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await self._connection.call("LeaveGroup", request, LEAVE_TIMEOUT_S)
        await self._connection.close()

    async def __aenter__(self) -> GroupMember:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close("closed" if error is None else f"failed: {error}")

    async def poll(
        self,
        timeout: float = 0.0,  # noqa: ASYNC109  # Part of the face that both members share.
    ) -> list[RebalanceEvent]:
        """What happened to the partitions since the last call.

        Calling it counts as progress, as does standing in it, and says that what the last call
        announced as `Revoking` has been finished with. A partition is held from the call that
        returns it in `Assigned` on: commits count for what the last call told.

        Args:
            timeout: seconds to wait if nothing has happened.
        Raises:
            FatalError: the group will not have this member.
        """
        self._own_loop()
        self._last_poll_ms = self._clock()
        if self._machine.polled(self._clock()):
            self._wake.set()
        self._standing_polls += 1
        try:
            await self._wait_for_events(timeout)
        finally:
            self._standing_polls -= 1
            self._last_poll_ms = self._clock()
        events = self._machine.hand_out(self._clock())
        if not events:
            self._raise_failure()
        return events

    async def _wait_for_events(self, seconds: float) -> None:
        if seconds <= 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._machine.events and self._machine.phase is not Phase.STOPPED:
                    self._told.clear()
                    await self._told.wait()

    def alive(self) -> None:
        """Show progress without polling: the work on a long piece goes on. Any thread may call it.

        It hears nothing, and gives nothing back.
        """
        self._last_poll_ms = self._clock()

    async def events(self) -> AsyncIterator[RebalanceEvent]:
        """`poll` as an endless iterator; it ends after `Stopping`."""
        while True:
            for event in await self.poll(timeout=1.0):
                yield event
                if isinstance(event, Stopping):
                    return

    # --- Offsets ---

    async def commit(
        self,
        offsets: Offsets,
        *,
        atomic: bool = False,
        expected: Mapping[TopicPartition, int] | None = None,
        manifest: bytes = b"",
        holdings: Collection[Holding] | None = None,
    ) -> None:
        """Store progress; returns when it is durable.

        It counts for the partitions as the last `poll` handed them out, or as `holdings` say. If
        one of them has been given back or lost since, nothing is sent, though the partition may
        have come back. While a cooperative round goes on it may wait for the new generation.

        Args:
            offsets: the next offset to read, by partition.
            atomic: all partitions or none.
            expected: offsets that must be the ones stored now; -1: none.
            manifest: stored with the group; at most 64 KiB.
            holdings: of all these partitions, where a handler commits that does not poll.
        Raises:
            RebalanceInProgress, StaleMember, OffsetMismatch, CommitFailed: it was refused.
            Unavailable: nobody answered for 30 s, with retries.
        """
        machine = self._machine
        commit = Commit(
            by_topic_partition(offsets), expected or {}, atomic=atomic, manifest=manifest
        )
        done = self._own_loop().create_future()
        self._commits.add(done)
        phase = machine.phase
        try:
            await self._carry_out(commit, machine.begin_commit(commit, holdings))
        finally:
            self._commits.discard(done)
            done.set_result(None)
            if machine.phase is not phase:
                self._tell()
                self._wake.set()

    async def _carry_out(self, commit: Commit, claimed: frozenset[Holding]) -> None:
        """Ask, with the newest generation, while the holdings last."""
        machine, give_up_ms = self._machine, self._clock() + int(GIVE_UP_S * 1000)
        sent = pb.OffsetCommitRequest()
        repeated = False

        def make_request() -> pb.OffsetCommitRequest:
            nonlocal sent
            sent = machine.commit_request(commit, claimed, self._clock())
            return sent

        while True:
            response, again = await self._connection.ask("OffsetCommit", make_request, commit_codes)
            repeated = repeated or again
            if machine.commit_answered(
                commit, claimed, sent, response, repeated=repeated, now_ms=self._clock()
            ):
                return
            self._wake.set()
            while machine.is_between_assignments:
                try:
                    async with asyncio.timeout((give_up_ms - self._clock()) / 1000):
                        await self._turned.wait()
                except TimeoutError:
                    raise RebalanceInProgress("the group is still between assignments") from None

    async def committed(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """Stored offsets; -1 where nothing is stored.

        Args:
            partitions: which; None: all that are stored.
        Raises:
            Unavailable: nobody answered for 30 s, with retries.
        """
        found = await self.committed_with_metadata(partitions)
        return {key: commit.offset for key, commit in found.items()}

    async def committed_with_metadata(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """As `committed`, with the text that was committed beside each offset."""
        self._own_loop()
        topics = [] if partitions is None else fetch_topics(partitions)
        if partitions is not None and not topics:
            return {}
        request = pb.OffsetFetchRequest(
            group_id=self._machine.config.group_id, topics=topics, require_stable=True
        )
        response, _ = await self._connection.ask(
            "OffsetFetch", lambda: request, lambda response: {response.error_code}
        )
        return fetched(response)

    # --- The protocol ---

    async def _run(self) -> None:
        try:
            while self._machine.phase is not Phase.STOPPED:
                await self._step_once()
                self._tell()
                self._turn_over()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  # Ours or an assignor's: the owner must hear.
            self._crash = error
            self._machine.stop(f"failed: {error}")
            self._tell()
            self._turn_over()

    async def _step_once(self) -> None:
        try:
            match self._machine.phase:
                case Phase.JOINING:
                    todo = await self._join()
                case Phase.SYNCING:
                    todo = await self._sync()
                case Phase.STABLE | Phase.REVOKING:
                    todo = await self._serve()
                case _:
                    todo = await self._idle()
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise CoordinatorError(error.details() or "", error.code().name) from error
            if self._is_turned_away(error.code()):
                raise FatalError(error.details() or "", error.code().name) from error
            room_s = room_after_s(error)
            if room_s is None and error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise FatalError(error.details() or "", error.code().name) from error
            self._machine.unreachable(self._clock())
            self._tell()
            was_dropped = error.code() is DROPPED
            todo = Next.PAUSE if was_dropped or room_s is not None else Next.REDISCOVER
            if room_s is not None:
                await self._sleep(room_s)
        self._retrying = todo is not Next.GO_ON
        if todo is Next.REDISCOVER:
            await self._connection.close()
        if todo is Next.GO_ON:
            self._back_off.reset()
        else:
            await self._sleep(self._back_off.next_s())

    def _is_turned_away(self, code: grpc.StatusCode) -> bool:
        # A token may be about to be exchanged: whoever has a place keeps it for the session.
        if code is grpc.StatusCode.UNAUTHENTICATED:
            return self._machine.phase is Phase.JOINING
        return code in TURNED_AWAY

    async def _join(self) -> Next:
        # The initial delay of a new group comes on top where it is the longer one.
        wait_s = self._machine.config.rebalance_timeout_ms / 1000 + JOIN_GRACE_S
        response = await self._connection.call("JoinGroup", self._machine.join_request(), wait_s)
        return self._machine.join_answered(response)

    async def _sync(self) -> Next:
        wait_s = self._machine.config.rebalance_timeout_ms / 1000 + JOIN_GRACE_S
        sent_at_ms = self._clock()
        response = await self._connection.call("SyncGroup", self._machine.sync_request(), wait_s)
        return self._machine.sync_answered(response, sent_at_ms, self._clock())

    async def _serve(self) -> Next:
        """Wait for the next beat, for the owner, or for a deadline; then beat.

        A beat that failed is repeated after the back-off alone: the session is running out.
        """
        if not self._retrying:
            await self._sleep(self._pause_s())
        if await self._look_at_the_clock():
            return Next.GO_ON
        sent_at_ms = self._clock()
        # A node that was stopped answers never: leave time to find its successor.
        wait_s = self._machine.config.session_timeout_ms / 1000 / BEATS_A_SESSION
        response = await self._connection.beat(
            self._batched, self._machine.heartbeat_request(), min(wait_s, CALL_TIMEOUT_S)
        )
        return self._machine.beat_answered(response, sent_at_ms, self._clock())

    async def _idle(self) -> Next:
        await self._sleep(1.0)
        return Next.GO_ON

    def _pause_s(self) -> float:
        config, now_ms = self._machine.config, self._clock()
        pause_ms = float(config.heartbeat_interval_ms)
        pause_ms = min(pause_ms, self._machine.session_ends_ms - now_ms)
        if self._machine.phase is Phase.REVOKING:
            pause_ms = min(pause_ms, self._machine.revoke_until_ms - now_ms)
        if config.max_poll_interval_ms is not None:
            until_ms = self._progress_ms(now_ms) + config.max_poll_interval_ms + 1
            pause_ms = min(pause_ms, until_ms - now_ms)
        return max(0.0, pause_ms / 1000)

    async def _look_at_the_clock(self) -> bool:
        """True if the machine has moved on, so that there is nothing to beat for."""
        now_ms = self._clock()
        reason = self._machine.tick(now_ms, self._progress_ms(now_ms))
        if reason is not None:
            config = self._machine.config
            LOGGER.warning(
                "member %s leaves group %s, and joins again with the next poll: %s",
                self.member_id, config.group_id, reason,
            )  # fmt: skip
            self._tell()
            request = self._machine.leave_request(reason)
            if request is not None:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await self._connection.call("LeaveGroup", request, LEAVE_TIMEOUT_S)
            self._machine.left()
        return self._machine.phase not in (Phase.STABLE, Phase.REVOKING)

    async def _sleep(self, seconds: float) -> None:
        """Sleep, or wake when the owner has something to say."""
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise RuntimeError(
                "a GroupMember is called on the event loop that started it; BlockingMember may be "
                "called from any thread"
            )
        return loop

    def _progress_ms(self, now_ms: int) -> int:
        return now_ms if self._standing_polls else self._last_poll_ms

    def _turn_over(self) -> None:
        """Wake the commits that wait for the member to have its assignment."""
        self._turned.set()
        self._turned.clear()

    def _tell(self) -> None:
        if self._machine.events or self._machine.phase is Phase.STOPPED:
            self._told.set()

    def _raise_failure(self) -> None:
        if self._machine.failure is not None:
            raise self._machine.failure
        if isinstance(self._crash, FatalError):
            raise self._crash
        if self._crash is not None:
            raise CoordinatorError(f"the member has failed: {self._crash}") from self._crash
