"""Account of a run: who worked on what, and the kill, beside what the coordinator says of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from coordinator.printable import printable
from coordinator.v1 import admin_pb2
from flights.dataset import PARTITIONS
from flights.history import History
from flights.picture import account, draw


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
    for line in account(history):
        print(line)
    killed = {kill.owner for kill in history.kills}
    for rebalance in journal:
        if any(r.client_id in killed and r.cause == EXPIRED for r in rebalance.removed):
            command = f"coordinator explain {rebalance.group_id} {rebalance.generation_after}"
            print(f"The coordinator, which saw no kill, says of it (`{command}`):")
            for line in rebalance.explanation:
                print(f"  {printable(line, None)}")


EXPIRED = "session expired"
