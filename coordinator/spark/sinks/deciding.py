"""Decisions: a group's offsets and its manifest, moved by one commit, and a table that follows.

`protocol.py` says why this is exact. Every method may be called by a process that others believe
dead; the coordinator and the table tell it so.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import grpc

from coordinator.assignors import TopicPartition
from coordinator.dial import Credentials
from coordinator.operator.admin import GroupAdmin
from coordinator.sources.group.retrying import (
    GIVE_UP_S,
    MISMATCH,
    PAUSE_S,
    RETRIABLE_REFUSALS,
    Silence,
)
from coordinator.spark.ranges import MANIFESTS, NOTHING_STORED
from coordinator.spark.sinks.protocol import Decision, Sink, SinkRefused

LOGGER = logging.getLogger(__name__)
RETRIABLE_STATUS = frozenset(
    {
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.INTERNAL,  # A connection that broke in the middle of an answer.
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.UNKNOWN,
    }
)
STEPS = ("staged", "looked", "recovered", "decided", "followed")
"""Points between which a process may die or pause; tests stop there."""


class NoAnswer(Exception):
    """The group is moving or being loaded: ask again."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Offsets to move: `begins` must be what is stored (-1: nothing), `ends` is then stored."""

    begins: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    metadata: Mapping[TopicPartition, str] = field(default_factory=dict)

    def is_due(self, stored: Mapping[TopicPartition, int]) -> bool:
        return all(stored.get(k, NOTHING_STORED) == offset for k, offset in self.begins.items())

    def is_done(self, stored: Mapping[TopicPartition, int]) -> bool:
        return all(stored.get(k, NOTHING_STORED) == offset for k, offset in self.ends.items())


@dataclass(frozen=True, slots=True)
class Newest:
    """The group's newest decision, and the count that is stored (-1: none)."""

    decision: Decision
    count: int


