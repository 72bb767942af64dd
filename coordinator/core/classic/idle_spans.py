"""Partitions that nobody works on, as values: whose they were, and when that member stopped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from coordinator.core.values.ids import NO_TIME, TopicPartition
from coordinator.core.values.rebalance_journal import StopKnownBy
from coordinator.core.values.records import MemberRecord
from coordinator.core.values.requests import PartitionCommit


@dataclass(slots=True, eq=False)
class ClassicIdleSpan:
    """A partition that nobody works on. `owner` is the last owner's instance id or member id.

    It stopped between `earliest_ms` (-1: unknown) and `latest_ms` (-1: it may still work).
    """

    owner: str
    member_id: str
    client_id: str
    earliest_ms: int
    latest_ms: int
    known_by: StopKnownBy
    resumed_ms: int = NO_TIME
    """Time at which work on it resumed; -1: with the assignment that ends the rest."""

    @property
    def is_open(self) -> bool:
        """True while the owner may still work on it."""
        return self.latest_ms == NO_TIME


@dataclass(slots=True, eq=False)
class IdleSpans:
    """All idle spans of a group. `round`: of the cooperative rebalance they are part of, or 0."""

    of: dict[TopicPartition, ClassicIdleSpan] = field(default_factory=dict)
    round: int = 0

    @property
    def are_being_given_back(self) -> bool:
        """True if a cooperative rebalance took some away that their owners still have to give back.

        The next round hands those out. One that was given back before, and is not handed out then,
        may have no reader any more.
        """
        return any(idle_span.is_open for idle_span in self.of.values())


@dataclass(slots=True, eq=False)
class FailOver:
    """A node's take-over of a group: when, the time of the newest record in its log then, the
    longest session timeout of its members, those that have not been heard since, those that have
    been heard and will have committed what waited by their second heartbeat, what of these rested,
    the commits that have waited (since when, and until when), and whether the store had lost
    commits."""

    at_ms: int
    newest_record_ms: int
    session_ms: int
    unseen: dict[str, MemberRecord] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    idle_spans: dict[TopicPartition, ClassicIdleSpan] = field(default_factory=dict)
    waited: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    store_went_back: bool = False

    def note_waits(self, commits: Iterable[PartitionCommit], now_ms: int) -> None:
        """Note how long commits had no answer: their owner has done nothing else meanwhile."""
        if self.unseen or self.seen:
            for commit in commits:
                if commit.waited_ms > 0:
                    span = now_ms - commit.waited_ms, now_ms
                    self.waited.setdefault((commit.topic, commit.partition), span)
