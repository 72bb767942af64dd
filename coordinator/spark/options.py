"""The options of `format("consumer_group")`."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from urllib.parse import urlencode

from coordinator.assignors import TopicPartition
from coordinator.client.errors import CommitFailed
from coordinator.client.group_address import GroupAddress
from coordinator.client.offsets import OffsetAndMetadata
from coordinator.client.settings.setting import GroupProtocol
from coordinator.client.settings.typed import MemberSettings
from coordinator.client.worker.setup import DEFAULT_ASSIGNOR, FALLBACK_ASSIGNOR
from coordinator.client.worker.user_functions import TOPICS_REFRESH_MS
from coordinator.commit_metadata import of_reader, parsed
from coordinator.dial import Credentials
from coordinator.operator.admin import GroupAdmin
from coordinator.sources import Source, open_source
from coordinator.sources.base import LogChanged, Snapshot, partitions_of, snapshots_of
from coordinator.sources.formats.base import FILES, ROWS
from coordinator.sources.group import ends_of, in_group
from coordinator.sources.group.retrying import MISMATCH, RETRIABLE_REFUSALS, asked
from coordinator.sources.location import FILE_SETTINGS, nearest
from coordinator.spark.option_values import (
    EARLIEST,
    LATEST,
    offsets_of_option,
    truth,
    whole_number,
)
from coordinator.spark.ranges import NOTHING_STORED, OffsetRange
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
        "maxFilesPerTrigger",
        "minPartitions",
        "startingOffsets",
        "endingOffsets",
        "failOnDataLoss",
        "allowEmpty",
        "availableNowRest",
        "topicsRefreshMs",
        "protocol",
        "sessionTimeoutMs",
        "rebalanceTimeoutMs",
        "maxPollIntervalMs",
        "tls",
        "tlsCa",
        "tlsCert",
        "tlsKey",
        "tokenFile",
        "proxy",
        *FILE_SETTINGS,
    )
}
_ALIASES = {
    "kafka.bootstrap.servers": "source",
    "subscribe": "topic",
    "maxoffsetspertrigger": "maxRowsPerBatch",
    "kafka.group.id": "group",
}
"""Names of Spark's Kafka source. The first two together name a Kafka topic."""
_REFUSED = {
    "subscribepattern": "a query reads one topic: name it with subscribe",
    "assign": "the coordinator assigns partitions: use subscribe",
    "groupidprefix": "name the group with the option group",
    "startingtimestamp": "use groups reset-offsets --to-datetime before the query starts",
    "startingoffsetsbytimestamp": "use groups reset-offsets --to-datetime before the query starts",
    "endingtimestamp": "use endingOffsets",
    "endingoffsetsbytimestamp": "use endingOffsets",
    "maxtriggerdelay": "a batch begins as soon as there are rows",
    "minoffsetspertrigger": "a batch begins as soon as there are rows",
    "includeheaders": "rows of Kafka always have their headers",
}
"""Options of Spark's Kafka source that would have no effect, and why."""
_KAFKA = "kafka."
T = TypeVar("T")
CLASSIC: GroupProtocol = "classic"
SESSION: GroupProtocol = "session"
LEAVE, WAIT, FAIL = "leave", "wait", "fail"
MOST_TASKS = 10_000
"""Limit of minPartitions: each is a task of every batch."""


