"""Many seeds, in as many processes as there are cores; what they found, and what they ran."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess

from tests.simulation.worlds.world import World

SEEDS_A_TASK = 20


@dataclass(slots=True)
class Findings:
    """Results of some seeds: problems of those that broke a claim, and the counts of all."""

    problems: dict[int, list[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    worlds: int = 0

    def add(self, other: Findings) -> None:
        """Add the results of other seeds."""
        self.problems |= other.problems
        self.counts.update(other.counts)
        self.worlds += other.worlds


def play(seeds: Sequence[int], *, has_sessions: bool = False) -> Findings:
    """Run some seeds, one after the other."""
    found = Findings()
    for seed in seeds:
        outcome = World(seed, has_sessions=has_sessions).run()
        found.worlds += 1
        found.counts.update(outcome.counts)
        if outcome.problems:
            found.problems[seed] = outcome.problems
    return found


def play_many(
    seeds: Sequence[int], *, jobs: int = 0, has_sessions: bool = False
) -> Generator[Findings, None, None]:
    """Run many seeds; the findings of every few of them, in their order.

    Args:
        jobs: processes; 0: one for each core.
    """
    # Not forked: whoever plays may have threads.
    pool = ProcessPoolExecutor(
        jobs or os.cpu_count(), mp_context=get_context("spawn"), initializer=_end_with_parent
    )
    try:
        yield from pool.map(partial(play, has_sessions=has_sessions), _parts(seeds))
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """Exit with the parent process: if it is killed, this worker would finish its queue."""

    def watch(parent: BaseProcess) -> None:
        parent.join()
        os._exit(1)

    parent = parent_process()
    assert parent is not None, "a worker has a parent"
    threading.Thread(target=watch, args=(parent,), daemon=True).start()


def _parts(seeds: Sequence[int]) -> Iterator[Sequence[int]]:
    for first in range(0, len(seeds), SEEDS_A_TASK):
        yield seeds[first : first + SEEDS_A_TASK]
