"""`GroupMember`: the machine of `machine.py` on asyncio and grpc.aio.

One task runs the protocol: it sends what the machine asks for, feeds the answers back,
and beats in between. The owner's calls (`poll`, `commit`, …) run beside it in the same
loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import random as random_module
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import grpc

from coordinator.assignors import TopicPartition, by_name
from coordinator.client.errors import (
    CommitFailed,
    CoordinatorError,
    OffsetMismatch,
    RebalanceInProgress,
    StaleMember,
    Unavailable,
)
from coordinator.client.events import RebalanceEvent, Revoking, Stopping
from coordinator.client.machine import MemberConfig, MemberMachine, Next, Phase
from coordinator.client.retry import BackOff
from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import group_pb2_grpc
from coordinator.v1.errors_pb2 import ErrorCode

CALL_TIMEOUT_S = 10.0
COMMIT_TIMEOUT_S = 30.0
JOIN_GRACE_S = 5.0
"""Beyond the rebalance timeout; as Kafka's client."""

CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # gRPC's own pauses between connection attempts, below ours.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)

_RETRIABLE = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
_STALE = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A commit of one partition; `offset` is the next one to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


def epoch_ms() -> int:
    """Milliseconds since the epoch, which do not go back within a process."""
    return _EPOCH_OFFSET_MS + time.monotonic_ns() // 1_000_000


_EPOCH_OFFSET_MS = (time.time_ns() - time.monotonic_ns()) // 1_000_000


