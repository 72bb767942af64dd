"""The offline checker: a history of answers, and the log they came from, against all claims.

    python -m tests.simulation.worlds.checkers.check HISTORY.jsonl DUMP.jsonl

The checkers share no code with the coordinator. Exit status: 0 if every claim holds.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from tests.simulation.worlds.checkers import (
    acknowledged_is_durable,
    commits_count_for_a_holding,
    everything_converges,
    generations_never_fall,
    no_needless_rebalance,
    nothing_unloaded_is_served,
    offsets_never_go_back,
    one_epoch_a_range,
    one_leader,
    one_owner,
    one_worker,
)
from tests.simulation.worlds.checkers.history import Line, read

CLAIMS = {
    module.__name__.rpartition(".")[2]: module.check
    for module in (
        one_owner,
        generations_never_fall,
        offsets_never_go_back,
        acknowledged_is_durable,
        one_epoch_a_range,
        no_needless_rebalance,
        one_leader,
        nothing_unloaded_is_served,
        commits_count_for_a_holding,
        everything_converges,
        one_worker,
    )
}


def problems(history: list[Line], dump: list[Line]) -> list[str]:
    """Every breach of every claim."""
    return [f"{name}: {what}" for name, check in CLAIMS.items() for what in check(history, dump)]


def main() -> int:
    history, dump = read(Path(sys.argv[1])), read(Path(sys.argv[2]))
    complaints = problems(history, dump)
    for what in complaints:
        sys.stdout.write(f"{what}\n")
    counts = Counter(line["op"] for line in history)
    sys.stderr.write(", ".join(f"{count} {op}" for op, count in sorted(counts.items())) + "\n")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
