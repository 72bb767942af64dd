"""`PolledSessionMember`: a session member with the face of a `BlockingMember`.

For owners that work in batches, between which they poll (streaming queries): a poll gives back what
the one before has told to be revoked, or lost. Between two polls nothing is given back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from coordinator.assignors import TopicPartition
from coordinator.client.errors import StaleMember
from coordinator.client.forms import partition_of
from coordinator.client.member.events import Assigned, Lost, RebalanceEvent, Revoking, Stopping
from coordinator.client.member.ledger import Holding, not_held
from coordinator.client.member.on_loop import TIMEOUT_S
from coordinator.client.member.session import changes
from coordinator.client.member.session.sync import BlockingSessionMember
from coordinator.client.member.state import MemberState
from coordinator.client.offsets import OffsetAndMetadata, Offsets

WINDOW = "window"
"""Reason for which a member holds nothing until the next plan."""


class PolledSessionMember:
    """See the top of this file; arguments as those of `BlockingSessionMember`."""

    def __init__(self, member: BlockingSessionMember) -> None:
        self._member = member
        self._holdings: dict[TopicPartition, Holding] = {}
        self._told: list[TopicPartition] = []
        """Partitions that the next poll gives back."""

    def start(self) -> None:
        """Begin to attach, in the background."""
        self._member.start()

    def close(self, reason: str = "closed") -> None:
        """Leave."""
        self._member.close(reason)

    def poll(self, timeout: float | None = 0.0) -> list[RebalanceEvent]:
        """Events since the last call; see `BlockingMember.poll`."""
        told, self._told = self._told, []
        for partition in told:
            self._member.released(partition)
        return [
            event for change in self._member.poll(timeout)
            if (event := self._event_of(change)) is not None
        ]  # fmt: skip

    def _event_of(self, change: changes.Change) -> RebalanceEvent | None:
        match change:
            case changes.Granted(partition, token):
                self._holdings[partition] = Holding(partition, -1, token)
                if partition in self._told:
                    self._told.remove(partition)  # The old token has ended.
                return Assigned(frozenset((partition,)), -1)
            case changes.Draining(partition, _, deadline_ms):
                self._told.append(partition)
                return Revoking(frozenset((partition,)), deadline_ms or 0)
            case changes.Lost(partition, _, reason) if not change.was_warming:
                self._told.append(partition)
                return Lost(frozenset((partition,)), reason)
            case changes.Warming():
                self._member.ready(change)  # There is nothing to prepare.
            case changes.Stopping(reason):
                return Stopping(reason)
        return None

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that it may work on."""
        return self._member.assignment

    @property
    def is_assigned(self) -> bool:
        """True once it has what the group's plan gives it, which may be nothing."""
        session = self._member._seen().session
        is_member = bool(session.session_id) and not session.is_waiting
        return bool(self.assignment) or (is_member and session.why != WINDOW)

    @property
    def is_between_assignments(self) -> bool:
        """True while it is not known what it holds."""
        return not self._member.member_id

    @property
    def member_id(self) -> str:
        """The id the coordinator gave; empty: none."""
        return self._member.member_id

    @property
    def state(self) -> MemberState:
        """The member's state in a word."""
        return self._member.state

    def holding(self, partition: TopicPartition) -> Holding:
        """The current holding of a partition. Raises StaleMember if it is not held."""
        key = partition_of(partition)
        self._member.token(key)
        return self._holdings[key]

    def holds(self, holding: Holding) -> bool:
        """True until the partition is given back or lost."""
        return not self._member._seen().lost_because(holding.partition, holding.token)

    def subscribe(self, topics: Mapping[str, int]) -> None:
        """Declare other numbers of partitions."""
        self._member.subscribe(topics)

    def commit(
        self,
        offsets: Offsets,
        *,
        atomic: bool = False,
        expected: Mapping[TopicPartition, int] | None = None,
        manifest: bytes = b"",
        holdings: Collection[Holding] | None = None,
        timeout: float = TIMEOUT_S,
    ) -> None:
        """Commit for holdings; raises as `BlockingSessionMember.commit`."""
        shown = self._holdings
        if holdings is not None:
            shown = {holding.partition: holding for holding in holdings}
        ended = {
            p: "it was released or lost" for p in offsets
            if p not in shown or not self.holds(shown[p])
        }  # fmt: skip
        if ended:
            raise StaleMember(not_held(ended))
        self._member.commit(
            offsets,
            atomic=atomic,
            expected=expected,
            manifest=manifest,
            holdings=list(shown.values()),
            timeout=timeout,
        )

    def committed_with_metadata(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets with their metadata."""
        return self._member.committed_with_metadata(partitions)
