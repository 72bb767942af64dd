"""Events of a member, for both protocols, as `poll` and `events` give them. None is empty."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coordinator.assignors import TopicPartition
from coordinator.assignors.partitions import spelled
from coordinator.client.member.ledger import Holding


@dataclass(frozen=True, slots=True)
class _Told:
    """Base of the events about holdings, which are sorted by partition."""

    holdings: tuple[Holding, ...]

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Their partitions."""
        return frozenset(holding.partition for holding in self.holdings)

    def __repr__(self) -> str:
        return self._spelled()

    def _spelled(self, *more: str) -> str:
        return (
            f"{type(self).__name__}({', '.join([spelled(self.partitions), *filter(None, more)])})"
        )


@dataclass(frozen=True, slots=True, repr=False)
class Granted(_Told):
    """These partitions are this member's from now on.

    In a classic group with an eager assignor they are all it has; else only the new ones, and
    `member.assignment` has all. A rebalance that gives the member nothing, or with a cooperative
    assignor nothing new, gives no event.
    """

    @property
    def generation(self) -> int:
        """Generation in which they begin; -1: the group has none."""
        return self.holdings[0].generation

    def __repr__(self) -> str:
        begun = f"generation {self.generation}" if self.generation >= 0 else ""
        return self._spelled(begun)


@dataclass(frozen=True, slots=True, repr=False)
class Revoking(_Told):
    """These partitions are to be given back: finish, commit, and give them back.

    By `deadline_ms` (epoch milliseconds of the member's clock; None: there is no limit); then they
    are lost. In a classic group that is half of `rebalance_timeout_ms` after the member heard of
    it, and `Lost` replaces this event if no `poll` came before.
    """

    deadline_ms: int | None

    def __repr__(self) -> str:
        return self._spelled(f"deadline_ms {self.deadline_ms}")


@dataclass(frozen=True, slots=True, repr=False)
class Lost(_Told):
    """These partitions belong to another member already, or may. Stop, without drain and commit:
    commits are refused.

    A session group waits for them to be given back, when nothing of them runs any more; not for
    those that were only warming (`was_warming`).
    """

    reason: str
    was_warming: bool = False

    def __repr__(self) -> str:
        return self._spelled(self.reason)


@dataclass(frozen=True, slots=True, repr=False)
class Warming(_Told):
    """These partitions will be this member's: make ready, and call `ready`; in session groups."""


@dataclass(frozen=True, slots=True, repr=False)
class Suspended(_Told):
    """The coordinator has not answered for too long: no effect may leave the process."""


@dataclass(frozen=True, slots=True, repr=False)
class Resumed(_Told):
    """These partitions are this member's still, under the same tokens."""


@dataclass(frozen=True, slots=True, repr=False)
class Stopping:
    """The member has stopped and will not join again."""

    reason: str

    def __repr__(self) -> str:
        return f"Stopping({self.reason})"


HoldingEvent = Granted | Revoking | Lost | Warming | Suspended | Resumed
MemberEvent = HoldingEvent | Stopping


def handed_out_or_lost(events: Iterable[MemberEvent]) -> frozenset[TopicPartition]:
    """Partitions that another member may have had since the last poll: read their offsets anew."""
    partitions = [event.partitions for event in events if isinstance(event, Granted | Lost)]
    return frozenset[TopicPartition]().union(*partitions)