class GroupMember:
    """A member of a group, on the running event loop.

    Args:
        bootstrap: one or several HOST:PORT to ask for the coordinator.
        topics: topic to number of partitions.
        assignors: names of those the member can follow, best first. A group follows one
            that all its members name.
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
        clock: Callable[[], int] = epoch_ms,
        random: Callable[[], float] = random_module.random,
        **settings: Any,  # Any: the types of MemberConfig's fields.
    ) -> None:
        for name in assignors:
            by_name(name)
        self._bootstrap = [bootstrap] if isinstance(bootstrap, str) else list(bootstrap)
        self._machine = MemberMachine(
            MemberConfig(
                group_id=group_id, topics=dict(topics), assignors=tuple(assignors), **settings
            )
        )
        self._clock = clock
        self._back_off = BackOff(random)
        self._random = random
        self._channel: grpc.aio.Channel | None = None
        self._stub: Any = None  # Any: the stub's calls are awaitable only on grpc.aio channels.
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._told = asyncio.Event()
        self._last_poll_ms = 0
        self._handed_out: Revoking | None = None
        self._crash: BaseException | None = None

    # --- What is ---

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions this member may work on now."""
        return self._machine.assignment

    @property
    def generation(self) -> int:
        """The group's generation as far as the member knows; -1: none."""
        return self._machine.generation

    @property
    def member_id(self) -> str:
        """The id the coordinator gave; empty: none."""
        return self._machine.member_id

    @property
    def is_leader(self) -> bool:
        """True if this member computed the assignment of its generation."""
        return self._machine.is_leader

    # --- Life ---

    async def start(self) -> None:
        """Begin to join. It goes on in the background; `poll` tells how."""
        if self._task is None:
            self._last_poll_ms = self._clock()
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self, reason: str = "closed", *, leave: bool | None = None) -> None:
        """Stop, and leave the group so that it rebalances at once.

        A static member does not leave: its place is kept for the process that comes back
        under its instance id, until the session ends.

        Args:
            reason: told to the coordinator.
            leave: do, or do not, whatever the kind of member.
        """
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        request = self._machine.leave_request(reason)
        if leave is None:
            leave = self._machine.config.instance_id is None
        if leave and request is not None and self._stub is not None:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await self._stub.LeaveGroup(request, timeout=2.0)
        self._machine.stop(reason)
        self._told.set()
        await self._disconnect()

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

        Calling it counts as progress, and says that what the last call announced as
        `Revoking` has been finished with.

        Args:
            timeout: seconds to wait if nothing has happened.
        Raises:
            FatalError: the group will not have this member.
        """
        self._last_poll_ms = self._clock()
        if self._handed_out is not None:
            self._handed_out = None
            self._machine.revoked()
            self._wake.set()
        if self._machine.phase is Phase.IDLE:
            self._machine.resume()
            self._wake.set()
        if not self._machine.events and timeout > 0:
            self._told.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), timeout)
        self._last_poll_ms = self._clock()
        events, self._machine.events = self._machine.events, []
        revoking = [event for event in events if isinstance(event, Revoking)]
        self._handed_out = revoking[-1] if revoking else None
        if not events:
            self._raise_failure()
        return events

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
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        *,
        atomic: bool = False,
        expected: Mapping[TopicPartition, int] | None = None,
        manifest: bytes = b"",
    ) -> None:
        """Store progress; returns when it is durable.

        Args:
            offsets: the next offset to read, by partition.
            atomic: all partitions or none.
            expected: offsets that must be the ones stored now; -1: none.
            manifest: stored with the group; at most 64 KiB.
        Raises:
            RebalanceInProgress, StaleMember, OffsetMismatch, CommitFailed: it was refused.
            Unavailable: nobody answered for 30 s, with retries.
        """
        request = self._commit_request(offsets, atomic, expected or {}, manifest)
        repeated = False
        pause = BackOff(self._random)
        give_up_ms = self._clock() + int(COMMIT_TIMEOUT_S * 1000)
        while True:
            try:
                stub = await self._connect()
                response = await stub.OffsetCommit(request, timeout=CALL_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                repeated = True
                await self._retry_or_raise(error, pause, give_up_ms)
                continue
            codes = {p.error_code for t in response.topics for p in t.partitions}
            if not codes & _RETRIABLE:
                self._judge_commit(response, offsets, repeated)
                return
            if codes & {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}:
                await self._disconnect()
            if self._clock() >= give_up_ms:
                raise Unavailable(response.error_message)
            await asyncio.sleep(pause.next_s())

    async def committed(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """Stored offsets; -1 where nothing is stored.

        Args:
            partitions: which; None: all that are stored.
        Raises:
            Unavailable: nobody answered for 30 s, with retries.
        """
        by_topic: dict[str, list[int]] = {}
        for partition in partitions or ():
            by_topic.setdefault(partition.topic, []).append(partition.partition)
        if partitions is not None and not by_topic:
            return {}
        request = pb.OffsetFetchRequest(
            group_id=self._machine.config.group_id,
            topics=[
                pb.OffsetFetchRequest.Topic(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic.items()
            ],
            require_stable=True,
        )
        pause = BackOff(self._random)
        give_up_ms = self._clock() + int(COMMIT_TIMEOUT_S * 1000)
        while True:
            try:
                stub = await self._connect()
                response = await stub.OffsetFetch(request, timeout=CALL_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                await self._retry_or_raise(error, pause, give_up_ms)
                continue
            if response.error_code == ErrorCode.NONE:
                return {
                    TopicPartition(t.name, p.partition_index): p.committed_offset
                    for t in response.topics
                    for p in t.partitions
                }
            if response.error_code not in _RETRIABLE or self._clock() >= give_up_ms:
                raise CoordinatorError(response.error_message, ErrorCode.Name(response.error_code))
            await self._disconnect()
            await asyncio.sleep(pause.next_s())

    # --- The protocol ---

    async def _run(self) -> None:
        try:
            while self._machine.phase is not Phase.STOPPED:
                await self._turn()
                self._tell()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  # Ours or an assignor's: the owner must hear.
            self._crash = error
            self._machine.stop(f"failed: {error}")
            self._tell()

    async def _turn(self) -> None:
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
            if error.code() == grpc.StatusCode.INVALID_ARGUMENT:
                raise CoordinatorError(error.details() or "", "INVALID_ARGUMENT") from error
            self._machine.unreachable(self._clock())
            self._tell()
            todo = Next.REDISCOVER
        if todo is Next.REDISCOVER:
            await self._disconnect()
        if todo is Next.GO_ON:
            self._back_off.reset()
        else:
            await self._sleep(self._back_off.next_s())

    async def _join(self) -> Next:
        stub = await self._connect()
        # The initial delay of a new group comes on top where it is the longer one.
        wait_s = self._machine.config.rebalance_timeout_ms / 1000 + JOIN_GRACE_S
        response = await stub.JoinGroup(self._machine.join_request(), timeout=wait_s)
        return self._machine.join_answered(response)

    async def _sync(self) -> Next:
        stub = await self._connect()
        wait_s = self._machine.config.rebalance_timeout_ms / 1000 + JOIN_GRACE_S
        sent_at_ms = self._clock()
        response = await stub.SyncGroup(self._machine.sync_request(), timeout=wait_s)
        return self._machine.sync_answered(response, sent_at_ms, self._clock())

    async def _serve(self) -> Next:
        """Wait for the next beat, for the owner, or for a deadline; then beat."""
        await self._sleep(self._pause_s())
        if await self._look_at_the_clock():
            return Next.GO_ON
        stub = await self._connect()
        sent_at_ms = self._clock()
        wait_s = max(0.1, (self._machine.session_ends_ms - sent_at_ms) / 1000)
        response = await stub.Heartbeat(
            self._machine.heartbeat_request(), timeout=min(wait_s, CALL_TIMEOUT_S)
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
            pause_ms = min(pause_ms, self._last_poll_ms + config.max_poll_interval_ms + 1 - now_ms)
        return max(0.0, pause_ms / 1000)

    async def _look_at_the_clock(self) -> bool:
        """True if the machine has moved on, so that there is nothing to beat for."""
        reason = self._machine.tick(self._clock(), self._last_poll_ms)
        if reason is not None:
            self._tell()
            request = self._machine.leave_request(reason)
            if request is not None:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await (await self._connect()).LeaveGroup(request, timeout=2.0)
            self._machine.left()
        return self._machine.phase not in (Phase.STABLE, Phase.REVOKING)

    async def _sleep(self, seconds: float) -> None:
        """Sleep, or wake when the owner has something to say."""
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)

    def _tell(self) -> None:
        if self._machine.events or self._machine.phase is Phase.STOPPED:
            self._told.set()

    def _raise_failure(self) -> None:
        if self._machine.failure is not None:
            raise self._machine.failure
        if self._crash is not None:
            raise CoordinatorError(f"the member has failed: {self._crash}") from self._crash

    # --- Connections ---

    async def _connect(self) -> Any:
        """A stub of the group's coordinator, found through any bootstrap address."""
        if self._stub is not None:
            return self._stub
        failure: grpc.aio.AioRpcError | None = None
        for address in self._bootstrap:
            channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
            try:
                found = await group_pb2_grpc.GroupCoordinatorStub(channel).FindCoordinator(
                    pb.FindCoordinatorRequest(group_id=self._machine.config.group_id),
                    timeout=CALL_TIMEOUT_S,
                )
            except grpc.aio.AioRpcError as error:
                failure = error
                await channel.close()
                continue
            target = f"{found.host}:{found.port}"
            if found.host and found.port > 0 and target != address:
                await channel.close()
                channel = grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)
            self._channel = channel
            self._stub = group_pb2_grpc.GroupCoordinatorStub(channel)
            return self._stub
        assert failure is not None, "there is no bootstrap address"
        raise failure

    async def _disconnect(self) -> None:
        channel, self._channel, self._stub = self._channel, None, None
        if channel is not None:
            await channel.close()

    async def _retry_or_raise(
        self, error: grpc.aio.AioRpcError, pause: BackOff, give_up_ms: int
    ) -> None:
        if error.code() == grpc.StatusCode.INVALID_ARGUMENT:
            raise CommitFailed(error.details() or "", "INVALID_ARGUMENT") from error
        if self._clock() >= give_up_ms:
            raise Unavailable(f"no coordinator answered: {error.details()}") from error
        await self._disconnect()
        await asyncio.sleep(pause.next_s())

    # --- Commits ---

    def _commit_request(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        atomic: bool,
        expected: Mapping[TopicPartition, int],
        manifest: bytes,
    ) -> pb.OffsetCommitRequest:
        by_topic: dict[str, list[pb.OffsetCommitRequest.Partition]] = {}
        for key, value in offsets.items():
            commit = OffsetAndMetadata(value) if isinstance(value, int) else value
            by_topic.setdefault(key.topic, []).append(
                pb.OffsetCommitRequest.Partition(
                    partition_index=key.partition,
                    committed_offset=commit.offset,
                    committed_leader_epoch=commit.leader_epoch,
                    committed_metadata=commit.metadata,
                    expected_committed_offset=expected.get(key),
                )
            )
        return pb.OffsetCommitRequest(
            group_id=self._machine.config.group_id,
            generation_id=self._machine.generation,
            member_id=self._machine.member_id,
            group_instance_id=self._machine.config.instance_id,
            topics=[
                pb.OffsetCommitRequest.Topic(name=topic, partitions=partitions)
                for topic, partitions in by_topic.items()
            ],
            atomic=atomic,
            manifest=manifest,
        )

    def _judge_commit(
        self,
        response: pb.OffsetCommitResponse,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        repeated: bool,
    ) -> None:
        found: dict[TopicPartition, int] = {}
        refused: set[int] = set()
        for topic in response.topics:
            for p in topic.partitions:
                if p.error_code == ErrorCode.OFFSET_MISMATCH:
                    found[TopicPartition(topic.name, p.partition_index)] = p.committed_offset
                elif p.error_code != ErrorCode.NONE:
                    refused.add(p.error_code)
        if refused:
            code = min(refused)
            name = ErrorCode.Name(ErrorCode.ValueType(code))
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                self._machine.rebalance_noticed(self._clock())
                self._tell()
                self._wake.set()
                raise RebalanceInProgress(response.error_message, name)
            kind = StaleMember if code in _STALE else CommitFailed
            raise kind(response.error_message, name)
        if found:
            wanted = {key: v if isinstance(v, int) else v.offset for key, v in offsets.items()}
            if repeated and all(wanted[key] == offset for key, offset in found.items()):
                return  # The first attempt had arrived after all.
            raise OffsetMismatch(response.error_message, "OFFSET_MISMATCH", found)
