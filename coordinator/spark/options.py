"""The options of `format("consumer_group")`."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from coordinator.assignors import TopicPartition
from coordinator.client.admin import GroupAdmin
from coordinator.client.commit_metadata import parsed
from coordinator.client.log_ends import ends_of
from coordinator.client.offsets import OffsetAndMetadata
from coordinator.dial import Credentials
from coordinator.sources import Source, open_source
from coordinator.sources.base import LogChanged, Snapshot, partitions_of
from coordinator.sources.location import nearest
from coordinator.spark.option_values import EARLIEST, LATEST, starting_offsets, truth, whole_number
from coordinator.spark.ranges import NOTHING_STORED, Range
from coordinator.spark.refusals import BadOption, DataLost

LOGGER = logging.getLogger(__name__)
_NAMES = {
    name.lower(): name
    for name in (
        "coordinator",
        "group",
        "instance",
        "source",
        "topic",
        "maxRowsPerBatch",
        "startingOffsets",
        "failOnDataLoss",
        "allowEmpty",
        "sessionTimeoutMs",
        "rebalanceTimeoutMs",
        "maxPollIntervalMs",
        "tls",
        "tlsCa",
        "tlsCert",
        "tlsKey",
        "tokenFile",
    )
}


@dataclass(frozen=True)
class StreamOptions:
    """Options of a query.

    coordinator: HOST:PORT, or several separated by commas. group: its id. source: see
    `open_source`. topic: its name in the group, if it is not the source's own. instance: a
    static member's id, so that a query that is restarted takes its place back without a
    rebalance. maxRowsPerBatch: of all partitions together. startingOffsets: earliest, latest
    or a JSON object of offsets by partition, where the group has stored none. failOnDataLoss:
    when rows between the stored offset and the first one there are gone, the log ends before
    the stored offset, or a file that was read has shrunk or is gone; else the query warns and
    goes on with what is there. A file that came in front of what was read, or was written over,
    fails it always. allowEmpty: a source without any partition is no mistake.
    sessionTimeoutMs, rebalanceTimeoutMs (which is the hand-over deadline), maxPollIntervalMs
    (the longest batch): see `MemberConfig`. tls, tlsCa, tlsCert, tlsKey, tokenFile: see
    `Credentials`; files as the driver sees them; without them, what its environment says.
    """

    coordinator: str
    group: str
    source: Source
    instance: str | None = None
    max_rows_per_batch: int | None = None
    starting_offsets: str | Mapping[int, int] = EARLIEST
    fail_on_data_loss: bool = True
    allow_empty: bool = False
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 60_000
    max_poll_interval_ms: int = 300_000
    credentials: Credentials = field(default_factory=Credentials.from_environment)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> StreamOptions:
        """Parse options from Spark's strings.

        Raises:
            BadOption: one is missing, unknown, or has an invalid value.
        """
        try:
            return cls._parse(options)
        except ValueError as error:
            raise BadOption(str(error)) from error

    @classmethod
    def _parse(cls, options: Mapping[str, str]) -> StreamOptions:
        given = {name.lower(): value for name, value in options.items()}
        for name, value in given.items():
            if name not in _NAMES:
                raise ValueError(
                    f"there is no option {name}{nearest(name, _NAMES.values())}; the options are "
                    f"{', '.join(_NAMES.values())}"
                )
            if not value.strip():
                raise ValueError(f"the option {_NAMES[name]} is empty")
        for name in ("coordinator", "group", "source"):
            if name not in given:
                raise ValueError(f"the option {name} is missing")
        return cls(
            coordinator=given["coordinator"],
            group=given["group"],
            source=open_source(given["source"], given.get("topic")),
            instance=given.get("instance"),
            max_rows_per_batch=whole_number(given, "maxRowsPerBatch", None, most=2**63 - 1),
            starting_offsets=starting_offsets(given.get("startingoffsets", EARLIEST)),
            fail_on_data_loss=truth(given, "failOnDataLoss", default=True),
            allow_empty=truth(given, "allowEmpty", default=False),
            session_timeout_ms=whole_number(given, "sessionTimeoutMs", 45_000),
            rebalance_timeout_ms=whole_number(given, "rebalanceTimeoutMs", 60_000),
            max_poll_interval_ms=whole_number(given, "maxPollIntervalMs", 300_000),
            credentials=_credentials(given),
        )

    def key(self, partition: int) -> TopicPartition:
        """A partition under the name of its topic in the group."""
        return TopicPartition(self.source.topic, partition)

    def member_settings(self) -> dict[str, Any]:  # Any: the settings of GroupMember.
        """Settings of the query's member."""
        return {
            "assignors": ("cooperative-sticky",),
            "client_id": f"spark-{self.instance or f'query-{socket.gethostname()}-{os.getpid()}'}",
            "credentials": self.credentials,
            "log_ends": ends_of(self.source),
            "instance_id": self.instance,
            "session_timeout_ms": self.session_timeout_ms,
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "max_poll_interval_ms": self.max_poll_interval_ms,
            "heartbeat_interval_ms": max(100, self.session_timeout_ms // 15),
        }

    def partitions(self) -> list[int]:
        """Partitions of the source.

        Raises:
            NothingFound: there is none, and allowEmpty is not set.
            BadOption: startingOffsets names one that does not exist.
        """
        found = partitions_of(self.source, allow_empty=self.allow_empty)
        if not isinstance(self.starting_offsets, str) and found:
            unknown = sorted(set(self.starting_offsets) - set(found))
            if unknown:
                raise BadOption(
                    f"startingOffsets names partition {unknown[0]}, and {self.source.topic} has "
                    f"those from 0 to {found[-1]}"
                )
        return found

    def stored_commits(self) -> dict[int, OffsetAndMetadata]:
        """Committed offsets of the group, fetched without being a member."""
        with GroupAdmin(self.coordinator, credentials=self.credentials) as admin:
            commits = admin.offsets_with_metadata(self.group)
        return {p.partition: c for p, c in commits.items() if p.topic == self.source.topic}

    def begin(
        self, partition: int, commit: OffsetAndMetadata, snapshot: Snapshot
    ) -> tuple[Range, str]:
        """Begin of a partition, and the mark of the rows before it.

        Args:
            commit: committed offset and metadata.
        Raises:
            LogChanged: rows that were read have changed or are gone.
            DataLost: see `position`.
        """
        mark = parsed(commit.metadata).mark
        is_same = self.check(snapshot, mark)
        position = self.position(partition, {partition: commit.offset})
        return position, mark if mark and is_same else snapshot.mark(position.begin)

    def check(self, snapshot: Snapshot, mark: str) -> bool:
        """Compare a partition with a mark; False if rows are gone and failOnDataLoss is not set.

        Raises:
            LogChanged: rows are gone, or offsets would mean other rows.
        """
        try:
            snapshot.check(mark)
        except LogChanged as error:
            if self.fail_on_data_loss or not error.rows_are_gone:
                raise
            LOGGER.warning("%s (failOnDataLoss=false goes on with what is there)", error)
            return False
        return True

    def position(self, partition: int, stored: Mapping[int, int]) -> Range:
        """Begin of a partition, as an empty range.

        Raises:
            DataLost: rows that were not read yet are gone.
        """
        offset = stored.get(partition, NOTHING_STORED)
        first, end = self.source.begin_offset(partition), self.source.end_offset(partition)
        if offset == NOTHING_STORED:
            at = self._start(partition, first, end)
        else:
            at = min(max(offset, first), end)
            if at != offset and self.fail_on_data_loss:
                raise DataLost(
                    f"partition {partition}: offset {offset} is stored, and its rows are those "
                    f"from {first} to {end}; failOnDataLoss=false goes on at {at}"
                )
        return Range(at, at, offset)

    def _start(self, partition: int, first: int, end: int) -> int:
        if isinstance(self.starting_offsets, str):
            return end if self.starting_offsets == LATEST else first
        return min(max(self.starting_offsets.get(partition, first), first), end)


def _credentials(given: Mapping[str, str]) -> Credentials:
    told = Credentials.from_environment()
    return replace(
        told,
        tls=truth(given, "tls", default=told.tls),
        ca_file=given.get("tlsca", told.ca_file),
        cert_file=given.get("tlscert", told.cert_file),
        key_file=given.get("tlskey", told.key_file),
        token_file=given.get("tokenfile", told.token_file),
    )
