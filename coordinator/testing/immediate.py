"""A host that carries out a driver's effects at once, on a log in memory and a clock of its own.

For coordinators on virtual time, tests of the driver and benchmarks of decisions: between two steps
there is only the log, whose writes can be held back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from coordinator.core.sessions.plan.allocator import plan
from coordinator.core.values.ids import ShardId
from coordinator.runtime import codec
from coordinator.runtime.jobs import build, job_failed
from coordinator.shard.driver import Patience, ShardDriver
from coordinator.shard.effects import (
    Build,
    Compute,
    Done,
    DriverInput,
    HostEffects,
    Job,
    Load,
    TakeOver,
    WriteEntry,
    WriteSnapshot,
)
from coordinator.shard.inputs import Tick
from coordinator.shard.shard import Shard
from coordinator.shard.snapshots import Encoded
from coordinator.storage.log import Entry, Fence, Loaded, ShardSnapshot
from coordinator.storage.memory import MemoryLog
from timer.clock import Clock

SHARD = ShardId(0)


class ImmediateHost:
    """Host of one shard. It is `Timed`, so a `VirtualClock` can be advanced with it.

    Args:
        new_shard: makes an empty shard at the clock's time.
        on_effects: called with all effects, in the order in which they are carried out.
    """

    def __init__(
        self,
        log: MemoryLog,
        clock: Clock,
        new_shard: Callable[[], Shard],
        on_effects: Callable[[HostEffects], None],
        patience: Patience,
    ) -> None:
        self.driver = ShardDriver(SHARD, patience)
        self._log = log
        self._clock = clock
        self._new_shard = new_shard
        self._on_effects = on_effects
        self._events: deque[DriverInput] = deque()
        self._wake_at_ms: int | None = None
        self._is_holding = False
        self.held: list[WriteEntry] = []
        """Entries that wait for `release`."""
        self._fence = Fence(SHARD, 0)
        self._sequence = self._next_offset = 0  # Position after the last acknowledged entry.

    def handle(self, event: DriverInput) -> None:
        """Give the driver an input, and the results of its jobs, until there are no more."""
        self._events.append(event)
        while self._events:
            effects = self.driver.handle(self._events.popleft(), self._clock.now_ms())
            self._wake_at_ms = effects.wake_at_ms
            self._on_effects(effects)
            for job in effects.jobs:
                if self._is_holding and isinstance(job, WriteEntry):
                    self.held.append(job)
                else:
                    self._events.append(self._do(job))

    def next_expiration_ms(self) -> int | None:
        """Time at which the driver next has something to do; None: it waits for inputs only."""
        return self._wake_at_ms

    def advance_to(self, now_ms: int) -> None:  # The clock has this time.
        """Run the driver's due work."""
        self.handle(Tick())

    def hold(self) -> None:
        """Hold all entries back until `release`."""
        self._is_holding = True

    def release(self, *, hold_on: bool = False) -> None:
        """Write the held entries. With `hold_on`, entries that follow from that are held again."""
        self._is_holding = hold_on
        held, self.held = self.held, []
        for job in held:
            self.handle(self._do(job))

    def stored(self) -> Loaded:
        """Load the log."""
        return self._log.load_now(self._fence)

    def take_snapshot(self) -> None:
        """Replace the log's entries by a snapshot."""
        assert self.driver.shard is not None, "there is no shard"
        records = self.driver.shard.records()
        self._do(WriteSnapshot(self._fence, self._sequence, self._next_offset, records))

    # --- Inside ---

    def _do(self, job: Job) -> DriverInput:
        try:
            return Done(job, self._result_of(job))
        except Exception as error:  # noqa: BLE001  # Told to the driver, whatever it is.
            return job_failed(job, error)

    def _result_of(self, job: Job) -> object:
        match job:
            case TakeOver():
                self._fence = self._log.fence_now(job.shard_id, job.leader_epoch)
                return self._fence
            case Load():
                return self._log.load_now(job.fence, job.after)
            case Build():
                standby = build(self._new_shard(), job.loaded, self._clock.now_ms())
                self._sequence, self._next_offset = standby.sequence, standby.next_offset
                return standby
            case WriteEntry():
                return self._write(job)
            case Compute():
                return plan(job.ask.state)
            case WriteSnapshot():
                encoded = Encoded(job.records, codec.encode)
                snapshot = ShardSnapshot(job.sequence, job.next_offset, encoded)
                self._log.write_snapshot_now(job.fence, snapshot)
                return encoded.size_bytes

    def _write(self, job: WriteEntry) -> tuple[bytes, ...]:
        append = job.append
        records = tuple(map(codec.encode, append.records))
        entry = Entry(append.sequence, job.fence.fence_epoch, append.base_offset, records)
        self._log.append_now(job.fence, entry)
        self._sequence, self._next_offset = append.sequence, append.base_offset + len(records)
        return records
