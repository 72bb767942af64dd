"""The options of `format("consumer_group")`."""

from __future__ import annotations

import difflib
import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from coordinator.assignors import TopicPartition
from coordinator.client.admin import GroupAdmin
from coordinator.client.log_ends import ends_of
from coordinator.dial import Credentials
from coordinator.sources import Source, open_source
from coordinator.spark.ranges import NOTHING_STORED, Range

EARLIEST, LATEST = "earliest", "latest"
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


class DataLost(Exception):
    """The stored offset is not between the ends of the partition: rows have gone."""


@dataclass(frozen=True)
class StreamOptions:
    """What a query was told.

    coordinator: HOST:PORT, or several with commas between. group: its id. source: see
    `open_source`. topic: its name in the group, if it is not the source's own. instance: a
    static member's id, so that a query that is restarted takes its place back without a
    rebalance. maxRowsPerBatch: of all partitions together. startingOffsets: earliest, latest
    or a JSON object of offsets by partition, where the group has stored none. failOnDataLoss:
    when rows between the stored offset and the first one there are gone, or the log ends
    before the stored offset; else the query goes on with what is there.
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
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 60_000
    max_poll_interval_ms: int = 300_000
    credentials: Credentials = field(default_factory=Credentials.from_environment)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> StreamOptions:
        """From Spark's strings.

        Raises:
            ValueError: an option is missing, unknown, or cannot be read.
        """
        given = {name.lower(): value for name, value in options.items()}
        for name in given:
            if name not in _NAMES:
                close = difflib.get_close_matches(name, _NAMES, n=1)
                hint = f"; did you mean {_NAMES[close[0]]}?" if close else ""
                raise ValueError(f"there is no option {name}{hint}")
        for name in ("coordinator", "group", "source"):
            if not given.get(name):
                raise ValueError(f"the option {name} is missing")
        rows = given.get("maxrowsperbatch")
        starting = given.get("startingoffsets", EARLIEST)
        return cls(
            coordinator=given["coordinator"],
            group=given["group"],
            source=open_source(given["source"], given.get("topic")),
            instance=given.get("instance"),
            max_rows_per_batch=None if rows is None else int(rows),
            starting_offsets=starting
            if starting in (EARLIEST, LATEST)
            else {int(p): int(offset) for p, offset in json.loads(starting).items()},
            fail_on_data_loss=given.get("failondataloss", "true").lower() == "true",
            session_timeout_ms=int(given.get("sessiontimeoutms", 45_000)),
            rebalance_timeout_ms=int(given.get("rebalancetimeoutms", 60_000)),
            max_poll_interval_ms=int(given.get("maxpollintervalms", 300_000)),
            credentials=_credentials(given),
        )

    def key(self, partition: int) -> TopicPartition:
        """A partition as the group knows it."""
        return TopicPartition(self.source.topic, partition)

    def member_settings(self) -> dict[str, Any]:  # Any: the settings of GroupMember.
        """Of the query's member."""
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

    def stored_offsets(self) -> dict[int, int]:
        """The group's, for one who is no member."""
        with GroupAdmin(self.coordinator, credentials=self.credentials) as admin:
            offsets = admin.offsets(self.group)
        return {p.partition: o for p, o in offsets.items() if p.topic == self.source.topic}

    def position(self, partition: int, stored: Mapping[int, int]) -> Range:
        """Where to begin in a partition; `end` is the same.

        Raises:
            DataLost: rows that were not read yet have gone.
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
        tls=given.get("tls", str(told.tls)).lower() == "true",
        ca_file=given.get("tlsca", told.ca_file),
        cert_file=given.get("tlscert", told.cert_file),
        key_file=given.get("tlskey", told.key_file),
        token_file=given.get("tokenfile", told.token_file),
    )
