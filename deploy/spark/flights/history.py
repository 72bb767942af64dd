"""History of a group: who worked on which partition, and how long it was idle between two owners.

It is made of the workers' own notes and of the signals that the demo sent. A stint lasts from the
first to the last note of one owner about one partition, if it did anything; the partition is idle
until the first note of the next owner, from the signal on if there was one. All times are seconds
since the demo began.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter

from flights.notes import REFUSED, STAGED, TAKES, Note

SIGKILL, SIGSTOP = "SIGKILL", "SIGSTOP"


@dataclass(frozen=True, slots=True)
class Strike:
    """A signal that ends a member (SIGKILL), or stops it for a while (SIGSTOP)."""

    member: str
    at_s: float
    signal: str


@dataclass(frozen=True, slots=True)
class Stint:
    owner: str
    partition: int
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class IdleSpan:
    """Time in which nobody worked on a partition; `strike`: what ended its former owner."""

    partition: int
    former: str
    owner: str
    begin_s: float
    end_s: float
    strike: Strike | None

    @property
    def length_s(self) -> float:
        return self.end_s - self.begin_s


@dataclass(frozen=True, slots=True)
class History:
    stints: tuple[Stint, ...]
    idle_spans: tuple[IdleSpan, ...]
    refusals: tuple[Note, ...]

    @property
    def owners(self) -> list[str]:
        """The owners, those that came first in front."""
        return list(dict.fromkeys(stint.owner for stint in self.stints))

    def latest(self) -> dict[int, str]:
        """The last owner of each partition."""
        return {stint.partition: stint.owner for stint in self.stints}


def label(member: str, kills: int) -> str:
    """Name of an owner; what is started again after a kill is another one."""
    return member + {0: "", 1: " (restarted)"}.get(kills, f" (restarted {kills} times)")


def member_of(owner: str) -> str:
    """The member of a label."""
    return owner.partition(" (restarted")[0]


def history_of(notes: Iterable[Note], strikes: Sequence[Strike]) -> History:
    """Make the history of a group.

    Args:
        notes: in the order of their times.
    """
    stints: dict[int, list[Stint]] = {}
    refusals = []
    for note in notes:
        kills = sum(
            (strike.member, strike.signal) == (note.member, SIGKILL) and strike.at_s <= note.at_s
            for strike in strikes
        )
        owner = label(note.member, kills)
        if note.kind == REFUSED:
            refusals.append(note)
        if note.kind in (REFUSED, STAGED):
            continue
        mine = stints.setdefault(note.partition, [])
        if mine and mine[-1].owner == owner and note.kind != TAKES:
            mine[-1] = replace(mine[-1], end_s=note.at_s)
        else:
            mine.append(Stint(owner, note.partition, note.at_s, note.at_s))
    stints = {
        p: [stint for stint in mine if stint.end_s > stint.begin_s] for p, mine in stints.items()
    }
    idle_spans = [
        _idle_span(former, stint, strikes)
        for mine in stints.values()
        for former, stint in pairwise(mine)
        if former.owner != stint.owner
    ]
    ordered = sorted(
        (stint for mine in stints.values() for stint in mine), key=attrgetter("begin_s")
    )
    return History(
        tuple(ordered), tuple(sorted(idle_spans, key=attrgetter("begin_s"))), tuple(refusals)
    )


def _idle_span(former: Stint, stint: Stint, strikes: Iterable[Strike]) -> IdleSpan:
    """The idle time between two stints; whoever is struck had its partitions until then."""
    name = member_of(former.owner)
    own = [s for s in strikes if s.member == name and former.begin_s <= s.at_s <= stint.begin_s]
    strike = own[-1] if own else None
    begin_s = former.end_s if strike is None else max(former.end_s, strike.at_s)
    return IdleSpan(
        stint.partition,
        former.owner,
        stint.owner,
        min(begin_s, stint.begin_s),
        stint.begin_s,
        strike,
    )
