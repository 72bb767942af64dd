"""The ledger of holdings: the one place that decides whether a commit may be sent.

A holding begins when the machine learns of it, is known to its owner from the call that hands it
out, and ends when it is given back or lost. The same partition handed out again is another holding.
The machine may be ahead of the owner: a partition can be taken away and come back before a slow
handler commits. So a commit names the holdings that it counts for, and is refused here, before
anything is sent, once one of them has ended, while its lease is in doubt, and once the member
closes.

    machine:  begin ──────────► end        begin again
    owner:           hand_out        commit (refused)   hand_out   commit (accepted)

A commit that shows no holdings counts for those that were handed out to its owner (`owners.py`),
never for the newest that the machine knows of.

One exception: a batch that a checkpoint planned before this process began, whose holdings nobody
can show any more, counts for the present ones, if it names the offset that it began at for each of
its partitions (`of_planned_batch`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from coordinator.assignors import TopicPartition
from coordinator.assignors.partitions import spelled, spelled_by
from coordinator.client.errors import StaleMember

MEMBERSHIP = TopicPartition("", -1)
"""Pseudo-partition held from the first assignment until all is lost, for commits without any."""
UNKNOWN_OFFSET = -1
FOREVER_MS = 1 << 62
"""End of a holding that has no end yet."""


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """One partition, from when it was handed out until it is given back or lost.

    Each event carries its holdings; `member.holding(partition)` is the last that was handed out.
    Work that may outlast it passes it on: `commit(…, holdings=[holding])`. Compared by identity.

    generation: in which it began, in a classic group; -1: none. token: of its grant, in a session
    group: what a sink can check; 0: none. handoff_id: of a partition that is only being prepared.
    offset: committed, as the grant says, and position: where the holder before
    has stopped, in mode copy; -1: unknown.
    """

    partition: TopicPartition
    generation: int = -1
    token: int = 0
    handoff_id: int = 0
    offset: int = UNKNOWN_OFFSET
    position: int = UNKNOWN_OFFSET

    def __repr__(self) -> str:
        proof = f"token {self.token}" if self.token else f"generation {self.generation}"
        return f"Holding({self.partition}, {proof})"


Holdings = Mapping[TopicPartition, Holding]
_NONE: Holdings = {}


class Ledger:
    """Holdings of a member: those that last, and those that its owner knows."""

    __slots__ = ("_ended", "_given_up", "_is_closing", "_known", "_lasting")

    def __init__(self) -> None:
        self._lasting: dict[TopicPartition, Holding] = {}
        self._known: Holdings = _NONE  # Replaced, never changed: tasks keep the one of their time.
        self._ended: dict[TopicPartition, str] = {}
        self._given_up: set[Holding] = set()
        self._is_closing = False

    # --- The machine's side ---

    def begin(self, holdings: Iterable[Holding]) -> None:
        """Begin holdings, which the owner hears of next."""
        for holding in holdings:
            self._lasting[holding.partition] = holding

    def end(self, partitions: Iterable[TopicPartition], reason: str) -> None:
        """End the holdings of partitions that the member has given back or lost."""
        for partition in partitions:
            ended = self._lasting.pop(partition, None)
            if ended is not None:
                self._ended[partition] = reason
                self._given_up.discard(ended)

    def give_up(self, holding: Holding, reason: str) -> None:
        """Take no more commits of a holding, which ends when those under way are answered."""
        if self.lasts(holding):
            self._given_up.add(holding)
            self._ended[holding.partition] = reason

    def close(self) -> None:
        """Take no more commits, since the member closes. Those under way go on."""
        self._is_closing = True

    def end_all(self, reason: str) -> None:
        """End all holdings, and the membership's own."""
        self.end(tuple(self._lasting), reason)

    def hand_out(self, granted: Iterable[Holding] = ()) -> None:
        """Note what the owner has been handed: these holdings, and the membership."""
        handed_out = {holding.partition: holding for holding in granted}
        membership = self._lasting.get(MEMBERSHIP)
        if membership is not None and self._known.get(MEMBERSHIP) is not membership:
            handed_out[MEMBERSHIP] = membership
        if handed_out or len(self._known) > len(self._lasting):
            lasting = {p: held for p, held in self._known.items() if self.lasts(held)}
            self._known = {**lasting, **handed_out}

    @property
    def are_of_a_member(self) -> bool:
        """False before the first assignment, and after everything was lost."""
        return MEMBERSHIP in self._lasting

    def current(self, partitions: Iterable[TopicPartition]) -> tuple[Holding, ...]:
        """The lasting holdings of these partitions, sorted."""
        return tuple(self._lasting[p] for p in sorted(partitions) if p in self._lasting)

    def known(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """The partitions among these that the owner knows it holds, and whose holdings last."""
        known = self._known
        return frozenset(p for p in partitions if p in known and self.lasts(known[p]))

    # --- The owner's side ---

    @property
    def held(self) -> frozenset[TopicPartition]:
        """All partitions that the owner knows it holds, and whose holdings last."""
        return self.known(self._known) - {MEMBERSHIP}

    @property
    def has_any(self) -> bool:
        """True if the owner knows that it holds a partition: cheaper than `held`."""
        known = self._known.items()
        return any(p != MEMBERSHIP and self.lasts(holding) for p, holding in known)

    @property
    def handed_out(self) -> Holdings:
        """The holdings that were handed out by now, some of which may have ended. It is replaced,
        never changed."""
        return self._known

    def of(self, partition: TopicPartition) -> Holding:
        """The holding of a partition that was handed out last, whether or not it lasts.

        Raises:
            StaleMember: there is none.
        """
        (holding,) = self._claim((partition,), self._known)
        return holding

    def last(self, partition: TopicPartition) -> Holding | None:
        """The holding of a partition that was handed out last, if it lasts."""
        holding = self._known.get(partition)
        return holding if holding is not None and self.lasts(holding) else None

    def claim(
        self,
        partitions: Collection[TopicPartition],
        shown: Collection[Holding] | None,
        handed_out: Holdings | None = None,
    ) -> frozenset[Holding]:
        """The holdings that a commit of these partitions counts for.

        Args:
            partitions: if empty, the commit counts for the membership.
            shown: holdings passed by the caller; None: those that were handed out to it.
            handed_out: to this caller; None: all that were handed out by now.
        Raises:
            StaleMember: a partition has none, or the member closes.
        """
        if shown is None or not partitions:
            held, otherwise = self._known if handed_out is None else handed_out, ""
        else:
            held = {holding.partition: holding for holding in shown}
            otherwise = "no holding of it was shown"
        claimed = self._claim(partitions, held, otherwise)
        if self._is_closing and all(map(self._is_open, claimed)):
            raise StaleMember("nothing was sent, for the member closes")
        return claimed

    def of_planned_batch(self, begins: Mapping[TopicPartition, int]) -> list[Holding]:
        """The present holdings for a batch that was planned before this process began.

        Args:
            begins: offset at which the batch begins, by partition: the commit expects it stored, so
                that a batch which somebody else has done since does not count.
        Returns:
            Those of partitions that the owner holds now, sorted.
        """
        return list(self.current(self.known(begins)))

    def lasts(self, holding: Holding) -> bool:
        """True until the partition is given back or lost."""
        return self._is_open(holding) and holding not in self._given_up

    def check(
        self,
        claimed: Iterable[Holding],
        *,
        suspended: Collection[TopicPartition] = (),
        repeated: bool = False,
    ) -> None:
        """Return if a commit may be sent for all of them now.

        Args:
            suspended: partitions whose lease is in doubt, unless the commit waits for them.
            repeated: an earlier attempt may be stored, which the message says.
        Raises:
            StaleMember: names those that ended, and why; or those that are suspended.
        """
        ended = self._ended_of(claimed)
        if ended:
            raise StaleMember(_refusal(ended, repeated=repeated))
        if suspended:
            names = spelled(suspended)
            raise StaleMember(
                f"nothing was sent, for {names} is suspended: the coordinator has not been heard "
                "for 9/10 of the lease"
            )

    def why_ended(self, claimed: Iterable[Holding]) -> str:
        """The holdings among these that have ended, and why; empty: all last."""
        return _spelled_reasons(self._ended_of(claimed))

    # --- Inside ---

    def _claim(
        self, partitions: Collection[TopicPartition], held: Holdings, otherwise: str = ""
    ) -> frozenset[Holding]:
        wanted = partitions or (MEMBERSHIP,)
        refused = {p: otherwise or self._reason(p) for p in wanted if p not in held}
        if not refused and self._given_up:
            refused = {p: self._reason(p) for p in wanted if held[p] in self._given_up}
        if refused:
            raise StaleMember(_refusal(refused))
        return frozenset(held[p] for p in wanted)

    def _ended_of(self, claimed: Iterable[Holding]) -> dict[TopicPartition, str]:
        return {h.partition: self._reason(h.partition) for h in claimed if not self._is_open(h)}

    def _is_open(self, holding: Holding) -> bool:
        return self._lasting.get(holding.partition) is holding

    def _reason(self, partition: TopicPartition) -> str:
        if partition in self._ended:
            return self._ended[partition]
        is_granted = partition in self._lasting
        return "no poll has handed it out" if is_granted else "it is not assigned to this member"


def _refusal(reasons: dict[TopicPartition, str], *, repeated: bool = False) -> str:
    if list(reasons) == [MEMBERSHIP]:
        return f"nothing was sent, for this is no member of the group: {reasons[MEMBERSHIP]}"
    may = " (an earlier attempt may be stored)" if repeated else ""
    return (
        f"nothing was sent{may}, for this member does not hold what is to be committed: "
        f"{_spelled_reasons(reasons)}"
    )


def _spelled_reasons(reasons: Mapping[TopicPartition, str]) -> str:
    """Partitions by their reasons: `invoices-0…2: lost; invoices-3: it is not assigned ...`."""
    return "; ".join(f"{some}: {why}" for some, why in spelled_by(reasons.items()))