class Decider:
    """Decides batches of one group and one sink. Not for several threads at once.

    Args:
        at: called at each of `STEPS`.
    """

    def __init__(
        self,
        sink: Sink,
        coordinator: str,
        group: str,
        *,
        credentials: Credentials | None = None,
        at: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._sink, self._coordinator, self._group = sink, coordinator, group
        self._credentials = credentials
        self._silence = Silence(coordinator, group)
        self.at = at
        self._admin: GroupAdmin | None = None
        self._newest: Newest | None = None  # Our last decision, if the table shows it.

    def decide(self, token: str, proposal: Proposal) -> bool:
        """Have staged rows count, and the table follow; False if the proposal was done elsewhere.

        Staged rows that do not count are discarded.

        Raises:
            SinkRefused: trying again does not help.
            grpc.RpcError: refused by the coordinator at once, or no answer for a minute, so that
                the outcome is unknown: it is looked up when the batch is run again.
        """
        try:
            return self._decide(token, proposal)
        finally:
            self._silence.end()

    def _decide(self, token: str, proposal: Proposal) -> bool:
        name, since = uuid.uuid4().hex, 0
        decision: Decision | None = None
        give_up_at = time.monotonic() + GIVE_UP_S
        while True:
            try:
                newest = self._newest
                self._newest = None  # Looked up again, unless this decision succeeds.
                if newest is None:
                    newest, stored = self._recover()
                    if not proposal.is_due(stored):
                        return self._done_elsewhere(token, name, since, newest, proposal, stored)
                decision = newest.decision.following(
                    name,
                    token,
                    self._sink.location,
                    {(k[0], k[1]): o for k, o in proposal.ends.items()},
                )
                if self._commit(newest, decision, proposal):
                    return True
            except (grpc.RpcError, NoAnswer) as error:
                # It may have been stored: the next attempt looks it up.
                since = since or (decision.number if decision else 0)
                self.close()
                if not _is_retriable(error) or time.monotonic() > give_up_at:
                    raise
                time.sleep(PAUSE_S)

    def recover(self) -> Decision:
        """Have the table follow the newest decision, and return that.

        Raises:
            SinkRefused, grpc.RpcError: see `decide`.
        """
        give_up_at = time.monotonic() + GIVE_UP_S
        try:
            while True:
                try:
                    return self._recover()[0].decision
                except (grpc.RpcError, NoAnswer) as error:
                    self.close()
                    if not _is_retriable(error) or time.monotonic() > give_up_at:
                        raise
                    time.sleep(PAUSE_S)
        finally:
            self._silence.end()

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    # --- Inside ---

    def _recover(self) -> tuple[Newest, Mapping[TopicPartition, int]]:
        """Look at the group, and have the table follow its newest decision."""
        stored, count, decision = self._fetched()
        while True:
            self.at("looked")
            shown = self._sink.recover(decision)
            if shown <= decision.number:
                break
            # Others may have decided more, and followed, since the first look.
            earlier = decision
            stored, count, decision = self._fetched()
            if decision == earlier:
                break
        if shown != decision.number:
            decision = self._catch_up(decision, shown, count)
        self.at("recovered")
        return Newest(decision, count), stored

    def _fetched(self) -> tuple[Mapping[TopicPartition, int], int, Decision]:
        """Offsets of the group, the count of decisions (-1: none is stored), and the newest."""
        try:
            stored, manifest = self._silence.during(lambda: self._opened().stored(self._group))
        except LookupError as error:
            raise NoAnswer(str(error)) from error
        count = stored.get(MANIFESTS, NOTHING_STORED)
        return stored, count, Decision.from_manifest(self._group, count, manifest)

    def _catch_up(self, decision: Decision, shown: int, count: int) -> Decision:
        """Have a table follow that shows another number; returns what the next one follows.

        Raises:
            SinkRefused: it is not one behind.
        """
        location, group = self._sink.location, self._group
        if shown == decision.number - 1 and decision.name and decision.location == location:
            self._sink.commit(decision.token, decision)
            return decision
        if count < 1:
            LOGGER.warning(
                "%s shows decision %d of group %s, and the coordinator knows none: the group or "
                "its offsets were deleted. What is read again is written again",
                location,
                shown,
                group,
            )
            return replace(decision, number=shown)
        if shown > decision.number:
            raise SinkRefused(
                f"{location} shows decision {shown} of group {group}, and the coordinator is at "
                f"{decision.number}: its data is older than the table, perhaps from a backup. "
                "Rows would come twice: set the group's offsets to what the table holds, and "
                "delete the offset of __manifests-0 with `coordinator groups delete-offsets`"
            )
        raise SinkRefused(
            f"{location} shows decision {shown} of group {group}, and the coordinator is at "
            f"{decision.number}, of {decision.location or 'another sink'}: this is another table, "
            "or it was restored. Use one group for each table; to go on with this one from the "
            "group's offsets, delete the offset of __manifests-0"
        )

    def _commit(self, newest: Newest, decision: Decision, proposal: Proposal) -> bool:
        """Decide, and follow; False if the group is not where it was."""
        number = decision.number if decision.token else max(newest.count, 0)
        # No rows, no decision: only the offsets move.
        manifest = decision.to_manifest() if decision.token else b""
        refusals = self._silence.during(
            lambda: self._opened().commit(
                self._group,
                {**proposal.ends, MANIFESTS: number},
                expected={**proposal.begins, MANIFESTS: newest.count},
                manifest=manifest,
                metadata=proposal.metadata,
            )
        )
        if refusals:
            reasons = set(refusals.values())
            if MISMATCH in reasons:
                return False
            if reasons & RETRIABLE_REFUSALS:
                raise NoAnswer(f"the commit was refused: {sorted(reasons)}")
            raise SinkRefused(f"the coordinator refuses the commit: {', '.join(sorted(reasons))}")
        if not decision.token:
            self._newest = Newest(newest.decision, number)
            return True
        self.at("decided")
        self._sink.commit(decision.token, decision)
        self._newest = Newest(decision, number)
        self.at("followed")
        return True

    def _done_elsewhere(
        self,
        token: str,
        name: str,
        since: int,
        newest: Newest,
        proposal: Proposal,
        stored: Mapping[TopicPartition, int],
    ) -> bool:
        """Whether it was this very decision that did it, by an attempt whose answer was lost."""
        if not token:
            return proposal.is_done(stored)
        counts = newest.decision.counts(name, since) if since else False
        if counts is None:
            LOGGER.warning(
                "nobody knows any more whether %s of %s counts: so its rows are left where they "
                "are", name, self._sink.location,
            )  # fmt: skip
        elif not counts:
            self._sink.discard(token)
        return bool(counts)

    def _opened(self) -> GroupAdmin:
        if self._admin is None:
            self._admin = GroupAdmin(
                self._coordinator, remember=True, credentials=self._credentials
            )
        return self._admin


def _is_retriable(error: Exception) -> bool:
    """Whether the same call may succeed later; not for what was refused for good."""
    code = getattr(error, "code", None)
    return code is None or code() in RETRIABLE_STATUS