@dataclass(frozen=True)
class StreamOptions:
    """Options of a query.

    coordinator: HOST:PORT, or several separated by commas. group: its id. source: see
    `open_source`. topic: its name in the group, if it is not the source's own. instance: a
    static member's id, so that a query that is restarted takes its place back without a
    rebalance. minPartitions: number of tasks that rows are split among, if there are so many rows;
    by default there is a task for each partition.
    maxRowsPerBatch: of all partitions together; where offsets count files, maxFilesPerTrigger.
    startingOffsets: earliest, latest or a JSON object
    of offsets by partition (-2: earliest, -1: latest), where the group has stored none; with
    latest, a group that has stored none at all stores where the log ends, and partitions that
    appear later are read from their first row. topicsRefreshMs: time within which partitions that
    appear are found and shared out, 10000 by default; batches are not interrupted. endingOffsets:
    the same for the end of a batch read; latest by default. failOnDataLoss:
    when rows between the stored offset and the first one there are gone, the log ends before
    the stored offset, or a file or a partition that was read has shrunk or is gone; else the query
    warns and goes on with what is there. A file that was written over fails it always. allowEmpty:
    a source without any partition is no mistake. availableNowRest: what a query with the trigger
    AvailableNow does about rows of partitions that other members own: leave (them to their owners,
    the default), wait until they are committed, taking over what becomes free, or fail.
    filePartitions: of directories, see `sources.location.file_log`.
    protocol: "classic", or "session": the coordinator assigns, under leases of sessionTimeoutMs,
    and a partition goes from one query to another between two batches of each.
    sessionTimeoutMs, rebalanceTimeoutMs (time within which a batch under way gives partitions back;
    in session groups maxPollIntervalMs by default), maxPollIntervalMs (the longest batch; whoever
    takes longer loses its partitions): see `MemberSettings`. tls, tlsCa, tlsCert, tlsKey,
    tokenFile, proxy: see `Credentials`; files as the driver sees them; without them, what its
    environment says.

    Names of Spark's Kafka source work too: kafka.bootstrap.servers with subscribe for source (other
    kafka.* options are librdkafka's settings), subscribe for topic, maxOffsetsPerTrigger for
    maxRowsPerBatch, kafka.group.id for group, and offsets in Kafka's form with the topic around
    them. Options of it that would have no effect are refused.
    """

    coordinator: str
    group: str
    source: Source
    instance: str | None = None
    max_in_batch: int | None = None
    min_partitions: int | None = None
    starting_offsets: str | Mapping[int, int] = EARLIEST
    ending_offsets: str | Mapping[int, int] = LATEST
    fail_on_data_loss: bool = True
    allow_empty: bool = False
    available_now_rest: str = LEAVE
    topics_refresh_ms: int = TOPICS_REFRESH_MS
    protocol: GroupProtocol = CLASSIC
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
        named = _in_our_names({name.lower(): value for name, value in options.items()})
        for name, value in named.items():
            if name in _REFUSED:
                raise ValueError(f"the option {name} is not for consumer_group: {_REFUSED[name]}")
            if name not in _NAMES:
                raise ValueError(
                    f"there is no option {name}{nearest(name, _NAMES.values())}; the options are "
                    f"{', '.join(_NAMES.values())}"
                )
            if not value.strip():
                raise ValueError(f"the option {_NAMES[name]} is empty")
        for name in ("coordinator", "group", "source"):
            if name not in named:
                raise ValueError(f"the option {name} is missing")
        settings = {name: named[name.lower()] for name in FILE_SETTINGS if name.lower() in named}
        source = open_source(named["source"], named.get("topic"), settings)
        topics = (source.topic, getattr(source, "kafka_topic", source.topic))
        rest = named.get("availablenowrest", LEAVE).strip().lower()
        if rest not in (LEAVE, WAIT, FAIL):
            raise ValueError(
                f"availableNowRest={rest[:80]}: expected is {LEAVE}, {WAIT} or {FAIL}"
                f"{nearest(rest[:80], (LEAVE, WAIT, FAIL))}"
            )
        protocol = _protocol(named.get("protocol", CLASSIC))
        longest_ms = whole_number(named, "maxPollIntervalMs", 300_000)
        handover_ms = longest_ms if protocol == SESSION else 60_000
        starting, ending = (
            named.get("startingoffsets", EARLIEST),
            named.get("endingoffsets", LATEST),
        )
        return cls(
            coordinator=named["coordinator"],
            group=named["group"],
            source=source,
            instance=named.get("instance"),
            max_in_batch=_most_in_batch(named, source),
            min_partitions=whole_number(named, "minPartitions", None, most=MOST_TASKS),
            starting_offsets=offsets_of_option(
                starting, "startingOffsets", (EARLIEST, LATEST), topics
            ),
            ending_offsets=offsets_of_option(ending, "endingOffsets", (LATEST,), topics),
            available_now_rest=rest,
            fail_on_data_loss=truth(named, "failOnDataLoss", default=True),
            allow_empty=truth(named, "allowEmpty", default=False),
            topics_refresh_ms=whole_number(named, "topicsRefreshMs", TOPICS_REFRESH_MS),
            protocol=protocol,
            session_timeout_ms=whole_number(named, "sessionTimeoutMs", 45_000),
            rebalance_timeout_ms=whole_number(named, "rebalanceTimeoutMs", handover_ms),
            max_poll_interval_ms=longest_ms,
            credentials=_credentials(named),
        )

    def in_group(self) -> StreamOptions:
        """The same options, with files in the order that the group has recorded."""
        source = in_group(self.source, GroupAddress(self.coordinator, self.group, self.credentials))
        return replace(self, source=source)

    def reading(self, schema: Any) -> StreamOptions:
        """The same options, with rows read by a pyarrow.Schema."""
        return replace(self, source=self.source.with_schema(schema))

    def check_stream(self) -> None:
        """Refuse what is for batch reads alone.

        Raises:
            BadOption: an end is told.
        """
        if self.ending_offsets != LATEST:
            raise BadOption("endingOffsets is for batch reads: a stream has no end")

    def key(self, partition: int) -> TopicPartition:
        """A partition under the name of its topic in the group."""
        return TopicPartition(self.source.topic, partition)

    def member_settings(self) -> MemberSettings:
        """Settings of the query's member."""
        client_id = f"spark-{self.instance or f'query-{socket.gethostname()}-{os.getpid()}'}"
        if self.protocol == SESSION:
            return {
                "client_id": client_id,
                "credentials": self.credentials,
                "member_name": self.instance,
                "drain_ms": self.rebalance_timeout_ms,
                "give_back": "poll",
                "wishes": {
                    "lease_ms": self.session_timeout_ms,
                    "mode": "warm",
                    "drain_timeout_ms": self.rebalance_timeout_ms,
                    "max_idle_ms": self.max_poll_interval_ms,
                    "on_stall": "release",
                },
            }
        return {
            "assignors": (DEFAULT_ASSIGNOR,),
            "fallback_assignor": FALLBACK_ASSIGNOR,
            "client_id": client_id,
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
            BadOption: startingOffsets or endingOffsets names one that does not exist.
        """
        numbers = partitions_of(self.source, allow_empty=self.allow_empty)
        for name, offsets in (
            ("startingOffsets", self.starting_offsets),
            ("endingOffsets", self.ending_offsets),
        ):
            unknown = [] if isinstance(offsets, str) else sorted(set(offsets) - set(numbers))
            if unknown and numbers:
                raise BadOption(
                    f"{name} names partition {unknown[0]}, and {self.source.topic} has those from "
                    f"0 to {numbers[-1]}"
                )
        return numbers

    def stored_commits(self) -> dict[int, OffsetAndMetadata]:
        """Committed offsets of the group, fetched without being a member.

        Raises:
            CoordinatorError: see `asked`.
        """
        commits = self._asked(lambda admin: admin.offsets_with_metadata(self.group))
        return {p.partition: c for p, c in commits.items() if p.topic == self.source.topic}

    def begun(
        self,
        numbers: Sequence[int],
        stored: Mapping[int, OffsetAndMetadata],
        *,
        may_store: bool,
    ) -> StreamOptions:
        """The same options for a group whose begin is decided: it has stored offsets.

        "latest" is one moment for the whole group, so it is stored for all partitions at once,
        before any is read: else a partition without new rows would begin later with its next
        owner, and one that appears would lose its first rows.

        Args:
            numbers: the partitions. stored: their commits.
            may_store: nothing was read yet, so the begin may be stored.
        Raises:
            DataLost: the group has read a partition that is gone, and failOnDataLoss is set.
        """
        gone = sorted(p for p, commit in stored.items() if commit.offset > 0 and p not in numbers)
        if gone:
            reason = (
                f"partition {gone[0]} of {self.source.topic} is gone: offset "
                f"{stored[gone[0]].offset} is stored, and there are {len(numbers)} partitions"
            )
            if self.fail_on_data_loss:
                raise DataLost(f"{reason}; failOnDataLoss=false goes on without it")
            LOGGER.warning("%s (failOnDataLoss=false goes on without it)", reason)
        is_latest = self.starting_offsets == LATEST or (
            not isinstance(self.starting_offsets, str) and -1 in self.starting_offsets.values()
        )
        if not is_latest or not (stored or may_store):
            return self
        if not stored and numbers:
            self._store_begin(numbers)
        elif self.starting_offsets != LATEST:
            return self  # Partitions without an offset are begun where it says.
        others = sorted(set(numbers) - stored.keys()) if stored else []
        if others:
            LOGGER.warning(
                "startingOffsets=latest: group %s has stored offsets of %s, and none of its "
                "partitions %s: they are read from their first row, as those that appear later; "
                "to begin elsewhere, stop the query and set them with groups reset-offsets",
                self.group,
                self.source.topic,
                ", ".join(map(str, others[:20])) + (", …" if others[20:] else ""),
            )
        return replace(self, starting_offsets=EARLIEST)

    def _store_begin(self, numbers: Sequence[int]) -> None:
        """Store where the group begins; nothing, if another query has done so meanwhile."""
        begins, metadata = {}, {}
        for number, snapshot in snapshots_of(self.source, numbers).items():
            at = self.position(number, NOTHING_STORED, snapshot).begin
            begins[self.key(number)] = at
            metadata[self.key(number)] = of_reader(snapshot.mark(at))
        expected = dict.fromkeys(begins, NOTHING_STORED)

        def store(admin: GroupAdmin) -> set[str]:
            codes = admin.commit(self.group, begins, expected=expected, metadata=metadata).values()
            if not RETRIABLE_REFUSALS.isdisjoint(codes):
                raise LookupError(f"the begin is not stored: {', '.join(sorted(set(codes)))}")
            return set(codes)

        refusals = self._asked(store) - {MISMATCH}
        if refusals:
            raise CommitFailed(f"the begin of group {self.group} is not stored", min(refusals))

    def _asked(self, ask: Callable[[GroupAdmin], T]) -> T:
        return asked(self.coordinator, self.group, self.credentials, ask)

    def begin(
        self, partition: int, commit: OffsetAndMetadata, snapshot: Snapshot
    ) -> tuple[OffsetRange, str]:
        """Begin of a partition, and the mark of the rows before it.

        Args:
            commit: committed offset and metadata.
        Raises:
            LogChanged: rows that were read have changed or are gone.
            DataLost: see `position`.
        """
        mark = parsed(commit.metadata).mark
        is_same = self.check(snapshot, mark)
        position = self.position(partition, commit.offset, snapshot)
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

    def position(self, partition: int, stored: int, snapshot: Snapshot) -> OffsetRange:
        """Begin of a partition, as an empty range. `stored`: the committed offset, or -1.

        Raises:
            DataLost: rows that were not read yet are gone.
        """
        first, end = snapshot.begin(), snapshot.end()
        if stored == NOTHING_STORED:
            at = _at(self.starting_offsets, partition, first, end, otherwise=first)
        else:
            at = min(max(stored, first), end)
            if at != stored and self.fail_on_data_loss:
                raise DataLost(
                    f"partition {partition}: offset {stored} is stored, and its rows are those "
                    f"from {first} to {end}; failOnDataLoss=false goes on at {at}"
                )
        return OffsetRange(at, at, stored)

    def ending(self, partition: int, snapshot: Snapshot) -> int:
        """End of a batch read of a partition."""
        first, end = snapshot.begin(), snapshot.end()
        return _at(self.ending_offsets, partition, first, end, otherwise=end)


def _at(
    offsets: str | Mapping[int, int], partition: int, first: int, end: int, *, otherwise: int
) -> int:
    """An offset that an option says, within the log."""
    if isinstance(offsets, str):
        return end if offsets == LATEST else first
    at = offsets.get(partition, otherwise)
    return {-2: first, -1: end}.get(at, min(max(at, first), end))


def _in_our_names(options: Mapping[str, str]) -> dict[str, str]:
    """Options under our names, for those that are told under Kafka's.

    Raises:
        ValueError: an option is told under both names, and differently.
    """
    ours = {name: value for name, value in options.items() if not name.startswith(_KAFKA)}
    brokers = options.get("kafka.bootstrap.servers")
    named = {name: value for name, value in ours.items() if name in _ALIASES}
    if "kafka.group.id" in options:
        named["kafka.group.id"] = options["kafka.group.id"]
    for name in named:
        ours.pop(name, None)
    librdkafka = {
        name.removeprefix(_KAFKA): value
        for name, value in options.items()
        if name.startswith(_KAFKA) and name not in _ALIASES
    }
    if brokers is not None:
        topic = named.pop("subscribe", None)
        if topic is None:
            raise ValueError("kafka.bootstrap.servers needs subscribe, which names the topic")
        if "," in topic:
            raise ValueError(f"subscribe={topic[:80]}: a query reads one topic")
        settings = f"#{urlencode(librdkafka)}" if librdkafka else ""
        named["kafka.bootstrap.servers"] = f"kafka://{brokers}/{topic}{settings}"
    elif librdkafka:
        raise ValueError(
            f"kafka.{next(iter(librdkafka))} needs kafka.bootstrap.servers and subscribe"
        )
    for name, value in named.items():
        here = _ALIASES[name]
        if ours.setdefault(here.lower(), value) != value:
            raise ValueError(f"{name} and {here} say the same, and differently: give one of them")
    return ours


def _most_in_batch(options: Mapping[str, str], source: Source) -> int | None:
    """The limit of a batch, in what the offsets count, as its option's name says.

    Raises:
        ValueError: it counts something else, or is no number.
    """
    names = {ROWS: "maxRowsPerBatch", FILES: "maxFilesPerTrigger"}
    right = names.pop(getattr(source, "unit", ROWS))
    for wrong in names.values():
        if wrong.lower() in options:
            raise ValueError(f"{wrong} is not what the offsets of this source count: use {right}")
    return whole_number(options, right, None, most=2**63 - 1)


def _protocol(protocol: str) -> GroupProtocol:
    for known in (CLASSIC, SESSION):
        if protocol.strip().lower() == known:
            return known
    raise ValueError(
        f"protocol={protocol[:80]}: expected is {CLASSIC} or {SESSION}"
        f"{nearest(protocol[:80], (CLASSIC, SESSION))}"
    )


def _credentials(options: Mapping[str, str]) -> Credentials:
    from_environment = Credentials.from_environment()
    return replace(
        from_environment,
        tls=truth(options, "tls", default=from_environment.tls),
        ca_file=options.get("tlsca", from_environment.ca_file),
        cert_file=options.get("tlscert", from_environment.cert_file),
        key_file=options.get("tlskey", from_environment.key_file),
        token_file=options.get("tokenfile", from_environment.token_file),
        proxy=options.get("proxy", from_environment.proxy),
    )
