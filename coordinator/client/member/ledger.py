"""Holdings: the partitions of a member as its owner knows them, and whether they still last.

A holding begins when `poll` hands a partition out, and ends when it is given back or lost. The
same partition handed out again is another holding. The machine may be ahead of the owner: a
partition can be taken away and come back before a slow handler commits. So a commit is checked
against the holdings that the owner knows, never against those the machine has learned of since.

    machine:  begin ──────────► end        begin again
    owner:           hand_out        commit (refused)   hand_out   commit (accepted)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from coordinator.assignors import TopicPartition
from coordinator.client.errors import StaleMember

MEMBERSHIP = TopicPartition("", -1)
"""Pseudo-partition held from the first assignment until all is lost, for commits without any."""


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """One partition, from when `poll` handed it out until it is given back or lost.

    For handlers that do not poll themselves: take it with `member.holding(partition)` when the work
    begins, and pass it to `commit(..., holdings=[holding])`. Compared by identity. `generation` is
    the one in which it began. `token`: of a grant in a session group; 0: it has none.
    """

    partition: TopicPartition
    generation: int
    token: int = 0


class Holdings:
    """Holdings of a member: those that last, and those the owner knows."""

    __slots__ = ("_ended", "_known", "_lasting")

    def __init__(self) -> None:
        self._lasting: dict[TopicPartition, Holding] = {}
        self._known: dict[TopicPartition, Holding] = {}
        self._ended: dict[TopicPartition, str] = {}

    # --- The machine's side ---

    def begin(self, partitions: Iterable[TopicPartition], generation: int) -> None:
        """Begin holdings, which the next poll hands out."""
        for partition in partitions:
            self._lasting[partition] = Holding(partition, generation)

    def end(self, partitions: Iterable[TopicPartition], reason: str) -> None:
        """End the holdings of partitions that the member has given back or lost."""
        for partition in partitions:
            if self._lasting.pop(partition, None) is not None:
                self._ended[partition] = reason

    def end_all(self, reason: str) -> None:
        """End all holdings, and the membership's own."""
        self.end(tuple(self._lasting), reason)

    def hand_out(self) -> None:
        """Mark all current holdings as known to the owner."""
        self._known = dict(self._lasting)

    @property
    def are_of_a_member(self) -> bool:
        """False before the first assignment, and after everything was lost."""
        return MEMBERSHIP in self._lasting

    def known(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """The partitions among these that the owner knows it holds, and whose holdings last."""
        known = self._known
        return frozenset(p for p in partitions if p in known and self.lasts(known[p]))

    # --- The owner's side ---

    def of(self, partition: TopicPartition) -> Holding:
        """The holding of a partition that the last poll handed out, whether or not it lasts.

        Raises:
            StaleMember: there is none.
        """
        (holding,) = self.claim((partition,), None)
        return holding

    def claim(
        self, partitions: Collection[TopicPartition], shown: Collection[Holding] | None
    ) -> frozenset[Holding]:
        """The holdings that a commit of these partitions counts for.

        Args:
            partitions: if empty, the commit counts for the membership.
            shown: holdings passed by the caller; None: those that the last poll handed out.
        Raises:
            StaleMember: a partition has none.
        """
        if shown is None or not partitions:
            held = self._known
            missing = {p: self._reason(p) for p in partitions or (MEMBERSHIP,)}
        else:
            held = {holding.partition: holding for holding in shown}
            missing = dict.fromkeys(partitions, "no holding of it was shown")
        refused = {p: reason for p, reason in missing.items() if p not in held}
        if refused:
            raise StaleMember(_refusal(refused))
        return frozenset(held[p] for p in missing)

    def lasts(self, holding: Holding) -> bool:
        """True until the partition is given back or lost."""
        return self._lasting.get(holding.partition) is holding

    def check(self, claimed: Iterable[Holding]) -> None:
        """Return if all of them last.

        Raises:
            StaleMember: names those that ended, and why.
        """
        ended = [h.partition for h in claimed if not self.lasts(h)]
        if ended:
            raise StaleMember(_refusal({p: self._reason(p) for p in ended}))

    # --- Inside ---

    def _reason(self, partition: TopicPartition) -> str:
        if partition in self._ended:
            return self._ended[partition]
        told_soon = partition in self._lasting
        return "no poll has handed it out" if told_soon else "it is not assigned to this member"


def _refusal(reasons: dict[TopicPartition, str]) -> str:
    if list(reasons) == [MEMBERSHIP]:
        return f"nothing was sent, for this is no member of the group: {reasons[MEMBERSHIP]}"
    return not_held(reasons)


def not_held(reasons: Mapping[TopicPartition, str]) -> str:
    """Refusal of a commit for partitions that are not held, with the reasons."""
    named = spelled_reasons(reasons)
    return f"nothing was sent, for this member does not hold what is to be committed: {named}"


def spelled_reasons(reasons: Mapping[TopicPartition, str]) -> str:
    """Partitions and a reason of each, sorted: `invoices[0]: it was lost; invoices[3]: ...`."""
    return "; ".join(f"{p[0]}[{p[1]}]: {why}" for p, why in sorted(reasons.items()))
