"""Account of a run: who worked on what, and the kill, beside what the coordinator says of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from coordinator.observe.spelling import spell
from coordinator.printable import printable
from coordinator.v1 import admin_pb2
from flights.dataset import PARTITIONS
from flights.history import History, Rest
from flights.picture import account, draw

EXPIRED = "session expired"


def report(
    history: History, title: str, journal: Iterable[admin_pb2.Rebalance], folder: Path
) -> None:
    """Write `owners.svg` and its data, `owners.json`; print what it shows beside `explain`.

    Args:
        journal: rebalances of the group.
    """
    history.save(folder / "owners.json")
    (folder / "owners.svg").write_text(draw(history, title, PARTITIONS))
    print(f"\n{title}: {folder / 'owners.svg'}")
    print("\n".join([*account(history), *explained(history, journal)]))


def explained(history: History, journal: Iterable[admin_pb2.Rebalance]) -> Iterator[str]:
    """Lines of what the coordinator says of the kills, each with its comparison."""
    kills = {kill.owner: kill for kill in history.kills}
    for rebalance in sorted(journal, key=lambda it: it.generation_after):
        for removed in rebalance.removed:
            kill = kills.get(removed.client_id)
            if kill and removed.cause == EXPIRED:
                del kills[kill.owner]  # It may be removed again later, by no kill.
                command = f"coordinator explain {rebalance.group_id} {rebalance.generation_after}"
                yield f"The coordinator, which saw no {kill.signal}, says of it (`{command}`):"
                yield from (f"  {printable(line, None)}" for line in rebalance.explanation)
                yield from compared(history.rests(kill), rebalance.moves)


def compared(rests: list[Rest], moves: Iterable[admin_pb2.PartitionMove]) -> Iterator[str]:
    """A line that compares the coordinator's range with the truth, the workers' notes.

    The coordinator knows when it has handed partitions out, so the truth is the rest of the one
    that was begun first: the new owner begins the others when it comes to them.
    """
    lost = [
        move
        for move in moves
        if move.has_moved and move.from_client_id in {rest.owner for rest in rests}
    ]
    if not lost or not rests:
        return
    rested_ms = round(1_000 * min(rest.end_s - rest.begin_s for rest in rests))
    least_ms = min(move.unowned_ms_min for move in lost)
    most_ms = max(move.unowned_ms_max for move in lost)
    told = f"In truth the first of them rested for {spell(rested_ms)}"
    if rested_ms < least_ms:
        yield f"{told}, {spell(least_ms - rested_ms)} less than it says."
    elif any(move.unowned_ms_max < 0 for move in lost) or rested_ms <= most_ms:
        yield f"{told}, which is within its range."
    else:
        more = spell(rested_ms - most_ms)
        yield f"{told}, {more} more than it says: the new owner began so much later."
