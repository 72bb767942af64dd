"""History of a run: stints, kills, rests and refusals, from the workers' own notes and the kills.

A stint lasts from the first to the last note of one owner about one partition. A partition rests
from the moment its owner is killed or stopped until the first note of the next owner. All times are
seconds since the demo began to watch the group.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from flights.notes import REFUSED, STAGED, TAKES, Note


@dataclass(frozen=True, slots=True)
class Stint:
    owner: str
    partition: int
    begin_s: float
    end_s: float


SIGKILL, SIGSTOP = "SIGKILL", "SIGSTOP"


@dataclass(frozen=True, slots=True)
class Kill:
    """A signal that ends an owner (SIGKILL), or stops it until it is woken (SIGSTOP).

    `expired_s`: when the coordinator removed the member; None if it never did.
    """

    owner: str
    at_s: float
    expired_s: float | None
    signal: str = SIGKILL
    woken_s: float | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that the demo did: a sentence."""

    at_s: float
    text: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """A batch of an owner that did not count, for one of its partitions."""

    owner: str
    partition: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Rest:
    """Time in which nobody worked on a partition. `taker`: the next owner; None until the end."""

    owner: str
    partition: int
    begin_s: float
    end_s: float
    taker: str | None


@dataclass(frozen=True, slots=True)
class History:
    """All that is drawn. `owners`: in the order of their colours."""

    owners: tuple[str, ...]
    stints: tuple[Stint, ...]
    kills: tuple[Kill, ...]
    rebalances: tuple[float, ...]
    end_s: float
    moments: tuple[Moment, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    def rests(self, kill: Kill) -> list[Rest]:
        """Rests of the partitions that a killed owner had, by partition."""
        found = []
        for partition in sorted({stint.partition for stint in self.stints}):
            stints = [stint for stint in self.stints if stint.partition == partition]
            before = [stint for stint in stints if stint.begin_s <= kill.at_s]
            after = [stint for stint in stints if stint.begin_s > kill.at_s]
            if before and before[-1].owner == kill.owner:
                end_s, taker = (after[0].begin_s, after[0].owner) if after else (self.end_s, None)
                found.append(Rest(kill.owner, partition, kill.at_s, end_s, taker))
        return found

    def save(self, path: Path) -> None:
        """Write it as JSON, for `load`."""
        path.write_text(json.dumps(asdict(self)) + "\n")


def load(path: Path) -> History:
    """Read a history that `History.save` has written."""
    values = json.loads(path.read_text())
    return History(
        tuple(values["owners"]),
        tuple(Stint(**stint) for stint in values["stints"]),
        tuple(Kill(**kill) for kill in values["kills"]),
        tuple(values["rebalances"]),
        values["end_s"],
        tuple(Moment(**moment) for moment in values["moments"]),
        tuple(Refusal(**refusal) for refusal in values["refusals"]),
    )


def label(member: str, kills_before: int) -> str:
    """Name of an owner; the successor of one that was killed has the same client id."""
    restarts = {0: "", 1: " (restarted)"}.get(kills_before, f" (restarted {kills_before} times)")
    return member + restarts


def history_of(
    notes: Iterable[Note],
    kills: Sequence[Kill],
    rebalances: Iterable[float] = (),
    order: Iterable[str] = (),
    moments: Iterable[Moment] = (),
    *,
    end_s: float,
) -> History:
    """Make the history of a run.

    Args:
        notes: in the order of their times, which are seconds since the watch began.
        kills: their owners are client ids.
        order: the owners whose colours come first.
    """
    stints: dict[int, list[Stint]] = {}
    refusals = []
    for note in notes:
        before = [kill for kill in kills if kill.owner == note.member and kill.at_s <= note.at_s]
        owner = label(note.member, _ends(before))
        if note.kind == REFUSED:
            refusals.append(Refusal(owner, note.partition, note.at_s))
        if note.kind in (REFUSED, STAGED):
            continue
        of_partition = stints.setdefault(note.partition, [])
        goes_on = (
            of_partition
            and of_partition[-1].owner == owner
            and note.kind != TAKES
            and not any(kill.at_s >= of_partition[-1].end_s for kill in before)
        )
        if goes_on:
            last = of_partition.pop()
            of_partition.append(Stint(owner, note.partition, last.begin_s, note.at_s))
        else:
            of_partition.append(Stint(owner, note.partition, note.at_s, note.at_s))
    everything = [stint for partition in sorted(stints) for stint in stints[partition]]
    named = [_named(kill, kills) for kill in kills]
    closed = [_until_the_kill(stint, stints[stint.partition], named) for stint in everything]
    by_time = sorted(closed, key=lambda stint: (stint.begin_s, stint.owner))
    owners = dict.fromkeys([*order, *(stint.owner for stint in by_time)])
    return History(
        tuple(owners),
        tuple(closed),
        tuple(named),
        tuple(rebalances),
        end_s,
        tuple(moments),
        tuple(refusals),
    )


def _named(kill: Kill, kills: Sequence[Kill]) -> Kill:
    before = [it for it in kills if it.owner == kill.owner and it.at_s < kill.at_s]
    return replace(kill, owner=label(kill.owner, _ends(before)))


def _ends(kills: Iterable[Kill]) -> int:
    return sum(kill.signal == SIGKILL for kill in kills)


def _until_the_kill(stint: Stint, of_partition: Sequence[Stint], kills: Sequence[Kill]) -> Stint:
    """An owner that is killed or stopped had its partition until then, even in a pause of work."""
    for kill in kills:
        is_last = all(
            other.begin_s <= stint.begin_s or other.begin_s > kill.at_s for other in of_partition
        )
        if kill.owner == stint.owner and stint.begin_s <= kill.at_s and is_last:
            return Stint(stint.owner, stint.partition, stint.begin_s, kill.at_s)
    return stint
