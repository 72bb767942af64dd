"""A worker: handlers for the partitions that a group assigns to this process.

    worker = Worker("127.0.0.1:7400", "billing", topics={"invoices": 12})

    @worker.handler                         # async def: a task each; def: a thread each
    async def handle(p: Partition) -> None:
        async for row in rows_of(p.number, p.position):
            await work(row)
            await p.commit(row.offset + 1)  # ends the handler here once p is being revoked

    worker.run()                            # blocks; SIGTERM and SIGINT drain and leave

| file | holds |
|---|---|
| `worker.py` | the face: registration, run, serve, stop |
| `partition.py`, `sql_offsets.py` | what handlers are given; offsets in a table of the user's |
| `core.py` | all decisions, without I/O, on `held_partition.py`; they result in `actions.py` |
| `driver.py` | carries them out on the protocol's loop, from a start to its end |
| `executor.py` | calls handlers and hooks: as tasks, or in threads; watches their loop |
| `setup.py` | what a driver is made from: settings, functions, the maker of its members |
| `environment.py` | the seam for tests: loop, clock, connections, threads |
| `handlers.py` | what was registered, and what is done when one fails |
| `user_functions.py` | which partitions there are, and where they begin |
| `adapters.py` | what is needed of a source of rows; what adapters of handlers need |
| `state.py` | what a worker shows: its state and its metrics |

Hooks are `async def` functions of a `Partition` or `def` functions of a `BlockingPartition`, and
run beside the protocol as handlers do:

| hook | called | if it raises |
|---|---|---|
| `warm` | after the assignment, before the handler is first called | the error policy decides |
| `warm` | mode warm or copy of a session group: before the grant | logged; it is refused |
| `drain` | when the partition is to be given back, beside the handler | logged |
| `lost` | when a holding ended without being given back | logged |

`drain` is called if the handler was called at all, when the group or the worker's stop asks for the
partition; it is given back when both have ended. `lost` follows a partition that was lost, passed
its deadline or was released after a failure; the handler has been told to end by then.
"""

from coordinator.client.worker.environment import Environment
from coordinator.client.worker.handlers import (
    HandlerCancelled,
    HandlerStalled,
    HandlerStillRuns,
    PartitionRevoked,
    WrongHandler,
)
from coordinator.client.worker.partition import BlockingPartition, Partition
from coordinator.client.worker.sql_offsets import OFFSETS_TABLE
from coordinator.client.worker.state import LeftOver, PartitionState, WorkerState
from coordinator.client.worker.worker import Worker

__all__ = [
    "OFFSETS_TABLE",
    "BlockingPartition",
    "Environment",
    "HandlerCancelled",
    "HandlerStalled",
    "HandlerStillRuns",
    "LeftOver",
    "Partition",
    "PartitionRevoked",
    "PartitionState",
    "Worker",
    "WorkerState",
    "WrongHandler",
]
