"""Members in Spark executors: each task is one member, as long as there is work.

A task's Python worker holds the member, and a worker of it runs the task's work
(`coordinator.sources.group.consume`). Spark may retry the task, on another executor
or the same one; the new attempt joins again. A cancelled task is killed after two seconds without
any cleanup: the session timeout notices, or the lease, and not a LeaveGroup. When an executor ends,
its Python workers outlive it for as long as the machine lets them, and leave.

gRPC runs in these forked workers as long as GRPC_ENABLE_FORK_SUPPORT is not set.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import grpc

from coordinator.client.errors import FatalError
from coordinator.client.group_address import GroupAddress
from coordinator.client.member.blocking import BlockingMember
from coordinator.client.settings.setting import GroupProtocol
from coordinator.client.worker.setup import DEFAULT_ASSIGNOR, FALLBACK_ASSIGNOR
from coordinator.dial import Credentials
from coordinator.operator.admin import GroupAdmin
from coordinator.sources.base import Source, partitions_of
from coordinator.sources.group import Summary, Work, ends_of, in_group
from coordinator.sources.group import consume as consume_here
from coordinator.spark.logs import log_like_spark
from coordinator.spark.refusals import with_plain_errors
from coordinator.spark.worker_imports import ImportedInWorkers

LOGGER = logging.getLogger(__name__)
FENCED = "FENCED_INSTANCE_ID"
_SUMMARY = "member_id string, rows long, commits long, rebalances long"
LOOK_S = 1.0
"""Seconds between two checks of a waiting attempt whether its place is free."""


def run_members(
    spark: Any,  # Any: a pyspark SparkSession, classic or Connect; pyspark is optional.
    members: int,
    *,
    bootstrap: str,
    group_id: str,
    source: Source,
    make_work: Callable[[str], Work],
    member_settings: dict[str, Any] | None = None,
    static: bool = False,
    protocol: GroupProtocol = "classic",
    **consume_settings: Any,
) -> list[Summary]:
    """Run a job of `members` tasks, each a member of the group, until the source is done.

    Args:
        members: their number; those beyond the cluster's slots wait for one.
        make_work: called in the worker with the member's client id. It is pickled.
        member_settings: for `BlockingMember`.
            consume_settings: for `sources.group.consume`.
        static: members are static; their instance ids, or names in a session group, are the
            numbers of their slots.
        protocol: "classic", or "session": the coordinator assigns, under leases.
    Returns:
        Summary of each attempt that survived.
    Raises:
        pyspark's error: a task failed as often as Spark retries.
    """
    slots = _Slots(
        bootstrap, group_id, source, make_work, member_settings or {}, static, protocol,
        consume_settings,
    )  # fmt: skip
    # A data frame, since Spark Connect has no sparkContext: a partition, and so a task, for each.
    rows = spark.range(0, members, 1, members).mapInArrow(slots, _SUMMARY).collect()
    return [Summary(**row.asDict()) for row in rows]


def consume(
    spark: Any,  # Any: a pyspark SparkSession, classic or Connect; pyspark is optional.
    members: int,
    handle: Callable[[int, Any], None],
    *,
    bootstrap: str,
    group_id: str,
    source: Source,
    forever: bool = True,
    member_settings: dict[str, Any] | None = None,
    protocol: GroupProtocol = "classic",
    **consume_settings: Any,
) -> list[Summary]:
    """Process a group's partitions in executors: a job of `members` tasks, at least once.

    Each task is a static member under its slot's number. When Spark runs a slot again (its
    worker or executor died, or was slow), the new attempt takes the member's place and partitions
    over without a rebalance, and the old one, if it still runs, is fenced and waits.

    Args:
        members: their number; those beyond the cluster's slots wait for one.
        handle: called in the worker with a partition and an Arrow record batch of it. It is
            pickled. Offsets of handled rows are committed every `rows_per_commit` rows; after a
            crash the rows since the last commit are handled again.
        forever: partitions grow; else the job ends when all are committed to their ends.
        member_settings: for `BlockingMember`.
            consume_settings: for `sources.group.consume`, such as `topics_refresh_ms`, the time
            within which new partitions are found.
        protocol: "classic", or "session": a slot that Spark runs again waits until the lease of
            its former attempt has ended, then has its partitions.
    Returns:
        Summary of each attempt that survived.
    Raises:
        pyspark's error: a task failed as often as Spark retries.
    """
    return run_members(
        spark,
        members,
        bootstrap=bootstrap,
        group_id=group_id,
        source=source,
        make_work=lambda _: _Handling(handle),
        member_settings=member_settings,
        static=True,
        protocol=protocol,
        forever=forever,
        **consume_settings,
    )


def run_slot(
    bootstrap: str,
    group_id: str,
    source: Source,
    make_work: Callable[[], Work],
    settings: dict[str, Any],
    protocol: GroupProtocol = "classic",
    **consume_settings: Any,
) -> Summary:
    """Run the member of a slot until the source is done, or for ever.

    Spark may run a slot twice at once (speculation, or an executor that it has lost). The later
    attempt has the place; the earlier one waits, and takes the place when it is free again. If it
    failed instead, Spark would run it again, and it would fence the attempt that works.

    Args:
        settings: for `BlockingMember`. consume_settings: for `sources.group.consume`.
    """
    address = GroupAddress(bootstrap, group_id, settings.get("credentials"))
    source = in_group(source, address)
    allow_empty = consume_settings.get("allow_empty", False)
    topics = {source.topic: len(partitions_of(source, allow_empty=allow_empty))}
    if protocol == "session":
        # The later attempt waits for the name, and inherits when the earlier one has ended.
        with BlockingMember(bootstrap, group_id, topics, protocol="session", **settings) as leased:
            return consume_here(leased, source, make_work(), **consume_settings)
    settings = {"log_ends": ends_of(source), **settings}
    if "assignors" not in settings:
        # As workers have it, to share a group with them and with queries.
        settings["assignors"] = (DEFAULT_ASSIGNOR,)
        settings.setdefault("fallback_assignor", FALLBACK_ASSIGNOR)
    while True:
        try:
            with BlockingMember(bootstrap, group_id, topics, **settings) as member:
                return consume_here(member, source, make_work(), **consume_settings)
        except FatalError as error:
            if error.code != FENCED:
                raise
            LOGGER.warning("another attempt has the place of %s", settings["instance_id"])
            _wait_until_free(
                bootstrap, group_id, settings["instance_id"], settings.get("credentials")
            )


def _wait_until_free(
    bootstrap: str, group_id: str, instance_id: str, credentials: Credentials | None
) -> None:
    while True:
        time.sleep(LOOK_S)
        try:
            with GroupAdmin(bootstrap, credentials=credentials) as admin:
                members = admin.describe_group(group_id).members
        except (grpc.RpcError, LookupError):
            continue  # Unknown: do not take the place.
        if all(member.group_instance_id != instance_id for member in members):
            return


@dataclass(frozen=True)
class _Slots(metaclass=ImportedInWorkers):
    """Function of a task, which runs the member of its slot; see `run_members`."""

    bootstrap: str
    group_id: str
    source: Source
    make_work: Callable[[str], Work]
    member_settings: Mapping[str, Any]
    static: bool
    protocol: GroupProtocol
    consume_settings: Mapping[str, Any]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Run the slots that the rows name; a row for each of them, of `_SUMMARY`."""
        import pyarrow as pa

        log_like_spark()
        _leave_with_executor()
        for batch in batches:
            for slot in batch["id"].to_pylist():
                with with_plain_errors():
                    summary = self._run(slot)
                yield pa.RecordBatch.from_pylist([asdict(summary)])

    def _run(self, slot: int) -> Summary:
        client_id = f"spark-{executor_id()}-{slot}"
        name = "member_name" if self.protocol == "session" else "instance_id"
        settings = {
            "client_id": client_id,
            name: f"slot-{slot}" if self.static else None,
            **self.member_settings,
        }
        return run_slot(
            self.bootstrap,
            self.group_id,
            self.source,
            lambda: self.make_work(client_id),
            settings,
            self.protocol,
            **self.consume_settings,
        )


def _leave_with_executor() -> None:
    """Have the member leave when Spark's daemon says with SIGHUP that the executor has ended."""
    signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))


class _Handling(metaclass=ImportedInWorkers):
    """`Work` without results to store: it only calls the handler."""

    def __init__(self, handle: Callable[[int, Any], None]) -> None:
        self._handle = handle

    def resume(self, partition: int, offset: int) -> None:
        pass

    def add(self, partition: int, batch: Any) -> None:
        self._handle(partition, batch)

    def store(self, partition: int, offset: int) -> None:
        pass


def executor_id() -> str:
    """Spark's id of the executor that this Python worker belongs to; elsewhere host and pid.

    Spark does not pass it to Python workers. They are forked by a daemon whose parent is
    the executor's JVM, and that was started with `--executor-id`.
    """
    try:
        daemon = os.getppid()
        status = Path(f"/proc/{daemon}/status").read_text()
        jvm = next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:"))
        words = Path(f"/proc/{jvm}/cmdline").read_text().split("\0")
        return words[words.index("--executor-id") + 1]
    except (OSError, ValueError, StopIteration, IndexError):
        return f"{socket.gethostname()}-{os.getpid()}"
