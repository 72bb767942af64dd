"""The worlds that CI plays, each once, however many tests ask for them."""

from __future__ import annotations

from collections.abc import Iterable

from tests.simulation.worlds.campaign import SEEDS_A_TASK, Findings, play_many

PARTS_A_BLOCK = 5
SEEDS_A_BLOCK = PARTS_A_BLOCK * SEEDS_A_TASK


class Worlds:
    """Blocks of seeds from 0 on, played when they are first asked for."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._parts = play_many(range(blocks * SEEDS_A_BLOCK))
        self._played: list[Findings] = []

    def block(self, number: int) -> Findings:
        while len(self._played) <= number:
            self._played.append(collect(next(self._parts) for _ in range(PARTS_A_BLOCK)))
        return self._played[number]

    def all(self) -> Findings:
        return collect(self.block(number) for number in range(self._blocks))

    def close(self) -> None:
        self._parts.close()


def collect(parts: Iterable[Findings]) -> Findings:
    total = Findings()
    for part in parts:
        total.add(part)
    return total


def told(found: Findings) -> str:
    """Problems, each with the command that shows it."""
    return "\n".join(
        f"poe sim --seed {seed} --verbose: {what[0]}" for seed, what in found.problems.items()
    )
