"""A commit of a session member: for tokens that its owner knows, checked here before each attempt.

What the machine has learned of since does not count: a commit of a partition that was lost is
refused, also if it has been granted anew meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from coordinator.assignors import TopicPartition
from coordinator.client.errors import StaleMember
from coordinator.client.member import calls
from coordinator.client.member.events import spelled
from coordinator.client.member.ledger import spelled_reasons
from coordinator.client.member.operations import GIVE_UP_MS, Operation, judge
from coordinator.client.member.retry import MOST_S
from coordinator.client.member.session.leases import FOREVER_MS
from coordinator.client.offsets import Commit


class Standing(Protocol):
    """The member of a commit, as far as it matters."""

    @property
    def interval_ms(self) -> int:
        """Time between two heartbeats."""

    def identity(self) -> calls.Identity:
        """The member as the coordinator knows it."""

    def lost_because(self, partition: TopicPartition, token: int) -> str:
        """Reason that a holding has ended; empty: it lasts."""

    def is_valid(self, partition: TopicPartition, token: int, now_ms: int) -> bool:
        """True if effects of a holding may leave the process."""


class TokenCommit(Operation):
    """One commit.

    Args:
        tokens: of the holdings that it counts for.
        waits: wait while a holding is suspended, with its timeout standing still; else it is
            refused.
    """

    def __init__(
        self,
        commit: Commit,
        tokens: Mapping[TopicPartition, int],
        standing: Standing,
        random: Callable[[], float],
        now_ms: int,
        timeout_ms: int = GIVE_UP_MS,
        *,
        waits: bool = False,
    ) -> None:
        # Its owner stands still until the answer, however briefly the coordinator was away. One
        # that is tried as often as heartbeats are sent adds little to them.
        most_s = min(MOST_S, standing.interval_ms / 1_000)
        super().__init__(random, now_ms, timeout_ms, most_s=most_s)
        self.tokens = tokens
        self._commit = commit
        self._standing = standing
        self._waits = waits
        self._suspended_ms: int | None = None
        """Since when it waits for a holding that is suspended."""

    def look(self, now_ms: int) -> None:
        """Take in the time, and what has become of the holdings.

        An attempt that is under way is left to the coordinator to judge.
        """
        if not self.is_out and not self.is_done:
            self._look_at_holdings(now_ms)
        if self._suspended_ms is None:
            super().look(now_ms)

    def next_deadline(self) -> int:
        """See `Operation`; of one that waits, the machine says when."""
        return super().next_deadline() if self._suspended_ms is None else FOREVER_MS

    def _look_at_holdings(self, now_ms: int) -> None:
        lost = {p: self._standing.lost_because(p, token) for p, token in self.tokens.items()}
        told = spelled_reasons({p: why for p, why in lost.items() if why})
        if told:
            may = " (an earlier attempt may be stored)" if self.repeated else ""
            self.end(StaleMember(f"nothing was sent, for a partition is not held{may}: {told}"))
            return
        tokens = self.tokens.items()
        suspended = [p for p, t in tokens if not self._standing.is_valid(p, t, now_ms)]
        if not suspended:
            if self._suspended_ms is not None:
                self._until_ms += now_ms - self._suspended_ms
                self._suspended_ms = None
                self.ask_anew(now_ms)
        elif not self._waits:
            self.end(
                StaleMember(
                    f"nothing was sent, for {spelled(suspended)} is suspended: the coordinator has "
                    "not been heard for 9/10 of the lease"
                )
            )
        elif self._suspended_ms is None:
            self._suspended_ms, self.due_ms = now_ms, None

    def _request(self) -> calls.CommitOffsets:
        return calls.CommitOffsets(self._standing.identity(), self._commit, self.tokens)

    def _answered(self, reply: calls.Reply, now_ms: int) -> None:
        assert isinstance(reply, calls.Committed)
        judge(reply, self._commit, repeated=self.repeated)
        for partition, token in self.tokens.items():
            why = self._standing.lost_because(partition, token)
            if why:
                raise StaleMember(
                    f"{partition.topic}[{partition.partition}] was lost while the commit was under "
                    f"way, so that it is stored, and counts for whoever holds it now: {why}"
                )
        self.end()
